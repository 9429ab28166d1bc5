//! Tiles of pairs, some rows by some steps. The data of a tile stay in cache, and the (B, s, R, L) tensor is never
//! stored.

use super::super::place::HeadRows;
use super::super::{CausalAttention, Weights};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, total, Lanes, LANES};
use crate::runtime::matrix::{Matrix, PANEL};
use std::ops::Range;

/// Rows of a block.
pub(super) const BLOCK: usize = 64;
/// Steps of a tile, in whole groups of lanes. Two tiles of 64 rows take twice the L1 cache of current processors, and a
/// sixteenth of their L2 cache; smaller tiles have more overhead at their borders.
pub(super) const TILE: usize = 128;
/// Number of items from which each item is a task; with fewer items, each block is.
pub(super) const MANY: usize = 16;

/// The steps of each tile.
pub(super) fn tiles(op: &CausalAttention) -> impl Iterator<Item = Range<usize>> {
    let len = op.len;
    let starts = (0..len).step_by(TILE);
    starts.map(move |first| first..(first + TILE).min(len))
}

/// Calls `make` for each tile with the number of its steps.
pub(super) fn by_tile<T>(op: &CausalAttention, make: impl Fn(usize) -> T) -> Vec<T> {
    tiles(op).map(|steps| make(steps.len())).collect()
}

/// e^{x - top} of scores, and 0 where they are hidden at -∞, which avoids slow underflows.
#[inline(always)]
pub(super) fn exponentials<F: Float>(x: &Lanes<F>, top: F) -> Lanes<F> {
    let hidden = |c: usize| x[c] == F::of(f64::NEG_INFINITY);
    let y: Lanes<F> = each(|c| if hidden(c) { F::zero() } else { x[c] - top });
    let y: Lanes<F> = each(|c| y[c].exp());
    each(|c| if hidden(c) { F::zero() } else { y[c] })
}

/// One head of one sequence.
pub(super) struct Item<'a, F> {
    pub(super) op: &'a CausalAttention,
    index: usize,
    q: HeadRows<'a, F>,
    k: HeadRows<'a, F>,
    v: HeadRows<'a, F>,
    /// Factor of the distance that is subtracted from its scores.
    slope: f64,
    /// Bias of its head, by distance.
    bias: Option<&'a [F]>,
}

/// Some query rows of an item.
pub(super) struct QueryBlock<'a, F> {
    item: &'a Item<'a, F>,
    /// The first row, in the item.
    first: usize,
    /// Steps that each row may attend to; the last of them is at the row's time.
    spans: Vec<Range<usize>>,
}

/// The pairs of a block with some steps.
pub(super) struct PairTile<'a, F> {
    block: &'a QueryBlock<'a, F>,
    steps: Range<usize>,
    /// Whether every row may attend to every step, and the steps are whole groups of lanes.
    full: bool,
}

impl<'a, F: Float> Item<'a, F> {
    pub(super) fn of(op: &'a CausalAttention, ins: &[&'a [F]], index: usize) -> Self {
        let part = |x, rows, width| op.rows_of(x, index, rows, width);
        let bias = |bias: &&'a [F]| &bias[index % op.heads * op.distances()..][..op.distances()];
        Self {
            op,
            index,
            q: part(ins[0], op.rows, op.key_width),
            k: part(ins[1], op.len, op.key_width),
            v: part(ins[2], op.len, op.value_width),
            slope: op.pattern.as_ref().map_or(0.0, |pattern| pattern.slope(index % op.heads, op.heads)),
            bias: ins.get(3).map(bias),
        }
    }

    /// The number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.op.rows.div_ceil(BLOCK)
    }

    /// The keys of some steps.
    pub(super) fn keys(&self, steps: &Range<usize>) -> HeadRows<'a, F> {
        self.k.some(steps.clone())
    }

    /// The values of some steps.
    pub(super) fn values(&self, steps: &Range<usize>) -> HeadRows<'a, F> {
        self.v.some(steps.clone())
    }

    /// The query rows.
    pub(super) fn queries(&self) -> impl Iterator<Item = &'a [F]> {
        self.q.some(0..self.op.rows).each()
    }

    /// Steps that a row with this many steps up to its time may attend to; the last of them is at its time.
    fn span(&self, reach: usize) -> Range<usize> {
        let window = self.op.pattern.as_ref().and_then(|pattern| pattern.narrow());
        window.map_or(0, |window| reach.saturating_sub(window))..reach
    }

    /// Steps that the rows of an op at one time may attend to.
    pub(super) fn past(&self) -> Range<usize> {
        self.span(self.op.reach_of(self.index)[0])
    }

    /// Adds the biases of the pattern to the scores of a row at `time` with `steps`, and hides the steps that it does
    /// not attend to.
    pub(super) fn restrict(&self, time: usize, steps: Range<usize>, scores: &mut [F]) {
        if let Some(pattern) = &self.op.pattern {
            pattern.apply((self.slope, self.bias), time, steps, scores);
        }
    }

    #[inline(always)]
    pub(super) fn block(&'a self, index: usize) -> QueryBlock<'a, F> {
        let op = self.op;
        let rows = index * BLOCK..((index + 1) * BLOCK).min(op.rows);
        let spans = op.reach_of(self.index)[rows.clone()].iter();
        QueryBlock { item: self, first: rows.start, spans: spans.map(|&reach| self.span(reach)).collect() }
    }
}

