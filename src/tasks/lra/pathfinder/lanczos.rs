//! Downsampling of a gray picture by a Lanczos filter of three lobes, stretched by the scale (Turkowski 1990), with an
//! intermediate picture of 8 bits between its two passes, as in image libraries.

use std::f64::consts::PI;
use std::ops::Range;

/// Lobes of the filter: half of its width in pixels of the reduced picture.
pub(super) const LOBES: f64 = 3.0;

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

    /// Reduces (from, from) levels to (to, to) levels, row-major.
    pub fn apply(&self, levels: &[u8]) -> Vec<u8> {
        self.part(0..self.to, 0..self.to, |y, x| levels[y * self.from + x])
    }

    /// Some rows and columns of the reduced picture, for the levels of the large one by row and column: first along rows,
    /// then along columns.
    pub fn part(&self, rows: Range<usize>, columns: Range<usize>, level: impl Fn(usize, usize) -> u8) -> Vec<u8> {
        let (rows, columns) = (&self.windows[rows], &self.windows[columns]);
        let first = rows.first().map_or(0, |(first, _)| *first);
        let end = rows.last().map_or(0, |(last, weights)| last + weights.len());
        let mut narrow = Vec::with_capacity((end - first) * columns.len());
        for y in first..end {
            narrow.extend(columns.iter().map(|w| weighted(w, |x| level(y, x))));
        }
        let mut reduced = Vec::with_capacity(rows.len() * columns.len());
        for window in rows {
            reduced.extend((0..columns.len()).map(|x| weighted(window, |y| narrow[(y - first) * columns.len() + x])));
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
