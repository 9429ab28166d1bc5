//! The forward pass, one task per (batch, head), a block of rows at a time: the weights of a block
//! stay in cache and the (B, s, R, L) tensor is never formed.

use super::{CausalAttention, Weights};
use crate::ops::float::Float;
use crate::ops::lanes::{largest, total};
use crate::ops::matrix::{Matrix, PANEL};
use multiversion::multiversion;
use rayon::prelude::*;
use std::ops::Range;

/// Query rows in a block.
const BLOCK: usize = 64;

/// The inputs of one (batch, head).
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
    /// How many steps each row sees.
    pub(super) reach: &'a [usize],
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

    #[inline(always)]
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block<'a, F>> {
        let (op, q, reach) = (self.op, self.q, self.op.reach_of(self.index));
        (0..op.rows).step_by(BLOCK).map(move |start| {
            let rows = start..(start + BLOCK).min(op.rows);
            let q = &q[rows.start * op.key_width..rows.end * op.key_width];
            Block {
                reach: &reach[rows.clone()],
                rows,
                q: Matrix::from_rows(q, op.key_width),
            }
        })
    }

    /// Multiplies row `i` of the item, as far as it reaches, by the dropout mask.
    #[inline(always)]
    pub(super) fn mask_row(&self, i: usize, row: &mut [F]) {
        if let Some(mask) = &self.op.mask {
            mask.apply(((self.index * self.op.rows + i) * self.op.len) as u64, row);
        }
    }
}

impl<F: Float> Block<'_, F> {
    /// How many steps the panel of rows from `top` sees.
    #[inline(always)]
    pub(super) fn panel_reach(&self, top: usize) -> usize {
        let rows = &self.reach[top..(top + PANEL).min(self.reach.len())];
        rows.iter().copied().max().unwrap_or(0)
    }

    /// Fills `p` with the weights before dropout, zero where a row does not see. Calls `done` with
    /// each row, the part of it that counts, and the sum it was divided by.
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
            let (seen, hidden) = p.row_mut(i).split_at_mut(reach);
            hidden.fill(F::zero());
            let sum = weigh_row(rule, seen);
            done(i, seen, sum);
        }
    }
}

/// Scores to weights, in place; returns the sum that they were divided by.
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
    let share = F::one() / sum;
    for x in row.iter_mut() {
        *x *= share;
    }
    sum
}

pub(super) fn forward<F: Float>(op: &CausalAttention, ins: &[&[F]]) -> Vec<F> {
    let size = op.rows * op.value_width;
    let mut out = vec![F::zero(); op.batch * op.heads * size];
    out.par_chunks_mut(size)
        .enumerate()
        .for_each(|(i, out)| forward_item(&Item::of(op, ins, i), out));
    out
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn forward_item<F: Float>(item: &Item<F>, out: &mut [F]) {
    let op = item.op;
    let keys = Matrix::transposed(item.k, op.key_width);
    let values = Matrix::from_rows(item.v, op.value_width);
    let mut p = Matrix::zeros(BLOCK.min(op.rows), op.len);
    let mut o = Matrix::zeros(BLOCK.min(op.rows), op.value_width);
    for block in item.blocks() {
        block.weigh(op.weights, &keys, op.key_width, &mut p, |i, row, _| {
            item.mask_row(block.rows.start + i, row);
        });
        let bounds = |top| (0..block.panel_reach(top), 0..op.value_width);
        o.set_product(0..block.reach.len(), &p, &values, bounds);
        let out = &mut out[block.rows.start * op.value_width..block.rows.end * op.value_width];
        o.copy_to(out, op.value_width);
    }
}
