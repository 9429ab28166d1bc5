//! The backward pass, one task per (batch, head); the weights are computed again.

use super::cpu::{Block, Item};
use super::{CausalAttention, Weights};
use crate::ops::float::Float;
use crate::ops::lanes::total;
use crate::ops::matrix::Matrix;
use multiversion::multiversion;
use rayon::prelude::*;
use std::ops::Range;

pub(super) fn backward<F: Float>(op: &CausalAttention, ins: &[&[F]], go: &[F]) -> Vec<Vec<F>> {
    let zeros = |like: &[F]| vec![F::zero(); like.len()];
    let (mut gq, mut gk, mut gv) = (zeros(ins[0]), zeros(ins[1]), zeros(ins[2]));
    gq.par_chunks_mut(op.rows * op.key_width)
        .zip(gk.par_chunks_mut(op.len * op.key_width))
        .zip(gv.par_chunks_mut(op.len * op.value_width))
        .zip(go.par_chunks(op.rows * op.value_width))
        .enumerate()
        .for_each(|(i, (((gq, gk), gv), go))| {
            backward_item(&Item::of(op, ins, i), go, [gq, gk, gv]);
        });
    vec![gq, gk, gv]
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn backward_item<F: Float>(item: &Item<F>, go: &[F], [gq, gk, gv]: [&mut [F]; 3]) {
    let op = item.op;
    let (key_width, value_width) = (op.key_width, op.value_width);
    let keys = Matrix::from_rows(item.k, key_width);
    let (keys_t, values_t) = (
        Matrix::transposed(item.k, key_width),
        Matrix::transposed(item.v, value_width),
    );
    let (mut sum_k, mut sum_v) = (
        Matrix::zeros(op.len, key_width),
        Matrix::zeros(op.len, value_width),
    );
    for block in item.blocks() {
        let rows = block.reach.len();
        let go = &go[block.rows.start * value_width..block.rows.end * value_width];
        let go = Matrix::from_rows(go, value_width);
        let (mut p, mut gs) = (Matrix::zeros(rows, op.len), Matrix::zeros(rows, op.len));
        gs.set_product(0..rows, &go, &values_t, |top| {
            (0..value_width, 0..block.panel_reach(top))
        });
        let mut factors = vec![F::one(); op.len];
        block.weigh(op.weights, &keys_t, key_width, &mut p, |i, p, sum| {
            let (gs, hidden) = gs.row_mut(i).split_at_mut(p.len());
            hidden.fill(F::zero());
            let factors = &mut factors[..p.len()];
            factors.fill(F::one());
            item.mask_row(block.rows.start + i, factors);
            row_back(op.weights, sum, factors, p, gs);
        });
        sum_v.add_transposed_product(0..op.len, &p, &go, |first| seen_from(&block, first));
        sum_k.add_transposed_product(0..op.len, &gs, &block.q, |first| seen_from(&block, first));
        let mut product = Matrix::zeros(rows, key_width);
        product.set_product(0..rows, &gs, &keys, |top| {
            (0..block.panel_reach(top), 0..key_width)
        });
        let gq = &mut gq[block.rows.start * key_width..block.rows.end * key_width];
        product.copy_to(gq, key_width);
    }
    sum_k.copy_to(gk, key_width);
    sum_v.copy_to(gv, value_width);
}

/// The rows of a block that may see step `first` or a later one.
#[inline(always)]
fn seen_from<F: Float>(block: &Block<F>, first: usize) -> Range<usize> {
    let sees = |&reach: &usize| reach > first;
    block
        .reach
        .iter()
        .position(sees)
        .unwrap_or(block.reach.len())..block.reach.len()
}

/// Of one row: `p` becomes the dropped weights, and `gs`, the gradient with respect to those,
/// becomes the gradient with respect to the scores.
#[inline(always)]
fn row_back<F: Float>(rule: Weights, sum: F, factors: &[F], p: &mut [F], gs: &mut [F]) {
    for (gs, &factor) in gs.iter_mut().zip(factors) {
        *gs *= factor;
    }
    // Both normalised rules are invariant to a change of `sum`, which takes out the mean.
    let mean = match rule {
        Weights::Plain => F::zero(),
        Weights::Softmax | Weights::LinearNormalised => total([p, gs], |[p, gs]| p * gs),
    };
    let share = F::one() / sum;
    for ((gs, p), &factor) in gs.iter_mut().zip(p).zip(factors) {
        let slope = if rule == Weights::Softmax { *p } else { share };
        *gs = (*gs - mean) * slope;
        *p *= factor;
    }
}
