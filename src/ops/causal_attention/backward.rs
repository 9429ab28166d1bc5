//! The backward pass, one block of rows at a time; the attention weights are recomputed.

use super::cpu::{Block, Item, BLOCK};
use super::{CausalAttention, Weights};
use crate::float::Float;
use crate::lanes::total;
use crate::matrix::{Matrix, PANEL};
use crate::parallel::InParallel;
use dsf_simd::simd;
use std::ops::Range;

/// The number of tasks aimed at: if the batch has fewer items, each item is split.
const TASKS: usize = 16;

pub(super) fn backward<F: Float>(op: &CausalAttention, ins: &[&[F]], go: &[F]) -> Vec<Vec<F>> {
    let zeros = |like: &[F]| vec![F::zero(); like.len()];
    let (mut gq, mut gk, mut gv) = (zeros(ins[0]), zeros(ins[1]), zeros(ins[2]));
    let distances = op.distances();
    let mut gb = vec![Vec::new(); op.batch * op.heads];
    gq.chunks_mut(op.rows * op.key_width)
        .zip(gk.chunks_mut(op.len * op.key_width))
        .zip(gv.chunks_mut(op.len * op.value_width))
        .zip(go.chunks(op.rows * op.value_width))
        .zip(&mut gb)
        .enumerate()
        .in_parallel(|(i, ((((gq, gk), gv), go), gb))| {
            *gb = backward_item(&Item::of(op, ins, i), go, [gq, gk, gv]);
        });
    let mut grads = vec![gq, gk, gv];
    grads.extend(ins.get(3).map(|bias| {
        let mut sums = zeros(bias);
        for sequence in gb.chunks(op.heads) {
            for (sums, gb) in sums.chunks_mut(distances).zip(sequence) {
                add_to(sums, gb);
            }
        }
        sums
    }));
    grads
}

fn add_to<F: Float>(sums: &mut [F], more: &[F]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += *more;
    }
}

/// Blocks of an item are dealt to its tasks in turn, as later blocks attend to more steps; parts of an item are a task each.
/// The tasks' sums are added in order. The number of tasks depends on shapes alone. Returns the gradient of the bias.
fn backward_item<F: Float>(item: &Item<F>, go: &[F], [gq, gk, gv]: [&mut [F]; 3]) -> Vec<F> {
    let op = item.op;
    let mut gb = vec![F::zero(); op.distances()];
    let mut add = |steps: &Range<usize>, sums: &Sums<F>| {
        let part = |width: usize| steps.start * width..steps.end * width;
        let (gk, gv) = (&mut gk[part(op.key_width)], &mut gv[part(op.value_width)]);
        add_sums(op, sums, gk, gv);
        add_to(&mut gb, &sums.bias);
    };
    if let Some(parts) = item.parts() {
        let rows = parts[0].rows.len();
        let grads = gq
            .chunks_mut(rows * op.key_width)
            .zip(go.chunks(rows * op.value_width));
        let sums = parts
            .iter()
            .zip(grads)
            .map_in_parallel(|(part, (gq, go))| sums_of(part, &past(part), blocks(part, gq, go)));
        for (part, sums) in parts.iter().zip(&sums) {
            add(&part.steps, sums);
        }
        return gb;
    }
    let tasks = TASKS.div_ceil(op.batch * op.heads).min(item.blocks());
    let mut dealt: Vec<_> = (0..tasks).map(|_| Vec::new()).collect();
    for (index, grads) in blocks(item, gq, go) {
        dealt[index % tasks].push((index, grads));
    }
    let past = past(item);
    let sums = dealt
        .into_iter()
        .map_in_parallel(|blocks| sums_of(item, &past, blocks.into_iter()));
    for sums in &sums {
        add(&item.steps, sums);
    }
    gb
}

/// The gradients of the queries and of the results of a block.
type BlockGrads<'a, F> = (&'a mut [F], &'a [F]);

/// Every block of an item, with its number.
fn blocks<'a, F: Float>(
    item: &Item<F>,
    gq: &'a mut [F],
    go: &'a [F],
) -> impl Iterator<Item = (usize, BlockGrads<'a, F>)> {
    let gq = gq.chunks_mut(BLOCK * item.op.key_width);
    gq.zip(go.chunks(BLOCK * item.op.value_width)).enumerate()
}

