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

/// The inputs of one (batch, head), an item.
pub(super) struct Item<'a, F> {
    pub(super) op: &'a CausalAttention,
    pub(super) index: usize,
    pub(super) q: &'a [F],
    pub(super) k: &'a [F],
    pub(super) v: &'a [F],
}

/// Some query rows of an item.
pub(super) struct Block<'a, F> {
    pub(super) rows: Range<usize>,
    /// The number of steps that each row attends to.
    pub(super) reach: &'a [usize],
    /// The queries, multiplied by the scale of the scores.
    pub(super) q: Matrix<F>,
}

impl<'a, F: Float> Item<'a, F> {
    pub(super) fn of(op: &'a CausalAttention, ins: &[&'a [F]], index: usize) -> Self {
        let part = |x: &'a [F], size: usize| &x[index * size..][..size];
        Self {
            op,
            index,
            q: part(ins[0], op.rows * op.key_width),
            k: part(ins[1], op.len * op.key_width),
            v: part(ins[2], op.len * op.value_width),
        }
    }

    /// The number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.op.rows.div_ceil(BLOCK)
    }

    #[inline(always)]
    pub(super) fn block(&self, index: usize) -> Block<'a, F> {
        let op = self.op;
        let rows = index * BLOCK..((index + 1) * BLOCK).min(op.rows);
        let q = &self.q[rows.start * op.key_width..rows.end * op.key_width];
        let mut q = Matrix::from_rows(q, op.key_width);
        q.scale(op.scale());
        Block {
            reach: &op.reach_of(self.index)[rows.clone()],
            rows,
            q,
        }
    }

    /// Multiplies row `i` of the item, up to its reach, by the dropout mask.
    #[inline(always)]
    pub(super) fn mask_row(&self, i: usize, row: &mut [F]) {
        if let Some(mask) = &self.op.mask {
            mask.apply(((self.index * self.op.rows + i) * self.op.len) as u64, row);
        }
    }
}

impl<F: Float> Block<'_, F> {
    /// The number of steps that the panel of rows from `top` on attends to.
    #[inline(always)]
    pub(super) fn panel_reach(&self, top: usize) -> usize {
        let rows = &self.reach[top..(top + PANEL).min(self.reach.len())];
        rows.iter().copied().max().unwrap_or(0)
    }

    /// Fills `p` with the weights before dropout, zero for masked steps. Calls `done` with each
    /// row, its unmasked part, and its normaliser.
    #[inline(always)]
    pub(super) fn weigh(
        &self,
        rule: Weights,
        keys: &Matrix<F>,
        key_width: usize,
        p: &mut Matrix<F>,
        mut done: impl FnMut(usize, &mut [F], F),
    ) {
        p.set_product(0..self.reach.len(), &self.q, keys, |top| {
            (0..key_width, 0..self.panel_reach(top))
        });
        for (i, &reach) in self.reach.iter().enumerate() {
            let (visible, hidden) = p.row_mut(i).split_at_mut(reach);
            hidden.fill(F::zero());
            let sum = weigh_row(rule, visible);
            done(i, visible, sum);
        }
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
        let past = past(&item);
        out.chunks_mut(BLOCK * op.value_width)
            .enumerate()
            .in_parallel_with(
                || Weighed::new(op),
                |weighed, (index, out)| forward_block(&item, &past, index, weighed, out),
            );
    });
    out
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
    fn new(op: &CausalAttention) -> Self {
        let rows = BLOCK.min(op.rows);
        Self {
            p: Matrix::zeros(rows, op.len),
            o: Matrix::zeros(rows, op.value_width),
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
    block.weigh(op.weights, &past.keys_t, op.key_width, p, |i, row, _| {
        item.mask_row(block.rows.start + i, row);
    });
    let bounds = |top| (0..block.panel_reach(top), 0..op.value_width);
    o.set_product(0..block.reach.len(), p, &past.values, bounds);
    o.copy_to(out, op.value_width);
}
