//! Backward pass, one block of rows at a time, tile by tile. The attention weights are recomputed from the scores and
//! the normalisers. With a normaliser, Σ_j p_ij dL/dp_ij equals dL/do_i · o_i, with or without dropout. The sum itself
//! is used if a single tile contains all of it: the product would differ from it by rounding, which matters if one
//! weight is nearly 1.

use super::super::{CausalAttention, Weights};
use super::tiles::{by_tile, exponentials, tiles, Item, PairTile, QueryBlock, BLOCK, MANY, TILE};
use crate::runtime::autograd::Backward;
use crate::runtime::float::Float;
use crate::runtime::lanes::{add_chunk, dot, each, splat, Lanes, LANES};
use crate::runtime::matrix::Matrix;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;
use std::ops::Range;

pub(super) fn backward<F: Float>(op: &CausalAttention, call: Backward<F>) -> Vec<Vec<F>> {
    let ins = call.ins;
    let zeros = |like: &[F]| zeros(like.len());
    let (mut gq, mut gk, mut gv) = (zeros(ins[0]), zeros(ins[1]), zeros(ins[2]));
    let distances = op.distances();
    let mut gb = vec![Vec::new(); op.batch * op.heads];
    op.rows_by_item(&mut gq, op.rows, op.key_width)
        .into_iter()
        .zip(op.rows_by_item(&mut gk, op.len, op.key_width))
        .zip(op.rows_by_item(&mut gv, op.len, op.value_width))
        .zip(&mut gb)
        .enumerate()
        .in_parallel_with(
            || BackwardScratch::new(op),
            |scratch, (i, (((gq, gk), gv), gb))| {
                *gb = backward_item(&Item::of(op, ins, i), &call, [gq, gk, gv], scratch);
            },
        );
    let mut grads = vec![gq, gk, gv];
    grads.extend(ins.get(3).map(|bias| {
        let mut sums = zeros(bias);
        for sequence in gb.chunks(op.heads) {
            for (sums, gb) in sums.chunks_mut(distances).zip(sequence) {
                add_chunk(sums, gb);
            }
        }
        sums
    }));
    grads
}

/// If there are few items, the blocks of each are dealt to tasks in turn, since later blocks attend to more steps, and
/// the tasks' sums are added in order. The number of tasks depends only on shapes. Returns the gradient of the bias.
fn backward_item<F: Float>(
    item: &Item<F>,
    call: &Backward<F>,
    [mut gq, mut gk, mut gv]: [Vec<&mut [F]>; 3],
    scratch: &mut BackwardScratch<F>,
) -> Vec<F> {
    let (op, BackwardScratch { past, work }) = (item.op, scratch);
    let parts = past.iter_mut().zip(tiles(op));
    parts.in_parallel(|(past, steps)| load(item, &steps, past));
    let tasks = MANY.div_ceil(op.batch * op.heads).min(item.blocks());
    let mut dealt: Vec<_> = (0..tasks).map(|_| Vec::new()).collect();
    for (index, gq) in gq.chunks_mut(BLOCK).enumerate() {
        dealt[index % tasks].push((index, gq));
    }
    let mut gb = vec![F::zero(); op.distances()];
    let mut add = |sums: &BlockSums<F>| {
        add_sums(sums, [&mut gk, &mut gv]);
        add_chunk(&mut gb, &sums.bias);
    };
    let run = |blocks: Vec<(usize, &mut [&mut [F]])>, work: &mut BlockWork<F>| {
        for (index, gq) in blocks {
            backward_block(&item.block(index), call, past, gq, work);
        }
    };
    match <[_; 1]>::try_from(dealt) {
        Ok([blocks]) => {
            work.sums.clear();
            run(blocks, work);
            add(&work.sums);
        }
        Err(dealt) => {
            let sums = dealt.into_iter().map_in_parallel(|blocks| {
                let mut work = BlockWork::new(op);
                run(blocks, &mut work);
                work.sums
            });
            sums.iter().for_each(add);
        }
    }
    gb
}

/// Scratch memory of a thread.
struct BackwardScratch<F> {
    past: Vec<BackwardTile<F>>,
    work: BlockWork<F>,
}

