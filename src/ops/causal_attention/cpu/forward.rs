//! Forward pass, one block of rows at a time, tile by tile. The softmax is taken over the steps so far; when a later
//! tile raises the largest score, earlier results are rescaled (Milakov & Gimelshein 2018).

use super::super::{CausalAttention, Weights};
use super::tiles::{by_tile, exponentials, tiles, Item, PairTile, QueryBlock, BLOCK, MANY, TILE};
use crate::runtime::float::Float;
use crate::runtime::lanes::{largest, splat, total, LANES};
use crate::runtime::matrix::Matrix;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;
use std::ops::Range;

/// Returns the result and, for the backward pass, one number per row: the reciprocal of the sum of the weights, unless
/// they are [`Weights::Plain`]; and for a softmax its largest score.
pub(super) fn forward<F: Float>(op: &CausalAttention, ins: &[&[F]]) -> Vec<Vec<F>> {
    let zeros = |width: usize| zeros(op.batch * op.heads * op.rows * width);
    let mut outs = [zeros(op.value_width), zeros(1), zeros(1)];
    let [o, reciprocals, tops] = &mut outs;
    let rows = reciprocals.chunks_mut(op.rows);
    op.rows_by_item(o, op.rows, op.value_width)
        .into_iter()
        .zip(rows.zip(tops.chunks_mut(op.rows)))
        .enumerate()
        .in_parallel_with(
            || ForwardScratch::new(op),
            |scratch, (i, (o, (reciprocals, tops)))| {
                forward_item(&Item::of(op, ins, i), o, [reciprocals, tops], scratch);
            },
        );
    let told = match op.weights {
        Weights::Plain => 1,
        Weights::LinearNormalised => 2,
        Weights::Softmax => 3,
    };
    outs.into_iter().take(told).collect()
}

/// Scratch memory of a thread.
struct ForwardScratch<F> {
    past: Vec<ForwardTile<F>>,
    weighed: Weighed<F>,
}

impl<F: Float> ForwardScratch<F> {
    fn new(op: &CausalAttention) -> Self {
        Self { past: by_tile(op, |steps| ForwardTile::zeros(op, steps)), weighed: Weighed::new(op) }
    }
}

/// Writes the result, reciprocals and largest scores of an item.
fn forward_item<F: Float>(
    item: &Item<F>,
    mut o: Vec<&mut [F]>,
    [reciprocals, tops]: [&mut [F]; 2],
    scratch: &mut ForwardScratch<F>,
) {
    let (op, ForwardScratch { past, weighed }) = (item.op, scratch);
    let parts = past.iter_mut().zip(tiles(op));
    parts.in_parallel(|(past, steps)| load(item, &steps, past));
    let rows = reciprocals.chunks_mut(BLOCK);
    let blocks = o.chunks_mut(BLOCK).zip(rows.zip(tops.chunks_mut(BLOCK))).enumerate();
    let run = |weighed: &mut Weighed<F>, (index, (o, (reciprocals, tops)))| {
        forward_block(&item.block(index), past, weighed, o, [reciprocals, tops]);
    };
    if op.batch * op.heads < MANY {
        blocks.in_parallel_with(|| Weighed::new(op), run);
    } else {
        blocks.for_each(|block| run(weighed, block));
    }
}

/// The keys and values of a tile in the layouts that every block reads.
struct ForwardTile<F> {
    keys_t: Matrix<F>,
    values: Matrix<F>,
}

impl<F: Float> ForwardTile<F> {
    fn zeros(op: &CausalAttention, steps: usize) -> Self {
        Self {
            keys_t: Matrix::zeros(op.key_width.next_multiple_of(LANES), steps),
            values: Matrix::zeros(steps, op.value_width),
        }
    }
}

#[simd]
fn load<F: Float>(item: &Item<F>, steps: &Range<usize>, past: &mut ForwardTile<F>) {
    item.keys(steps).transpose_to(&mut past.keys_t);
    item.values(steps).copy_to(&mut past.values);
}

/// The queries of a block, the weights of a tile, and the results of the block so far.
struct Weighed<F> {
    q: Matrix<F>,
    p: Matrix<F>,
    o: Matrix<F>,
    /// Largest score of each row.
    tops: [F; BLOCK],
    /// Sum of the weights of each row.
    sums: [F; BLOCK],
}

impl<F: Float> Weighed<F> {
    fn new(op: &CausalAttention) -> Self {
        let rows = BLOCK.min(op.rows);
        Self {
            q: Matrix::zeros(rows, op.key_width),
            p: Matrix::zeros(rows, TILE.min(op.len)),
            o: Matrix::zeros(rows, op.value_width),
            tops: [F::zero(); BLOCK],
            sums: [F::zero(); BLOCK],
        }
    }

    /// Turns the scores of row `i` in a tile into weights that have not been normalised yet, and rescales the row's
    /// previous results to the new largest score.
    #[inline(always)]
    fn weigh(&mut self, weights: Weights, tile: &PairTile<F>, i: usize) {
        let row = self.p.groups_mut(i, tile.groups(i));
        if weights == Weights::Plain || row.is_empty() {
            return;
        }
        if weights == Weights::LinearNormalised {
            self.sums[i] += total([row.as_flattened()], |[x]| x);
            return;
        }
        let before = self.tops[i];
        let top = before.at_least(largest(row.as_flattened()));
        if top == F::of(f64::NEG_INFINITY) {
            // The pattern hides every step so far.
            row.fill(splat(F::zero()));
            return;
        }
        for x in row.iter_mut() {
            *x = exponentials(x, top);
        }
        let sum = total([row.as_flattened()], |[x]| x);
        self.tops[i] = top;
        if top != before && before != F::of(f64::NEG_INFINITY) {
            let share = (before - top).exp();
            self.sums[i] *= share;
            for o in self.o.row_mut(i) {
                *o *= share;
            }
        }
        self.sums[i] += sum;
    }
}

#[simd]
fn forward_block<F: Float>(
    block: &QueryBlock<F>,
    past: &[ForwardTile<F>],
    weighed: &mut Weighed<F>,
    o: &mut [&mut [F]],
    [reciprocals, tops]: [&mut [F]; 2],
) {
    let op = block.op();
    block.queries(&mut weighed.q);
    weighed.tops.fill(F::of(f64::NEG_INFINITY));
    weighed.sums.fill(F::zero());
    weighed.o.clear();
    for at in block.tiles() {
        add_tile(op, &block.tile(at), &past[at], weighed);
    }
    if op.weights != Weights::Plain {
        for (i, reciprocal) in reciprocals.iter_mut().enumerate() {
            *reciprocal = F::one() / weighed.sums[i];
            for o in weighed.o.row_mut(i) {
                *o *= *reciprocal;
            }
        }
    }
    tops.copy_from_slice(&weighed.tops[..tops.len()]);
    weighed.o.copy_rows(o);
}

/// Adds the values of a tile, weighed.
#[inline(always)]
fn add_tile<F: Float>(op: &CausalAttention, tile: &PairTile<F>, past: &ForwardTile<F>, weighed: &mut Weighed<F>) {
    tile.scores(&weighed.q, &past.keys_t, &mut weighed.p);
    // Loops are used instead of closures: a closure that is not inlined is compiled only for the lowest instruction
    // set.
    for i in 0..tile.rows() {
        weighed.weigh(op.weights, tile, i);
        tile.mask_row(i, weighed.p.groups_mut(i, tile.groups(i)));
    }
    let bounds = |top| (tile.panel(top), 0..op.value_width);
    let Weighed { p, o, .. } = weighed;
    o.add_product(0..tile.rows(), p, &past.values, bounds);
}
