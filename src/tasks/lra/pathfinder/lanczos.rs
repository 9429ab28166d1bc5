//! Downsampling of a gray picture by a Lanczos filter of three lobes, stretched by the scale (Turkowski 1990), with an
//! intermediate picture of 8 bits between its two passes, as in image libraries.

use std::f64::consts::PI;

const LOBES: f64 = 3.0;

/// Filter from squares of side `from` to squares of side `to`.
pub(super) struct Reduction {
    from: usize,
    to: usize,
    /// First source pixel and the weights from there on, for each target pixel of a row.
    windows: Vec<(usize, Vec<f64>)>,
}

impl Reduction {
    pub fn new(from: usize, to: usize) -> Self {
        let windows = (0..to).map(|pixel| window(pixel, from, to)).collect();
        Self { from, to, windows }
    }

    /// Reduces (from, from) levels to (to, to) levels, row-major: first along rows, then along columns.
    pub fn apply(&self, levels: &[u8]) -> Vec<u8> {
        let (from, to) = (self.from, self.to);
        let mut narrow = Vec::with_capacity(from * to);
        for row in levels.chunks_exact(from) {
            narrow.extend(self.windows.iter().map(|w| weighted(w, |i| row[i])));
        }
        let mut reduced = Vec::with_capacity(to * to);
        for window in &self.windows {
            reduced.extend((0..to).map(|x| weighted(window, |y| narrow[y * to + x])));
        }
        reduced
    }
}

fn weighted((first, weights): &(usize, Vec<f64>), level: impl Fn(usize) -> u8) -> u8 {
    let terms = (*first..).zip(weights).map(|(i, w)| w * f64::from(level(i)));
    (terms.sum::<f64>() + 0.5).floor().clamp(0.0, 255.0) as u8
}

fn window(pixel: usize, from: usize, to: usize) -> (usize, Vec<f64>) {
    let scale = from as f64 / to as f64;
    let centre = (pixel as f64 + 0.5) * scale;
    let reach = LOBES * scale;
    let first = (centre - reach + 0.5).max(0.0) as usize;
    let end = ((centre + reach + 0.5) as usize).min(from);
    let weight = |i: usize| lanczos((i as f64 - centre + 0.5) / scale);
    let sum: f64 = (first..end).map(weight).sum();
    (first, (first..end).map(|i| weight(i) / sum).collect())
}

fn lanczos(x: f64) -> f64 {
    if x.abs() < LOBES {
        sinc(x) * sinc(x / LOBES)
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        1.0
    } else {
        libm::sin(PI * x) / (PI * x)
    }
}
