//! Drawn digits in place of MNIST: polylines whose corners, size, slant, place and width vary at random.

use super::CLASSES;
use crate::ops::rng::Rng;

/// Side in pixels, as in MNIST.
pub(super) const SIDE: usize = 28;

/// Corners of each digit in a unit square, (x to the right, y down).
const SHAPES: [&[(f64, f64)]; CLASSES] = [
    &[
        (0.5, 0.0),
        (0.85, 0.15),
        (1.0, 0.5),
        (0.85, 0.85),
        (0.5, 1.0),
        (0.15, 0.85),
        (0.0, 0.5),
        (0.15, 0.15),
        (0.5, 0.0),
    ],
    &[(0.2, 0.25), (0.55, 0.0), (0.55, 1.0)],
    &[(0.05, 0.2), (0.3, 0.0), (0.7, 0.0), (0.95, 0.25), (0.8, 0.5), (0.0, 1.0), (1.0, 1.0)],
    &[(0.0, 0.1), (0.5, 0.0), (0.9, 0.22), (0.45, 0.48), (1.0, 0.72), (0.5, 1.0), (0.0, 0.9)],
    &[(0.7, 1.0), (0.7, 0.0), (0.0, 0.65), (1.0, 0.65)],
    &[(0.95, 0.0), (0.15, 0.0), (0.1, 0.45), (0.6, 0.4), (1.0, 0.7), (0.6, 1.0), (0.0, 0.92)],
    &[(0.8, 0.0), (0.3, 0.3), (0.0, 0.7), (0.3, 1.0), (0.75, 0.98), (0.98, 0.7), (0.6, 0.48), (0.1, 0.65)],
    &[(0.0, 0.0), (1.0, 0.0), (0.4, 1.0)],
    &[
        (0.5, 0.47),
        (0.1, 0.22),
        (0.5, 0.0),
        (0.9, 0.22),
        (0.5, 0.47),
        (0.0, 0.75),
        (0.5, 1.0),
        (1.0, 0.75),
        (0.5, 0.47),
    ],
    &[(0.95, 0.3), (0.5, 0.52), (0.05, 0.3), (0.4, 0.0), (0.95, 0.3), (0.85, 1.0)],
];

/// Pixels, row by row, and label of a digit, a function of (seed, number).
pub(super) fn digit(seed: u64, number: u64) -> (Vec<u8>, u8) {
    let mut rng = Rng::new(seed, "pixels/digits", number);
    let label = rng.below(CLASSES as u32) as u8;
    let mut between = |low: f64, high: f64| low + (high - low) * rng.uniform();
    let size = [between(10.0, 15.0), between(16.0, 20.0)];
    let (slant, turn) = (between(-0.25, 0.25), between(-0.2, 0.2));
    let centre = [between(12.0, 15.0), between(12.5, 14.5)];
    let radius = between(0.9, 1.8);
    let (sin, cos) = (libm::sin(turn), libm::cos(turn));
    let corner = |&(x, y): &(f64, f64)| {
        let (x, y) = (x - 0.5 + between(-0.06, 0.06), y - 0.5 + between(-0.06, 0.06));
        let (x, y) = (size[0] * (x - slant * y), size[1] * y);
        [centre[0] + cos * x - sin * y, centre[1] + sin * x + cos * y]
    };
    let corners: Vec<[f64; 2]> = SHAPES[usize::from(label)].iter().map(corner).collect();
    let pixel = |at: usize| {
        let point = [(at % SIDE) as f64, (at / SIDE) as f64];
        let distances = corners.windows(2).map(|line| distance(point, line[0], line[1]));
        let nearest = distances.fold(f64::INFINITY, f64::min);
        (255.0 * (radius + 0.5 - nearest).clamp(0.0, 1.0)).round() as u8
    };
    ((0..SIDE * SIDE).map(pixel).collect(), label)
}

/// Distance of a point from a line between two others.
fn distance(point: [f64; 2], from: [f64; 2], to: [f64; 2]) -> f64 {
    let along = [to[0] - from[0], to[1] - from[1]];
    let apart = [point[0] - from[0], point[1] - from[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let share = ((apart[0] * along[0] + apart[1] * along[1]) / length.max(1e-9)).clamp(0.0, 1.0);
    let (x, y) = (apart[0] - share * along[0], apart[1] - share * along[1]);
    (x * x + y * y).sqrt()
}
