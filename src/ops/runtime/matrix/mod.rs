//! Small matrices inside fused ops, and their products: on one thread, with operands in cache.
//!
//! Candle's own product computes a batch one matrix after another; attention needs one task per
//! (batch, head), and only the half of each product below the diagonal.

mod product;

use crate::runtime::float::Float;
use crate::runtime::lanes::{load, splat, store, Lanes, LANES};
use std::ops::Range;

/// Rows computed together, so that each row of the right operand is loaded once for all of them.
pub(crate) const PANEL: usize = 4;

/// A matrix whose rows are whole groups of lanes. Columns and rows beyond the given sizes are
/// padding.
pub(crate) struct Matrix<F> {
    /// Groups of lanes per row.
    groups: usize,
    cells: Vec<Lanes<F>>,
}

impl<F: Float> Matrix<F> {
    /// A matrix of zeros; the number of rows is rounded up to whole panels.
    #[inline(always)]
    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        let groups = columns.div_ceil(LANES);
        let cells = vec![splat(F::zero()); rows.next_multiple_of(PANEL) * groups];
        Self { groups, cells }
    }

    /// Sets the first columns to the first `columns` numbers of rows with `stride` numbers.
    #[inline(always)]
    pub(crate) fn set_transpose(&mut self, x: &[F], stride: usize, columns: usize) {
        let rows = x.len().div_ceil(stride);
        self.set_transposed(0..rows, columns.div_ceil(LANES), |r, g| {
            load(&x[r * stride + g * LANES..][..columns - g * LANES])
        });
    }

    /// Sets the first rows to the columns `part` of rows with `stride` numbers; the last may end behind that part.
    #[inline(always)]
    pub(crate) fn set_rows(&mut self, x: &[F], stride: usize, part: Range<usize>) {
        let rows = self.cells.chunks_exact_mut(self.groups);
        for (row, x) in rows.zip(x.chunks(stride)) {
            for (lanes, x) in row.iter_mut().zip(x[part.clone()].chunks(LANES)) {
                *lanes = load(x);
            }
        }
    }

    /// Sets columns `rows`, which start at a whole group of lanes, to the rows of `groups` groups
    /// that `from` returns.
    #[inline(always)]
    pub(crate) fn set_transposed(
        &mut self,
        rows: Range<usize>,
        groups: usize,
        from: impl Fn(usize, usize) -> Lanes<F>,
    ) {
        let width = self.groups * LANES;
        let flat = self.cells.as_flattened_mut();
        for g in 0..groups {
            let part = &mut flat[g * LANES * width..(g + 1) * LANES * width];
            for r in rows.clone() {
                for (column, x) in part.chunks_exact_mut(width).zip(from(r, g)) {
                    column[r] = x;
                }
            }
        }
    }

    /// Writes rows `0 .. to.len() / columns`, without the padding.
    #[inline(always)]
    pub(crate) fn copy_to(&self, to: &mut [F], columns: usize) {
        self.copy_into(to, columns, 0..columns);
    }

    /// Sets every entry to zero.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.cells.fill(splat(F::zero()));
    }

    /// Multiplies every entry by `by`.
    #[inline(always)]
    pub(crate) fn scale(&mut self, by: F) {
        for x in self.cells.as_flattened_mut() {
            *x *= by;
        }
    }

    /// Writes the first rows to the columns `part` of rows with `stride` numbers.
    #[inline(always)]
    pub(crate) fn copy_into(&self, to: &mut [F], stride: usize, part: Range<usize>) {
        let rows = self.cells.chunks_exact(self.groups);
        for (row, to) in rows.zip(to.chunks_exact_mut(stride)) {
            for (lanes, to) in row.iter().zip(to[part.clone()].chunks_mut(LANES)) {
                store(lanes, to);
            }
        }
    }

    /// Writes the first rows, without the padding.
    #[inline(always)]
    pub(crate) fn copy_rows(&self, to: &mut [&mut [F]]) {
        for (row, to) in self.cells.chunks_exact(self.groups).zip(to) {
            for (lanes, to) in row.iter().zip(to.chunks_mut(LANES)) {
                store(lanes, to);
            }
        }
    }

    /// Adds the first rows, without the padding.
    #[inline(always)]
    pub(crate) fn add_rows(&self, to: &mut [&mut [F]]) {
        for (row, to) in self.cells.chunks_exact(self.groups).zip(to) {
            for (to, &x) in to.iter_mut().zip(row.as_flattened()) {
                *to += x;
            }
        }
    }

    /// Groups of lanes per row.
    #[inline(always)]
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// The number of rows, padding included.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.cells.len() / self.groups
    }

    /// Group `g` of row `r`.
    #[inline(always)]
    pub(crate) fn at(&self, r: usize, g: usize) -> &Lanes<F> {
        &self.cells[r * self.groups + g]
    }

    /// Group `g` of row `r`.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, r: usize, g: usize) -> &mut Lanes<F> {
        &mut self.cells[r * self.groups + g]
    }

    /// The groups of `rows`, padding included.
    #[inline(always)]
    pub(crate) fn rows_mut(&mut self, rows: Range<usize>) -> &mut [Lanes<F>] {
        &mut self.cells[rows.start * self.groups..rows.end * self.groups]
    }

    /// Some groups of a row.
    #[inline(always)]
    pub(crate) fn groups_mut(&mut self, r: usize, groups: Range<usize>) -> &mut [Lanes<F>] {
        &mut self.cells[r * self.groups..][groups]
    }

    /// A row, padding included.
    #[inline(always)]
    pub(crate) fn row(&self, r: usize) -> &[F] {
        self.cells[r * self.groups..][..self.groups].as_flattened()
    }

    /// A row, padding included.
    #[inline(always)]
    pub(crate) fn row_mut(&mut self, r: usize) -> &mut [F] {
        self.cells[r * self.groups..][..self.groups].as_flattened_mut()
    }
}

#[cfg(test)]
mod tests;
