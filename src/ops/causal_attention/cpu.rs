//! The forward pass, one block of rows at a time: the weights of a block stay in cache, and the (B,
//! s, R, L) tensor is never stored.

use super::{CausalAttention, Weights};
use crate::float::Float;
use crate::lanes::{largest, total};
use crate::matrix::{Matrix, PANEL};
use crate::parallel::InParallel;
use dsf_simd::simd;
use std::ops::Range;

/// Query rows per block.
pub(super) const BLOCK: usize = 64;

/// Rows of one (batch, head), an item, and the steps that they attend to.
pub(super) struct Item<'a, F> {
    pub(super) op: &'a CausalAttention,
    pub(super) index: usize,
    pub(super) rows: Range<usize>,
    pub(super) steps: Range<usize>,
    pub(super) q: &'a [F],
    pub(super) k: &'a [F],
    pub(super) v: &'a [F],
    /// By distance, of its head.
    bias: Option<&'a [F]>,
}

/// Some query rows of an item.
pub(super) struct Block<'a, F> {
    item: &'a Item<'a, F>,
    /// The first row, in the item of the op.
    first: usize,
    /// Of each row, the steps that it may attend to, counted from the first step of the item.
    pub(super) spans: Vec<Range<usize>>,
    /// The queries, multiplied by the scale of the scores.
    pub(super) q: Matrix<F>,
}

impl<'a, F: Float> Item<'a, F> {
    /// All rows and steps.
    pub(super) fn of(op: &'a CausalAttention, ins: &[&'a [F]], index: usize) -> Self {
        let part = |x: &'a [F], size: usize| &x[index * size..][..size];
        Self {
            op,
            index,
            rows: 0..op.rows,
            steps: 0..op.len,
            q: part(ins[0], op.rows * op.key_width),
            k: part(ins[1], op.len * op.key_width),
            v: part(ins[2], op.len * op.value_width),
            bias: ins
                .get(3)
                .map(|bias| &bias[index % op.heads * op.distances()..][..op.distances()]),
        }
    }

    /// Some of the rows of a whole item, and no more steps than they attend to.
    fn part(&self, rows: Range<usize>) -> Self {
        let op = self.op;
        let reach = &op.reach_of(self.index)[rows.clone()];
        let steps = span(reach.iter().map(|&reach| self.seen(reach)));
        Self {
            q: &self.q[rows.start * op.key_width..rows.end * op.key_width],
            k: &self.k[steps.start * op.key_width..steps.end * op.key_width],
            v: &self.v[steps.start * op.value_width..steps.end * op.value_width],
            rows,
            steps,
            ..*self
        }
    }

    /// The whole item as parts that share few steps, if its rows attend to a window alone: then each part has its own copies
    /// of keys and values, and time grows with the window and not with the length.
    pub(super) fn parts(&self) -> Option<Vec<Self>> {
        let window = self.op.pattern.as_ref()?.narrow()?;
        let size = window.next_multiple_of(BLOCK);
        let starts = (0..self.op.rows).step_by(size);
        let parts = starts.map(|first| self.part(first..(first + size).min(self.op.rows)));
        Some(parts.collect())
    }

    /// What a row may attend to, of the steps up to `reach`.
    fn seen(&self, reach: usize) -> Range<usize> {
        let window = self
            .op
            .pattern
            .as_ref()
            .and_then(|pattern| pattern.narrow());
        window.map_or(0, |window| reach.saturating_sub(window))..reach
    }

    /// The number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.rows.len().div_ceil(BLOCK)
    }

    #[inline(always)]
    pub(super) fn block(&'a self, index: usize) -> Block<'a, F> {
        let op = self.op;
        let rows = index * BLOCK..((index + 1) * BLOCK).min(self.rows.len());
        let q = &self.q[rows.start * op.key_width..rows.end * op.key_width];
        let mut q = Matrix::from_rows(q, op.key_width);
        q.scale(op.scale());
        let first = self.rows.start + rows.start;
        let reach = &op.reach_of(self.index)[first..first + rows.len()];
        let spans = reach.iter().map(|&reach| {
            let seen = self.seen(reach);
            seen.start - self.steps.start..seen.end - self.steps.start
        });
        Block {
            item: self,
            first,
            spans: spans.collect(),
            q,
        }
    }
}

/// From the first start to the last end.
fn span(spans: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    let join = |a: Range<usize>, b: Range<usize>| a.start.min(b.start)..a.end.max(b.end);
    spans.reduce(join).unwrap_or_default()
}

