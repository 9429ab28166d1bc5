//! Drawn shapes in place of CIFAR: one of ten shapes at any place, size, angle and contrast, lighter or darker than an
//! uneven background, under noise. Classes have the same mean picture, so that no pixel alone tells anything.

use super::CLASSES;
use crate::ops::rng::Rng;
use std::f64::consts::TAU;

/// Side in pixels, as in CIFAR.
pub(super) const SIDE: usize = 32;

/// Points along each side of a pixel at which its share of the shape is measured.
const SAMPLES: usize = 4;

/// Standard deviation of the noise of a pixel.
const NOISE: f64 = 6.0;

/// Whether a point (x, y) lies in the shape of each class, which reaches about 1 from its centre.
const SHAPES: [fn(f64, f64) -> bool; CLASSES] = [
    |x, y| x.hypot(y) <= 1.0,
    |x, y| (0.6..=1.0).contains(&x.hypot(y)),
    |x, y| x.abs().max(y.abs()) <= 0.85,
    |x, y| (0.5..=0.85).contains(&x.abs().max(y.abs())),
    |x, y| y <= 0.75 && y >= 1.7 * x.abs() - 0.95,
    |x, y| x.abs().max(y.abs()) <= 1.0 && x.abs().min(y.abs()) <= 0.28,
    |x, y| x.abs() <= 1.0 && y.abs() <= 0.3,
    |x, y| x.hypot(y) <= 1.0 && (x - 0.5).hypot(y) > 0.75,
    |x, y| x.hypot(y) <= 1.0 && y >= -0.05,
    |x, y| (x.abs() - 0.6).hypot(y) <= 0.4,
];

/// Pixels, row by row, and label of a picture, a function of (seed, number).
pub(super) fn shape(seed: u64, number: u64) -> (Vec<u8>, u8) {
    let mut rng = Rng::new(seed, "pixels/shapes", number);
    let label = rng.below(CLASSES as u32) as u8;
    let lighter = rng.below(2) == 1;
    let mut between = |low: f64, high: f64| low + (high - low) * rng.uniform();
    let (centre, size, turn) = ([between(11.0, 20.0), between(11.0, 20.0)], between(7.0, 10.5), between(0.0, TAU));
    let contrast = between(45.0, 90.0) * if lighter { 1.0 } else { -1.0 };
    let (gray, slope) = (between(90.0, 165.0), [between(-25.0, 25.0), between(-25.0, 25.0)]);
    let waves = [(); 2].map(|()| [between(-0.6, 0.6), between(-0.6, 0.6), between(0.0, TAU), between(3.0, 12.0)]);
    let (sin, cos) = (libm::sin(turn), libm::cos(turn));
    let inside = SHAPES[usize::from(label)];
    let covered = |x: usize, y: usize| {
        let offset = |i: usize| (i as f64 + 0.5) / SAMPLES as f64 - 0.5;
        let hits = (0..SAMPLES * SAMPLES).filter(|i| {
            let (x, y) = (x as f64 + offset(i % SAMPLES) - centre[0], y as f64 + offset(i / SAMPLES) - centre[1]);
            inside((cos * x + sin * y) / size, (cos * y - sin * x) / size)
        });
        hits.count() as f64 / (SAMPLES * SAMPLES) as f64
    };
    let clean = |x: usize, y: usize| {
        let middle = |i: usize| i as f64 / (SIDE - 1) as f64 - 0.5;
        let of_wave = |[dx, dy, phase, height]: [f64; 4]| height * libm::cos(dx * x as f64 + dy * y as f64 + phase);
        let background = gray + slope[0] * middle(x) + slope[1] * middle(y) + waves.map(of_wave).iter().sum::<f64>();
        background + contrast * covered(x, y)
    };
    let clean: Vec<f64> = (0..SIDE * SIDE).map(|i| clean(i % SIDE, i / SIDE)).collect();
    let noisy = clean.chunks(2).flat_map(|pair| {
        let (first, second) = rng.normals();
        [pair[0] + NOISE * first, pair[1] + NOISE * second]
    });
    (noisy.map(|gray| gray.round().clamp(0.0, 255.0) as u8).collect(), label)
}