impl<F: Float> BackwardScratch<F> {
    fn new(op: &CausalAttention) -> Self {
        Self { past: by_tile(op, |steps| BackwardTile::zeros(op, steps)), work: BlockWork::new(op) }
    }
}

/// The keys and values of a tile in the layouts that every block reads.
struct BackwardTile<F> {
    keys: Matrix<F>,
    keys_t: Matrix<F>,
    values_t: Matrix<F>,
}

impl<F: Float> BackwardTile<F> {
    fn zeros(op: &CausalAttention, steps: usize) -> Self {
        let transposed = |width: usize| Matrix::zeros(width.next_multiple_of(LANES), steps);
        Self {
            keys: Matrix::zeros(steps, op.key_width),
            keys_t: transposed(op.key_width),
            values_t: transposed(op.value_width),
        }
    }
}

#[simd]
fn load<F: Float>(item: &Item<F>, steps: &Range<usize>, past: &mut BackwardTile<F>) {
    item.keys(steps).copy_to(&mut past.keys);
    item.keys(steps).transpose_to(&mut past.keys_t);
    item.values(steps).transpose_to(&mut past.values_t);
}

/// The gradients of keys, of values, both by tile, and of biases, summed over blocks.
struct BlockSums<F> {
    k: Vec<Matrix<F>>,
    v: Vec<Matrix<F>>,
    bias: Vec<F>,
}

impl<F: Float> BlockSums<F> {
    fn zeros(op: &CausalAttention) -> Self {
        let zeros = |width: usize| by_tile(op, |steps| Matrix::zeros(steps, width));
        Self { k: zeros(op.key_width), v: zeros(op.value_width), bias: vec![F::zero(); op.distances()] }
    }

    fn clear(&mut self) {
        for sums in self.k.iter_mut().chain(&mut self.v) {
            sums.clear();
        }
        self.bias.fill(F::zero());
    }
}

/// Adds the gradients of keys and values.
#[simd]
fn add_sums<F: Float>(sums: &BlockSums<F>, [gk, gv]: [&mut [&mut [F]]; 2]) {
    for (sums, to) in [(&sums.k, gk), (&sums.v, gv)] {
        for (sums, to) in sums.iter().zip(to.chunks_mut(TILE)) {
            sums.add_rows(to);
        }
    }
}

/// Sums, and buffers that a block writes before it reads them.
struct BlockWork<F> {
    sums: BlockSums<F>,
    rows: BlockRows<F>,
    /// The weights of a tile.
    p: Matrix<F>,
    /// The gradients of the weights, then of the scores.
    gs: Matrix<F>,
    /// The gradients of the queries so far.
    gq: Matrix<F>,
    /// The dropout mask of a row.
    factors: [Lanes<F>; TILE / LANES],
}

/// Results of the forward pass for the rows of a block, and the gradients of the block's results.
struct BlockRows<F> {
    q: Matrix<F>,
    go: Matrix<F>,
    /// Reciprocal of each row's sum of weights; 1 for [`Weights::Plain`].
    reciprocals: [F; BLOCK],
    /// Largest score of each row.
    tops: [F; BLOCK],
    /// Products of results and their gradients, 0 for [`Weights::Plain`]; `None` if the sums that they replace are
    /// within one tile.
    dots: Option<[F; BLOCK]>,
}

impl<F: Float> BlockWork<F> {
    fn new(op: &CausalAttention) -> Self {
        let (rows, len) = (BLOCK.min(op.rows), TILE.min(op.len));
        Self {
            sums: BlockSums::zeros(op),
            rows: BlockRows {
                q: Matrix::zeros(rows, op.key_width),
                go: Matrix::zeros(rows, op.value_width),
                reciprocals: [F::one(); BLOCK],
                tops: [F::zero(); BLOCK],
                dots: None,
            },
            p: Matrix::zeros(rows, len),
            gs: Matrix::zeros(rows, len),
            gq: Matrix::zeros(rows, op.key_width),
            factors: [splat(F::one()); TILE / LANES],
        }
    }
}

