//! Small matrix products inside fused ops: one thread, operands in cache, a tile of the result at a
//! time in registers.
//!
//! Candle's own product runs a batch one matrix after another; attention wants one task per
//! (batch, head) and half of each product, the part below the diagonal.

use super::float::Float;
use super::lanes::{each, load, splat, store, Lanes, LANES};
use std::ops::Range;

/// Rows computed together, so that each row of the right operand is loaded once for all of them.
pub(crate) const PANEL: usize = 4;

/// Groups of columns computed together: with them, a tile has enough running sums to hide the
/// latency of an addition (a product of 64 x 64 takes 0.8 of the time of one group).
const PAIR: usize = 2;

/// Rows of whole lanes; columns and rows beyond the given sizes are padding.
pub(crate) struct Matrix<F> {
    /// Lanes in a row.
    groups: usize,
    cells: Vec<Lanes<F>>,
}

/// A tile of a result: `W` columns of a panel of rows.
type Tile<F, const W: usize> = [[F; W]; PANEL];

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
        matrix.set_rows(x, columns, 0..columns);
        matrix
    }

    /// The transpose of rows laid out one after another.
    #[inline(always)]
    pub(crate) fn transposed(x: &[F], columns: usize) -> Self {
        let rows = x.len() / columns;
        let mut matrix = Self::zeros(columns.next_multiple_of(LANES), rows);
        matrix.set_transposed(0..rows, columns.div_ceil(LANES), |r, g| {
            load(&x[r * columns + g * LANES..(r + 1) * columns])
        });
        matrix
    }

    /// Sets the first rows to the columns `part` of rows of `stride` numbers.
    #[inline(always)]
    pub(crate) fn set_rows(&mut self, x: &[F], stride: usize, part: Range<usize>) {
        let rows = self.cells.chunks_exact_mut(self.groups);
        for (row, x) in rows.zip(x.chunks_exact(stride)) {
            for (lanes, x) in row.iter_mut().zip(x[part.clone()].chunks(LANES)) {
                *lanes = load(x);
            }
        }
    }

    /// Sets columns `rows`, which start at whole lanes, to the rows of `groups` lanes that `from`
    /// gives.
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
                let lanes = from(r, g);
                for (c, &x) in lanes.iter().enumerate() {
                    part[c * width + r] = x;
                }
            }
        }
    }

    /// Writes rows `0 .. to.len() / columns`, without the padding.
    #[inline(always)]
    pub(crate) fn copy_to(&self, to: &mut [F], columns: usize) {
        self.copy_into(to, columns, 0..columns);
    }

    /// Writes the first rows into the columns `part` of rows of `stride` numbers.
    #[inline(always)]
    pub(crate) fn copy_into(&self, to: &mut [F], stride: usize, part: Range<usize>) {
        let rows = self.cells.chunks_exact(self.groups);
        for (row, to) in rows.zip(to.chunks_exact_mut(stride)) {
            for (lanes, to) in row.iter().zip(to[part.clone()].chunks_mut(LANES)) {
                store(lanes, to);
            }
        }
    }

    /// Lanes in a row.
    #[inline(always)]
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Rows with the padding.
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

    /// Rows with their padding.
    #[inline(always)]
    pub(crate) fn rows_mut(&mut self, rows: Range<usize>) -> &mut [Lanes<F>] {
        &mut self.cells[rows.start * self.groups..rows.end * self.groups]
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

    /// `rows` become those of `a` times `b`. `bounds` gives, for the panel that starts at a row,
    /// which columns of `a` to use and which columns of the result to compute, in whole lanes.
    #[inline(always)]
    pub(crate) fn set_product(
        &mut self,
        rows: Range<usize>,
        a: &Self,
        b: &Self,
        bounds: impl Fn(usize) -> (Range<usize>, Range<usize>),
    ) {
        self.product::<false>(rows, a, b, bounds);
    }

    /// As [`Self::set_product`], added to what is there.
    #[inline(always)]
    pub(crate) fn add_product(
        &mut self,
        rows: Range<usize>,
        a: &Self,
        b: &Self,
        bounds: impl Fn(usize) -> (Range<usize>, Range<usize>),
    ) {
        self.product::<true>(rows, a, b, bounds);
    }

    #[inline(always)]
    fn product<const ADD: bool>(
        &mut self,
        rows: Range<usize>,
        a: &Self,
        b: &Self,
        bounds: impl Fn(usize) -> (Range<usize>, Range<usize>),
    ) {
        for top in rows.clone().step_by(PANEL) {
            let (depth, columns) = bounds(top);
            let panel = top..(top + PANEL).min(rows.end);
            let last = panel.end - 1;
            let a: [&[F]; PANEL] =
                std::array::from_fn(|r| &a.row((top + r).min(last))[..depth.end]);
            let left = |k: usize| a.map(|row| row[k]);
            self.panel::<ADD>(panel, &left, b, depth, columns);
        }
    }

    /// `rows` of the transpose of `a`, times `b`, is added. `steps` gives, for the panel of columns
    /// of `a` that starts at a column, which rows of `a` and `b` to use.
    #[inline(always)]
    pub(crate) fn add_transposed_product(
        &mut self,
        rows: Range<usize>,
        a: &Self,
        b: &Self,
        steps: impl Fn(usize) -> Range<usize>,
    ) {
        for top in rows.clone().step_by(PANEL) {
            let left = |k: usize| {
                let group = a.at(k, top / LANES);
                std::array::from_fn(|r| group[top % LANES + r])
            };
            let panel = top..(top + PANEL).min(rows.end);
            self.panel::<true>(panel, &left, b, steps(top), 0..self.groups * LANES);
        }
    }

    #[inline(always)]
    fn panel<const ADD: bool>(
        &mut self,
        rows: Range<usize>,
        left: &impl Fn(usize) -> [F; PANEL],
        b: &Self,
        steps: Range<usize>,
        columns: Range<usize>,
    ) {
        let (mut g, end) = (columns.start / LANES, columns.end.div_ceil(LANES));
        while g + PAIR <= end {
            self.tile::<ADD, { PAIR * LANES }>(rows.clone(), left, b, steps.clone(), g);
            g += PAIR;
        }
        if g < end {
            self.tile::<ADD, LANES>(rows, left, b, steps, g);
        }
    }

    #[inline(always)]
    fn tile<const ADD: bool, const W: usize>(
        &mut self,
        rows: Range<usize>,
        left: &impl Fn(usize) -> [F; PANEL],
        b: &Self,
        steps: Range<usize>,
        g: usize,
    ) {
        let mut sums: Tile<F, W> = [splat(F::zero()); PANEL];
        // Loops of constant length, so that the tile can live in registers.
        for (r, sums) in sums.iter_mut().enumerate() {
            if ADD && r < rows.len() {
                *sums = *self.some(rows.start + r, g);
            }
        }
        let sums = tile_product(sums, steps, left, b, g);
        for (r, sums) in sums.iter().enumerate() {
            if r < rows.len() {
                *self.some_mut(rows.start + r, g) = *sums;
            }
        }
    }

    /// `W` numbers of row `r` from group `g` on.
    #[inline(always)]
    fn some<const W: usize>(&self, r: usize, g: usize) -> &[F; W] {
        let cells = &self.cells[r * self.groups + g..][..W / LANES];
        &cells.as_flattened().as_chunks().0[0]
    }

    /// `W` numbers of row `r` from group `g` on.
    #[inline(always)]
    fn some_mut<const W: usize>(&mut self, r: usize, g: usize) -> &mut [F; W] {
        let cells = &mut self.cells[r * self.groups + g..][..W / LANES];
        &mut cells.as_flattened_mut().as_chunks_mut().0[0]
    }
}

/// `sums` + Σ_k left(k) b\[k, g ..\], in the order of k.
#[inline(always)]
fn tile_product<F: Float, const W: usize>(
    sums: Tile<F, W>,
    steps: Range<usize>,
    left: &impl Fn(usize) -> [F; PANEL],
    b: &Matrix<F>,
    g: usize,
) -> Tile<F, W> {
    // Written out: the compiler does not unroll a loop over the rows, and an array indexed by a
    // loop would live in memory.
    let [mut s0, mut s1, mut s2, mut s3] = sums;
    for k in steps {
        let (left, right): (_, &[F; W]) = (left(k), b.some(k, g));
        s0 = each(|i| s0[i] + left[0] * right[i]);
        s1 = each(|i| s1[i] + left[1] * right[i]);
        s2 = each(|i| s2[i] + left[2] * right[i]);
        s3 = each(|i| s3[i] + left[3] * right[i]);
    }
    [s0, s1, s2, s3]
}

#[cfg(test)]
mod tests;
