//! Transposes of matrices in memory, and of their columns to rows of a tile and back.

use crate::runtime::float::Float;
use crate::runtime::lanes::{each, load, splat, store, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Rows of a transpose per task.
const PANEL: usize = 4 * LANES;

/// Returns the transpose of a matrix with `columns` columns.
pub(crate) fn transpose<F: Float>(x: &[F], columns: usize) -> Vec<F> {
    let rows = x.len() / columns;
    let mut y = zeros(x.len());
    let panels = y.chunks_mut(PANEL * rows).enumerate();
    panels.in_parallel(|(i, y)| columns_to_rows(x, columns, i * PANEL, y, rows));
    y
}

/// Writes columns of x, a matrix with `columns` columns, as the starts of the rows of `tile`, which are `pitch` apart:
/// column `first` as row 0. They are written square by square, so that whole cache lines are read and written.
#[simd]
pub(crate) fn columns_to_rows<F: Float>(x: &[F], columns: usize, first: usize, tile: &mut [F], pitch: usize) {
    let rows = x.len() / columns;
    for (i, tile) in tile.chunks_mut(LANES * pitch).enumerate() {
        let (column, wide) = (first + i * LANES, tile.len() / pitch);
        for row in (0..rows).step_by(LANES) {
            let high = LANES.min(rows - row);
            let mut square: [Lanes<F>; LANES] = [splat(F::zero()); LANES];
            for (r, line) in square.iter_mut().enumerate().take(high) {
                *line = load(&x[(row + r) * columns + column..][..wide]);
            }
            for c in 0..wide {
                let line: Lanes<F> = each(|r| square[r][c]);
                store(&line, &mut tile[c * pitch + row..][..high]);
            }
        }
    }
}

/// Writes the starts of the rows of `tile`, which are `pitch` apart and at most [`LANES`], as columns: `to` has pieces of
/// rows, with a number for each row of the tile.
#[simd]
pub(crate) fn rows_to_columns<F: Float>(tile: &[F], pitch: usize, to: &mut [&mut [F]]) {
    let wide = tile.len() / pitch;
    for (i, to) in to.chunks_mut(LANES).enumerate() {
        let mut square: [Lanes<F>; LANES] = [splat(F::zero()); LANES];
        for (r, line) in square.iter_mut().enumerate().take(wide) {
            *line = load(&tile[r * pitch + i * LANES..][..to.len()]);
        }
        for (c, to) in to.iter_mut().enumerate() {
            let line: Lanes<F> = each(|r| square[r][c]);
            store(&line, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_rows_and_columns_again() {
        for (rows, columns, first, wide, pitch) in [(1, 1, 0, 1, 1), (5, 7, 2, 3, 9), (40, 33, 16, 16, 40)] {
            let x: Vec<f64> = (0..rows * columns).map(|i| i as f64).collect();
            let mut tile = vec![-1.0; wide * pitch];
            columns_to_rows(&x, columns, first, &mut tile, pitch);
            for (i, found) in tile.iter().enumerate() {
                let (c, r) = (i / pitch, i % pitch);
                let wanted = if r < rows { (r * columns + first + c) as f64 } else { -1.0 };
                assert_eq!(*found, wanted, "row {r} of column {c}");
            }
            let mut y = vec![-1.0; x.len()];
            let mut pieces: Vec<&mut [f64]> = y.chunks_mut(columns).map(|row| &mut row[first..first + wide]).collect();
            rows_to_columns(&tile, pitch, &mut pieces);
            for (i, (found, x)) in y.iter().zip(&x).enumerate() {
                let within = (first..first + wide).contains(&(i % columns));
                assert_eq!(*found, if within { *x } else { -1.0 });
            }
        }
    }
}
