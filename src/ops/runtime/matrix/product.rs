//! Products of small matrices, a tile of the result at a time in registers. With factors of bf16
//! ([`Factors::Bf16`](crate::gpu::Factors)), a unit of the processor multiplies them, or both are rounded first.

use super::{Matrix, PANEL};
use crate::runtime::float::Float;
use crate::runtime::gemm;
#[cfg(target_arch = "x86_64")]
use crate::runtime::gemm::{Part, SmallProduct, View};
use crate::runtime::lanes::{by_index, each, map, splat, Lanes, LANES};
use std::ops::Range;

/// Groups of columns computed together: with them, a tile has enough running sums to hide the
/// latency of an addition (a product of 64 x 64 takes 0.6 of the time of one group).
const PAIR: usize = 2;

/// A tile of a result: `W` columns of a panel of rows.
type ResultTile<F, const W: usize> = [[F; W]; PANEL];

/// Columns of the left operand to use, and columns of the result to compute, of the panel that starts at a row.
#[cfg(target_arch = "x86_64")]
type Bounds<'a> = &'a dyn Fn(usize) -> (Range<usize>, Range<usize>);

impl<F: Float> Matrix<F> {
    /// Sets `rows` to those of a b. `bounds` returns, for the panel that starts at a row, the
    /// columns of `a` to use and the columns of the result to compute, in whole groups of lanes. Columns of `a` that
    /// neighbouring panels use must be zero in a panel that does not.
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

    /// Adds what [`Self::set_product`] would set.
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
        #[cfg(target_arch = "x86_64")]
        if gemm::on_unit::<F>() {
            return self.by_unit(rows, a.view(), b.view(), ADD, &bounds);
        }
        let rounded = gemm::rounds::<F>().then(|| [a, b].map(Self::rounded));
        let [a, b] = rounded.as_ref().map_or([a, b], |rounded| rounded.each_ref());
        for top in rows.clone().step_by(PANEL) {
            let (depth, columns) = bounds(top);
            let panel = top..(top + PANEL).min(rows.end);
            let last = panel.end - 1;
            let a: [&[F]; PANEL] = by_index(|r| &a.row((top + r).min(last))[..depth.end]);
            let left = |k: usize| map(a, |row| row[k]);
            self.panel::<ADD>(panel, &left, b, depth, columns);
        }
    }

    /// Adds `rows` of aᵀ b. `steps` returns, for the panel of columns of `a` that starts at a
    /// column, the rows of `a` and `b` to use. Rows that neighbouring panels use must be zero in the columns of a panel
    /// that does not.
    #[inline(always)]
    pub(crate) fn add_transposed_product(
        &mut self,
        rows: Range<usize>,
        a: &Self,
        b: &Self,
        steps: impl Fn(usize) -> Range<usize>,
    ) {
        #[cfg(target_arch = "x86_64")]
        if gemm::on_unit::<F>() {
            let all = 0..self.groups * LANES;
            return self.by_unit(rows, a.view().t(), b.view(), true, &|top| (steps(top), all.clone()));
        }
        let rounded = gemm::rounds::<F>().then(|| [a, b].map(Self::rounded));
        let [a, b] = rounded.as_ref().map_or([a, b], |rounded| rounded.each_ref());
        for top in rows.clone().step_by(PANEL) {
            let left = |k: usize| {
                let group = a.at(k, top / LANES);
                by_index(|r| group[top % LANES + r])
            };
            let panel = top..(top + PANEL).min(rows.end);
            self.panel::<true>(panel, &left, b, steps(top), 0..self.groups * LANES);
        }
    }

    /// The product on a unit for bf16.
    #[cfg(target_arch = "x86_64")]
    #[inline(never)]
    fn by_unit(&mut self, rows: Range<usize>, a: View<F>, b: View<F>, add: bool, bounds: Bounds) {
        let width = self.groups * LANES;
        let part = |rows: Range<usize>| {
            let within = |top| {
                let (depth, columns) = bounds(top);
                Part { depth, columns: columns.start / LANES * LANES..columns.end.next_multiple_of(LANES) }
            };
            rows.step_by(PANEL).map(within).reduce(Part::both).unwrap_or_default()
        };
        SmallProduct { a, b, add }.compute(self.cells.as_flattened_mut(), width, rows, part);
    }

    #[cfg(target_arch = "x86_64")]
    fn view(&self) -> View<'_, F> {
        View::new(self.cells.as_flattened(), self.groups * LANES)
    }

    /// A copy rounded to bf16.
    fn rounded(&self) -> Self {
        let mut cells = self.cells.clone();
        gemm::round_all(cells.as_flattened_mut());
        Self { groups: self.groups, cells }
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
        let mut sums: ResultTile<F, W> = [splat(F::zero()); PANEL];
        // Loops of constant length, so that the tile can live in registers.
        for (r, sums) in sums.iter_mut().enumerate() {
            if ADD && r < rows.len() {
                *sums = *self.some_mut(rows.start + r, g);
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
    fn some_mut<const W: usize>(&mut self, r: usize, g: usize) -> &mut [F; W] {
        let cells = &mut self.cells[r * self.groups + g..][..W / LANES];
        &mut cells.as_flattened_mut().as_chunks_mut().0[0]
    }
}

/// The first `W` numbers.
#[inline(always)]
fn wide<F, const W: usize>(cells: &[Lanes<F>]) -> &[F; W] {
    &cells[..W / LANES].as_flattened().as_chunks().0[0]
}

/// `sums` + Σ_k left(k) b\[k, g ..\], in the order of k.
#[inline(always)]
fn tile_product<F: Float, const W: usize>(
    sums: ResultTile<F, W>,
    steps: Range<usize>,
    left: &impl Fn(usize) -> [F; PANEL],
    b: &Matrix<F>,
    g: usize,
) -> ResultTile<F, W> {
    // Written out: the compiler does not unroll a loop over the rows, and an array indexed by a
    // loop variable would live in memory.
    let [mut s0, mut s1, mut s2, mut s3] = sums;
    let rows = b.cells[steps.start * b.groups..steps.end * b.groups].chunks_exact(b.groups);
    for (k, row) in steps.zip(rows) {
        let (left, right): (_, &[F; W]) = (left(k), wide(&row[g..]));
        s0 = each(|i| left[0].fma(right[i], s0[i]));
        s1 = each(|i| left[1].fma(right[i], s1[i]));
        s2 = each(|i| left[2].fma(right[i], s2[i]));
        s3 = each(|i| left[3].fma(right[i], s3[i]));
    }
    [s0, s1, s2, s3]
}