impl<F: Float> BlockRows<F> {
    #[inline(always)]
    fn load(&mut self, block: &QueryBlock<F>, call: &Backward<F>) {
        let out = call.only();
        let go = block.results(out.grad);
        block.queries(&mut self.q);
        go.copy_to(&mut self.go);
        let found = [&mut self.reciprocals, &mut self.tops].into_iter();
        for (to, saved) in found.zip(call.saved) {
            to[..block.len()].copy_from_slice(block.of(saved));
        }
        let plain = block.op().weights == Weights::Plain;
        self.dots = (plain || block.tiles().len() > 1).then_some([F::zero(); BLOCK]);
        if let Some(dots) = self.dots.as_mut().filter(|_| !plain) {
            let o = block.results(out.value).each();
            for (to, (o, go)) in dots.iter_mut().zip(o.zip(go.each())) {
                *to = dot(o, go);
            }
        }
    }
}

#[simd]
fn backward_block<F: Float>(
    block: &QueryBlock<F>,
    call: &Backward<F>,
    past: &[BackwardTile<F>],
    to: &mut [&mut [F]],
    work: &mut BlockWork<F>,
) {
    let (op, count) = (block.op(), block.len());
    work.rows.load(block, call);
    work.gq.clear();
    for at in block.tiles() {
        let (tile, past) = (block.tile(at), &past[at]);
        let BlockWork { rows, p, gs, .. } = &mut *work;
        gs.set_product(0..count, &rows.go, &past.values_t, |top| (0..op.value_width, tile.panel(top)));
        tile.hide(gs, F::zero());
        tile.scores(&rows.q, &past.keys_t, p);
        for i in 0..count {
            differentiate(&tile, i, work);
        }
        let BlockWork { sums, rows, p, gs, gq, .. } = &mut *work;
        if op.weights == Weights::LinearNormalised {
            tile.hide(gs, F::zero());
        }
        if !sums.bias.is_empty() {
            for i in 0..count {
                tile.add_by_distance(i, &gs.row(i)[tile.span(i)], &mut sums.bias);
            }
        }
        let by = |first| tile.attending(first);
        sums.v[at].add_transposed_product(0..tile.len(), p, &rows.go, by);
        sums.k[at].add_transposed_product(0..tile.len(), gs, &rows.q, by);
        gq.add_product(0..count, gs, &past.keys, |top| (tile.panel(top), 0..op.key_width));
    }
    work.gq.scale(op.scale());
    work.gq.copy_rows(to);
}

/// Turns the scores of row `i` in a tile into weights with dropout, and the gradients of the weights into those of the
/// scores.
#[inline(always)]
fn differentiate<F: Float>(tile: &PairTile<F>, i: usize, work: &mut BlockWork<F>) {
    let BlockWork { rows, p, gs, factors, .. } = work;
    let groups = tile.groups(i);
    let (p, gs) = (p.groups_mut(i, groups.clone()), gs.groups_mut(i, groups.clone()));
    let (reciprocal, top) = (rows.reciprocals[i], rows.tops[i]);
    let weights = tile.op().weights;
    if weights == Weights::Softmax {
        for p in p.iter_mut() {
            *p = exponentials(p, top);
        }
    }
    for p in p.iter_mut() {
        *p = each(|c| p[c] * reciprocal);
    }
    let factors = &mut factors[..p.len()];
    let masked = tile.op().mask.is_some();
    if masked {
        factors.fill(splat(F::one()));
        tile.mask_row(i, factors);
        for (gs, factor) in gs.iter_mut().zip(&*factors) {
            *gs = each(|c| gs[c] * factor[c]);
        }
    }
    let dot = match rows.dots {
        Some(dots) => dots[i],
        None => dot(p.as_flattened(), gs.as_flattened()),
    };
    for (p, gs) in p.iter().zip(gs.iter_mut()) {
        if weights == Weights::Softmax {
            *gs = each(|c| (gs[c] - dot) * p[c]);
        } else {
            *gs = each(|c| (gs[c] - dot) * reciprocal);
        }
    }
    if masked {
        for (p, factor) in p.iter_mut().zip(factors) {
            *p = each(|c| p[c] * factor[c]);
        }
    }
}
