//! Transposes of matrices in memory.

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
    panels.in_parallel(|(i, y)| transpose_panel(x, columns, i * PANEL, y));
    y
}

/// Writes columns of x, beginning at `first`, as rows, square by square, so that whole cache lines are read and
/// written.
#[simd]
fn transpose_panel<F: Float>(x: &[F], columns: usize, first: usize, y: &mut [F]) {
    let rows = x.len() / columns;
    for (i, y) in y.chunks_mut(LANES * rows).enumerate() {
        let (column, wide) = (first + i * LANES, y.len() / rows);
        for row in (0..rows).step_by(LANES) {
            let high = LANES.min(rows - row);
            let mut square: [Lanes<F>; LANES] = [splat(F::zero()); LANES];
            for (r, line) in square.iter_mut().enumerate().take(high) {
                *line = load(&x[(row + r) * columns + column..][..wide]);
            }
            for c in 0..wide {
                let line: Lanes<F> = each(|r| square[r][c]);
                store(&line, &mut y[c * rows + row..][..high]);
            }
        }
    }
}