impl<F: Float> Block<'_, F> {
    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The steps that the panel of rows from `top` on may attend to.
    #[inline(always)]
    pub(super) fn panel_span(&self, top: usize) -> Range<usize> {
        span(
            self.spans[top..(top + PANEL).min(self.len())]
                .iter()
                .cloned(),
        )
    }

    /// Multiplies what row `i` has for its span by the dropout mask.
    #[inline(always)]
    pub(super) fn mask_row(&self, i: usize, row: &mut [F]) {
        let Item {
            op, index, steps, ..
        } = self.item;
        if let Some(mask) = &op.mask {
            let at =
                (index * op.rows + self.first + i) * op.len + steps.start + self.spans[i].start;
            mask.apply(at as u64, row);
        }
    }

    /// Fills `p` with the scores of what each row may attend to.
    #[inline(always)]
    pub(super) fn scores(&self, keys: &Matrix<F>, p: &mut Matrix<F>) {
        p.set_product(0..self.len(), &self.q, keys, |top| {
            (0..self.item.op.key_width, self.panel_span(top))
        });
    }

    /// Turns the scores of row `i` into weights before dropout, zero for masked steps. Returns the weights of its span, and
    /// their normaliser.
    #[inline(always)]
    pub(super) fn weigh<'p>(&self, i: usize, row: &'p mut [F]) -> (&'p mut [F], F) {
        let (op, span) = (self.item.op, &self.spans[i]);
        row[..span.start].fill(F::zero());
        row[span.end..].fill(F::zero());
        let visible = &mut row[span.clone()];
        if let Some(pattern) = &op.pattern {
            let first = self.item.steps.start;
            let steps = first + span.start..first + span.end;
            let slope = pattern.slope(self.item.index % op.heads, op.heads);
            pattern.apply((slope, self.item.bias), steps.end - 1, steps, visible);
        }
        let sum = weigh_row(op.weights, visible);
        (visible, sum)
    }
}

/// Converts scores to weights in place; returns the normaliser.
#[inline(always)]
fn weigh_row<F: Float>(rule: Weights, row: &mut [F]) -> F {
    if rule == Weights::Plain {
        return F::one();
    }
    if rule == Weights::Softmax {
        let top = largest(row);
        for x in row.iter_mut() {
            *x = (*x - top).exp();
        }
    }
    let sum = total([row], |[x]| x);
    let reciprocal = F::one() / sum;
    for x in row.iter_mut() {
        *x *= reciprocal;
    }
    sum
}

pub(super) fn forward<F: Float>(op: &CausalAttention, ins: &[&[F]]) -> Vec<F> {
    let size = op.rows * op.value_width;
    let mut out = vec![F::zero(); op.batch * op.heads * size];
    out.chunks_mut(size).enumerate().in_parallel(|(i, out)| {
        let item = Item::of(op, ins, i);
        match item.parts() {
            Some(parts) => {
                let size = parts[0].rows.len() * op.value_width;
                let parts = parts.into_iter().zip(out.chunks_mut(size));
                parts.in_parallel(|(part, out)| forward_item(&part, out));
            }
            None => forward_item(&item, out),
        }
    });
    out
}

fn forward_item<F: Float>(item: &Item<F>, out: &mut [F]) {
    let past = past(item);
    out.chunks_mut(BLOCK * item.op.value_width)
        .enumerate()
        .in_parallel_with(
            || Weighed::new(item),
            |weighed, (index, out)| forward_block(item, &past, index, weighed, out),
        );
}

/// The keys and values in the layouts that every block of an item reads.
struct Past<F> {
    keys_t: Matrix<F>,
    values: Matrix<F>,
}

#[simd]
fn past<F: Float>(item: &Item<F>) -> Past<F> {
    Past {
        keys_t: Matrix::transposed(item.k, item.op.key_width),
        values: Matrix::from_rows(item.v, item.op.value_width),
    }
}

/// The weights and the results of a block.
struct Weighed<F> {
    p: Matrix<F>,
    o: Matrix<F>,
}

impl<F: Float> Weighed<F> {
    fn new(item: &Item<F>) -> Self {
        let rows = BLOCK.min(item.rows.len());
        Self {
            p: Matrix::zeros(rows, item.steps.len()),
            o: Matrix::zeros(rows, item.op.value_width),
        }
    }
}

#[simd]
fn forward_block<F: Float>(
    item: &Item<F>,
    past: &Past<F>,
    index: usize,
    weighed: &mut Weighed<F>,
    out: &mut [F],
) {
    let (op, block, Weighed { p, o }) = (item.op, item.block(index), weighed);
    block.scores(&past.keys_t, p);
    // Loops and not closures: a call in a hot loop is compiled for no instruction set but the lowest.
    for i in 0..block.len() {
        let (row, _) = block.weigh(i, p.row_mut(i));
        block.mask_row(i, row);
    }
    let bounds = |top| (block.panel_span(top), 0..op.value_width);
    o.set_product(0..block.len(), p, &past.values, bounds);
    o.copy_to(out, op.value_width);
}