impl<'a, F: Float> QueryBlock<'a, F> {
    pub(super) fn op(&self) -> &'a CausalAttention {
        self.item.op
    }

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Rows of the block, as indices among those of the item.
    fn rows(&self) -> Range<usize> {
        self.first..self.first + self.len()
    }

    /// Sets `to` to the queries, multiplied by the scale of the scores.
    #[inline(always)]
    pub(super) fn queries(&self, to: &mut Matrix<F>) {
        self.item.q.some(self.rows()).copy_to(to);
        to.scale(self.op().scale());
    }

    /// The tiles of the item with pairs of the block.
    pub(super) fn tiles(&self) -> Range<usize> {
        let starts = self.spans.iter().map(|span| span.start);
        let ends = self.spans.iter().map(|span| span.end);
        let (start, end) = (starts.min().unwrap_or(0), ends.max().unwrap_or(0));
        start / TILE..end.div_ceil(TILE)
    }

    pub(super) fn tile(&'a self, index: usize) -> PairTile<'a, F> {
        let steps = index * TILE..((index + 1) * TILE).min(self.item.op.len);
        let holds = |span: &Range<usize>| span.start <= steps.start && steps.end <= span.end;
        PairTile { block: self, full: steps.len().is_multiple_of(LANES) && self.spans.iter().all(holds), steps }
    }

    /// Rows of the block in the results, or in gradients with their layout.
    pub(super) fn results<'b>(&self, x: &'b [F]) -> HeadRows<'b, F> {
        let op = self.op();
        let of_item = op.rows_of(x, self.item.index, op.rows, op.value_width);
        of_item.some(self.rows())
    }

    /// Numbers of the block's rows in `x`, which holds one number for each row of all items.
    pub(super) fn of<'b>(&self, x: &'b [F]) -> &'b [F] {
        &x[self.item.index * self.item.op.rows..][self.rows()]
    }
}