/// Sets the gradients of the queries of some blocks; returns their part of those of keys and values.
fn sums_of<'a, F: Float>(
    item: &Item<F>,
    past: &Past<F>,
    blocks: impl Iterator<Item = (usize, BlockGrads<'a, F>)>,
) -> Sums<F> {
    let mut sums = Sums {
        k: Matrix::zeros(item.steps.len(), item.op.key_width),
        v: Matrix::zeros(item.steps.len(), item.op.value_width),
        bias: vec![F::zero(); item.op.distances()],
    };
    let mut scratch = Scratch::new(item);
    for (index, grads) in blocks {
        backward_block(item, past, index, grads, &mut scratch, &mut sums);
    }
    sums
}

/// What a block writes before it reads it.
struct Scratch<F> {
    /// The weights.
    p: Matrix<F>,
    /// The gradients of the weights, then of the scores.
    gs: Matrix<F>,
    /// The dropout mask of a row.
    factors: Vec<F>,
}

impl<F: Float> Scratch<F> {
    fn new(item: &Item<F>) -> Self {
        let (rows, len) = (BLOCK.min(item.rows.len()), item.steps.len());
        Self {
            p: Matrix::zeros(rows, len),
            gs: Matrix::zeros(rows, len),
            factors: vec![F::one(); len],
        }
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

/// The gradients of keys, values and biases, summed over blocks.
struct Sums<F> {
    k: Matrix<F>,
    v: Matrix<F>,
    bias: Vec<F>,
}

/// Adds the gradients of keys and values.
#[simd]
fn add_sums<F: Float>(op: &CausalAttention, sums: &Sums<F>, gk: &mut [F], gv: &mut [F]) {
    sums.k.add_to(gk, op.key_width);
    sums.v.add_to(gv, op.value_width);
}

#[simd]
fn backward_block<F: Float>(
    item: &Item<F>,
    past: &Past<F>,
    index: usize,
    (gq, go): BlockGrads<F>,
    Scratch { p, gs, factors }: &mut Scratch<F>,
    sums: &mut Sums<F>,
) {
    let (op, block) = (item.op, item.block(index));
    let (rows, len) = (block.len(), item.steps.len());
    let go = Matrix::from_rows(go, op.value_width);
    gs.set_product(0..rows, &go, &past.values_t, |top| {
        (0..op.value_width, block.panel_span(top))
    });
    block.scores(&past.keys_t, p);
    for (i, span) in block.spans.iter().enumerate() {
        let (p, sum) = block.weigh(i, p.row_mut(i));
        let gs = gs.row_mut(i);
        gs[..span.start].fill(F::zero());
        gs[span.end..].fill(F::zero());
        let factors = &mut factors[..p.len()];
        factors.fill(F::one());
        block.mask_row(i, factors);
        row_back(op.weights, sum, factors, p, &mut gs[span.clone()]);
        add_by_distance(&gs[span.clone()], &mut sums.bias);
    }
    let by = |first| attending(&block, first);
    sums.v.add_transposed_product(0..len, p, &go, by);
    sums.k.add_transposed_product(0..len, gs, &block.q, by);
    let mut product = Matrix::zeros(rows, op.key_width);
    product.set_product(0..rows, gs, &past.keys, |top| {
        (block.panel_span(top), 0..op.key_width)
    });
    product.scale(op.scale());
    product.copy_to(gq, op.key_width);
}

/// The rows of a block between the first and the last that may attend to a step of the panel from `first` on.
#[inline(always)]
fn attending<F: Float>(block: &Block<F>, first: usize) -> Range<usize> {
    let attends = |span: &Range<usize>| span.start < first + PANEL && first < span.end;
    let from = block.spans.iter().position(attends);
    let to = block.spans.iter().rposition(attends);
    from.zip(to).map_or(0..0, |(from, to)| from..to + 1)
}

/// Adds the gradients of the scores of one row, the last of which is at distance 0.
#[inline(always)]
fn add_by_distance<F: Float>(gs: &[F], bias: &mut [F]) {
    let Some(last) = bias.len().checked_sub(1) else {
        return;
    };
    let (far, near) = gs.split_at(gs.len().saturating_sub(last));
    for (bias, g) in bias.iter_mut().zip(near.iter().rev()) {
        *bias += *g;
    }
    bias[last] += total([far], |[g]| g);
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
