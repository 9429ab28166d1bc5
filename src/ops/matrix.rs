//! Small matrix products inside fused ops: one thread, operands in cache, sixteen columns at a time.
//!
//! Candle's own product runs a batch one matrix after another; attention wants one task per
//! (batch, head) and half of each product, the part below the diagonal.

use super::float::Float;
use super::lanes::{each, load, splat, store, Lanes, LANES};
use std::ops::Range;

/// Rows computed together, so that each row of the right operand is loaded once for all of them.
pub(crate) const PANEL: usize = 4;

/// Rows of whole lanes; columns and rows beyond the given sizes are padding.
pub(crate) struct Matrix<F> {
    /// Lanes in a row.
    groups: usize,
    cells: Vec<Lanes<F>>,
}

impl<F: Float> Matrix<F> {
    /// Zeros; the number of rows is rounded up to whole panels.
    #[inline(always)]
    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        let groups = columns.div_ceil(LANES);
        let cells = vec![splat(F::zero()); rows.next_multiple_of(PANEL) * groups];
        Self { groups, cells }
    }

    /// From rows laid out one after another.
    #[inline(always)]
    pub(crate) fn from_rows(x: &[F], columns: usize) -> Self {
        let mut matrix = Self::zeros(x.len() / columns, columns);
        let rows = matrix.cells.chunks_exact_mut(matrix.groups);
        for (row, x) in rows.zip(x.chunks_exact(columns)) {
            for (lanes, x) in row.iter_mut().zip(x.chunks(LANES)) {
                *lanes = load(x);
            }
        }
        matrix
    }

    /// The transpose of rows laid out one after another.
    #[inline(always)]
    pub(crate) fn transposed(x: &[F], columns: usize) -> Self {
        let rows = x.len() / columns;
        let mut matrix = Self::zeros(columns, rows);
        let width = matrix.groups * LANES;
        let flat = matrix.cells.as_flattened_mut();
        for (r, x) in x.chunks_exact(columns).enumerate() {
            for (c, &x) in x.iter().enumerate() {
                flat[c * width + r] = x;
            }
        }
        matrix
    }

    /// Writes rows `0 .. to.len() / columns`, without the padding.
    #[inline(always)]
    pub(crate) fn copy_to(&self, to: &mut [F], columns: usize) {
        let rows = self.cells.chunks_exact(self.groups);
        for (row, to) in rows.zip(to.chunks_exact_mut(columns)) {
            for (lanes, to) in row.iter().zip(to.chunks_mut(LANES)) {
                store(lanes, to);
            }
        }
    }

    /// A row with its padding.
    #[inline(always)]
    pub(crate) fn row(&self, r: usize) -> &[F] {
        self.cells[r * self.groups..][..self.groups].as_flattened()
    }

    /// A row with its padding.
    #[inline(always)]
    pub(crate) fn row_mut(&mut self, r: usize) -> &mut [F] {
        self.cells[r * self.groups..][..self.groups].as_flattened_mut()
    }

    /// Rows 0 .. `rows` of `a` times `b`. `bounds` gives, for the panel that starts at a row, how
    /// many columns of `a` to use and how many columns of the result to compute.
    #[inline(always)]
    pub(crate) fn set_product(
        &mut self,
        a: &Self,
        b: &Self,
        rows: usize,
        bounds: impl Fn(usize) -> (usize, usize),
    ) {
        for top in (0..rows).step_by(PANEL) {
            let (depth, columns) = bounds(top);
            let a: [&[F]; PANEL] = std::array::from_fn(|r| &a.row(top + r)[..depth]);
            for g in 0..columns.div_ceil(LANES) {
                let left = |k: usize| a.map(|row| row[k]);
                let sums = panel_product([splat(F::zero()); PANEL], 0..depth, left, b, g);
                self.set_panel(top, g, sums);
            }
        }
    }

    /// Adds the transpose of `a` times `b`. `steps` gives, for the panel of columns of `a` that
    /// starts at a column, which rows of `a` and `b` to use.
    #[inline(always)]
    pub(crate) fn add_transposed_product(
        &mut self,
        a: &Self,
        b: &Self,
        steps: impl Fn(usize) -> Range<usize>,
    ) {
        for top in (0..self.cells.len() / self.groups).step_by(PANEL) {
            let group = |k: usize| &a.cells[k * a.groups + top / LANES];
            let left = |k: usize| std::array::from_fn(|r| group(k)[top % LANES + r]);
            for g in 0..self.groups {
                let sums = std::array::from_fn(|r| self.cells[(top + r) * self.groups + g]);
                let sums = panel_product(sums, steps(top), left, b, g);
                self.set_panel(top, g, sums);
            }
        }
    }

    #[inline(always)]
    fn set_panel(&mut self, top: usize, g: usize, panel: [Lanes<F>; PANEL]) {
        for (r, lanes) in panel.into_iter().enumerate() {
            self.cells[(top + r) * self.groups + g] = lanes;
        }
    }
}

/// `sums` + Σ_k left(k) b\[k, g\], in the order of k.
#[inline(always)]
fn panel_product<F: Float>(
    mut sums: [Lanes<F>; PANEL],
    steps: Range<usize>,
    left: impl Fn(usize) -> [F; PANEL],
    b: &Matrix<F>,
    g: usize,
) -> [Lanes<F>; PANEL] {
    for k in steps {
        let (left, right) = (left(k), &b.cells[k * b.groups + g]);
        for r in 0..PANEL {
            sums[r] = each(|i| sums[r][i] + left[r] * right[i]);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(rows: usize, columns: usize) -> Vec<f64> {
        (0..rows * columns)
            .map(|i| ((i * 7) % 11) as f64 - 5.0)
            .collect()
    }

    fn entry(a: &[f64], b: &[f64], (inner, columns): (usize, usize), i: usize, j: usize) -> f64 {
        (0..inner)
            .map(|k| a[i * inner + k] * b[k * columns + j])
            .sum()
    }

    #[test]
    fn products_are_sums_of_products() {
        for (rows, inner, columns) in [(1, 1, 1), (4, 16, 16), (5, 17, 33), (9, 3, 70)] {
            let (a, b) = (numbers(rows, inner), numbers(inner, columns));
            let right = Matrix::from_rows(&b, columns);
            let mut product = Matrix::zeros(rows, columns);
            product.set_product(&Matrix::from_rows(&a, inner), &right, rows, |_| {
                (inner, columns)
            });
            let mut again = Matrix::zeros(rows, columns);
            again.add_transposed_product(&Matrix::transposed(&a, inner), &right, |_| 0..inner);
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                let expected = entry(&a, &b, (inner, columns), i, j);
                assert_eq!(product.row(i)[j], expected);
                assert_eq!(again.row(i)[j], expected);
            }
        }
    }
}