impl<F: Float> PairTile<'_, F> {
    pub(super) fn op(&self) -> &CausalAttention {
        self.block.item.op
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.block.len()
    }

    /// The number of steps.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Steps that row `i` may attend to, relative to the first step.
    #[inline(always)]
    pub(super) fn span(&self, i: usize) -> Range<usize> {
        let (span, steps) = (&self.block.spans[i], &self.steps);
        let within = |step: usize| step.clamp(steps.start, steps.end) - steps.start;
        within(span.start)..within(span.end)
    }

    /// Steps from the first to the last that the panel of rows beginning at `top` may attend to.
    #[inline(always)]
    pub(super) fn panel(&self, top: usize) -> Range<usize> {
        if self.full {
            return 0..self.len();
        }
        let mut all = self.len()..0;
        for i in top..(top + PANEL).min(self.block.len()) {
            let span = self.span(i);
            if !span.is_empty() {
                all = all.start.min(span.start)..all.end.max(span.end);
            }
        }
        all.start.min(all.end)..all.end
    }

    /// Rows from the first to the last that may attend to a step of the panel of steps beginning at `first`.
    #[inline(always)]
    pub(super) fn attending(&self, first: usize) -> Range<usize> {
        let rows = 0..self.block.len();
        if self.full {
            return rows;
        }
        let attends = |i: &usize| {
            let span = self.span(*i);
            span.start < first + PANEL && first < span.end
        };
        let (from, to) = (rows.clone().find(attends), rows.rev().find(attends));
        from.zip(to).map_or(0..0, |(from, to)| from..to + 1)
    }

    /// Groups of lanes that contain the steps which row `i` may attend to.
    #[inline(always)]
    pub(super) fn groups(&self, i: usize) -> Range<usize> {
        let span = self.span(i);
        match span.is_empty() {
            true => 0..0,
            false => span.start / LANES..span.end.div_ceil(LANES),
        }
    }

    /// Fills `p` with the scores of the [queries](Block::queries). Steps that a row may not attend to are hidden like
    /// in [`Self::hide`], at -∞ for a softmax.
    #[inline(always)]
    pub(super) fn scores(&self, q: &Matrix<F>, keys_t: &Matrix<F>, p: &mut Matrix<F>) {
        let op = self.op();
        let bounds = |top| (0..op.key_width, self.panel(top));
        p.set_product(0..self.rows(), q, keys_t, bounds);
        if op.pattern.is_some() {
            for (i, all) in self.block.spans.iter().enumerate() {
                let span = self.span(i);
                if !span.is_empty() {
                    let steps = self.steps.start + span.start..self.steps.start + span.end;
                    self.block.item.restrict(all.end - 1, steps, &mut p.row_mut(i)[span]);
                }
            }
        }
        self.hide(
            p,
            match op.weights {
                Weights::Softmax => F::of(f64::NEG_INFINITY),
                Weights::LinearNormalised | Weights::Plain => F::zero(),
            },
        );
    }

    /// Replaces the entries that a row may not attend to: by `beside` within the row's groups of lanes, by zero
    /// outside.
    #[inline(always)]
    pub(super) fn hide(&self, p: &mut Matrix<F>, beside: F) {
        if self.full {
            return;
        }
        for i in 0..self.rows() {
            let (span, groups) = (self.span(i), self.groups(i));
            for (g, x) in p.rows_mut(i..i + 1).iter_mut().enumerate() {
                let [from, to] = [span.start, span.end].map(|at| at as i32 - (g * LANES) as i32);
                if !groups.contains(&g) {
                    *x = splat(F::zero());
                } else if from > 0 || to < LANES as i32 {
                    let seen = |c: usize| from <= c as i32 && (c as i32) < to;
                    *x = each(|c| if seen(c) { x[c] } else { beside });
                }
            }
        }
    }

    /// Multiplies the groups of lanes of row `i` by the dropout mask; steps that it may not attend to are zero.
    #[inline(always)]
    pub(super) fn mask_row(&self, i: usize, row: &mut [Lanes<F>]) {
        let Item { op, index, .. } = self.block.item;
        if let Some(mask) = &op.mask {
            let row_of_all = index * op.rows + self.block.first + i;
            let first = self.steps.start + self.groups(i).start * LANES;
            mask.apply((row_of_all * op.len + first) as u64, row.as_flattened_mut());
        }
    }

    /// Adds the gradients of the scores in the span of row `i` to those of the biases.
    #[inline(always)]
    pub(super) fn add_by_distance(&self, i: usize, gs: &[F], bias: &mut [F]) {
        let last = bias.len() - 1;
        let time = self.block.spans[i].end;
        // A row before all of these steps attends to none of them.
        let nearest = time.saturating_sub(self.steps.start + self.span(i).end);
        let near = gs.len().min(last.saturating_sub(nearest));
        let (far, near) = gs.split_at(gs.len() - near);
        for (bias, g) in bias[nearest.min(last)..].iter_mut().zip(near.iter().rev()) {
            *bias += *g;
        }
        bias[last] += total([far], |[g]| g);
    }
}
