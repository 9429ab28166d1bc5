//! The backward pass, one block of rows at a time; the attention weights are recomputed.

use super::cpu::{Block, Item, BLOCK};
use super::{CausalAttention, Weights};
use crate::float::Float;
use crate::lanes::total;
use crate::matrix::Matrix;
use crate::parallel::InParallel;
use dsf_simd::simd;
use std::ops::Range;

/// The number of tasks aimed at: if the batch has fewer items, each item is split.
const TASKS: usize = 16;

pub(super) fn backward<F: Float>(op: &CausalAttention, ins: &[&[F]], go: &[F]) -> Vec<Vec<F>> {
    let zeros = |like: &[F]| vec![F::zero(); like.len()];
    let (mut gq, mut gk, mut gv) = (zeros(ins[0]), zeros(ins[1]), zeros(ins[2]));
    gq.chunks_mut(op.rows * op.key_width)
        .zip(gk.chunks_mut(op.len * op.key_width))
        .zip(gv.chunks_mut(op.len * op.value_width))
        .zip(go.chunks(op.rows * op.value_width))
        .enumerate()
        .in_parallel(|(i, (((gq, gk), gv), go))| {
            backward_item(&Item::of(op, ins, i), go, [gq, gk, gv]);
        });
    vec![gq, gk, gv]
}

/// Blocks of an item are dealt to its tasks in turn, as later blocks attend to more steps; the
/// tasks' sums are added in order. The number of tasks depends on shapes alone.
fn backward_item<F: Float>(item: &Item<F>, go: &[F], [gq, gk, gv]: [&mut [F]; 3]) {
    let op = item.op;
    let parts = TASKS.div_ceil(op.batch * op.heads).min(item.blocks());
    let mut dealt: Vec<_> = (0..parts).map(|_| Vec::new()).collect();
    let rows = gq.chunks_mut(BLOCK * op.key_width);
    let blocks = rows.zip(go.chunks(BLOCK * op.value_width)).enumerate();
    for (index, (gq, go)) in blocks {
        dealt[index % parts].push((index, gq, go));
    }
    let past = past(item);
    let sums = dealt.into_iter().map_in_parallel(|blocks| {
        let mut sums = Sums {
            k: Matrix::zeros(op.len, op.key_width),
            v: Matrix::zeros(op.len, op.value_width),
        };
        for (index, gq, go) in blocks {
            backward_block(item, &past, index, go, gq, &mut sums);
        }
        sums
    });
    for sums in &sums {
        sums.k.add_to(gk, op.key_width);
        sums.v.add_to(gv, op.value_width);
    }
}

/// The keys and values in the layouts that every block of an item reads.
struct Past<F> {
    keys: Matrix<F>,
    keys_t: Matrix<F>,
    values_t: Matrix<F>,
}

#[simd]
fn past<F: Float>(item: &Item<F>) -> Past<F> {
    let op = item.op;
    Past {
        keys: Matrix::from_rows(item.k, op.key_width),
        keys_t: Matrix::transposed(item.k, op.key_width),
        values_t: Matrix::transposed(item.v, op.value_width),
    }
}

/// The gradients of keys and values, summed over blocks.
struct Sums<F> {
    k: Matrix<F>,
    v: Matrix<F>,
}

#[simd]
fn backward_block<F: Float>(
    item: &Item<F>,
    past: &Past<F>,
    index: usize,
    go: &[F],
    gq: &mut [F],
    sums: &mut Sums<F>,
) {
    let (op, block) = (item.op, item.block(index));
    let rows = block.reach.len();
    let go = Matrix::from_rows(go, op.value_width);
    let (mut p, mut gs) = (Matrix::zeros(rows, op.len), Matrix::zeros(rows, op.len));
    gs.set_product(0..rows, &go, &past.values_t, |top| {
        (0..op.value_width, 0..block.panel_reach(top))
    });
    let mut factors = vec![F::one(); op.len];
    let done = |i: usize, p: &mut [F], sum: F| {
        let (gs, hidden) = gs.row_mut(i).split_at_mut(p.len());
        hidden.fill(F::zero());
        let factors = &mut factors[..p.len()];
        factors.fill(F::one());
        item.mask_row(block.rows.start + i, factors);
        row_back(op.weights, sum, factors, p, gs);
    };
    block.weigh(op.weights, &past.keys_t, op.key_width, &mut p, done);
    let from = |first| attending_from(&block, first);
    sums.v.add_transposed_product(0..op.len, &p, &go, from);
    sums.k
        .add_transposed_product(0..op.len, &gs, &block.q, from);
    let mut product = Matrix::zeros(rows, op.key_width);
    product.set_product(0..rows, &gs, &past.keys, |top| {
        (0..block.panel_reach(top), 0..op.key_width)
    });
    product.scale(op.scale());
    product.copy_to(gq, op.key_width);
}

/// The rows of a block that may attend to step `first` or a later one.
#[inline(always)]
fn attending_from<F: Float>(block: &Block<F>, first: usize) -> Range<usize> {
    let attends = |&reach: &usize| reach > first;
    block
        .reach
        .iter()
        .position(attends)
        .unwrap_or(block.reach.len())..block.reach.len()
}

/// For one row, applies dropout to `p`, and converts `gs` from the gradient of the dropped weights
/// to that of the scores.
#[inline(always)]
fn row_back<F: Float>(rule: Weights, sum: F, factors: &[F], p: &mut [F], gs: &mut [F]) {
    for (gs, &factor) in gs.iter_mut().zip(factors) {
        *gs *= factor;
    }
    // Both normalised rules are invariant to the normaliser, which projects out the mean.
    let mean = match rule {
        Weights::Plain => F::zero(),
        Weights::Softmax | Weights::LinearNormalised => total([p, gs], |[p, gs]| p * gs),
    };
    let reciprocal = F::one() / sum;
    for ((gs, p), &factor) in gs.iter_mut().zip(p).zip(factors) {
        let slope = if rule == Weights::Softmax {
            *p
        } else {
            reciprocal
        };
        *gs = (*gs - mean) * slope;
        *p *= factor;
    }
}
