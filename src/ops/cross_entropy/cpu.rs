//! Passes on the CPU.

use super::CrossEntropy;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::gemm::{product, product_by, Right, View};
use crate::runtime::lanes::{add_chunk, blank, largest, map_chunks, total};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Numbers per task of the sum of the tiles' gradients, so that all of them stay in cache.
const SUM: usize = 1 << 12;
/// Rows of logits that exist at one time: enough to make the products efficient.
const BLOCK: usize = 256;
/// Classes per task. A tile, the logits of a block of rows and a task's classes, stays in the
/// task's cache.
const CLASSES: usize = 512;
/// Rows per task that joins the statistics of tiles.
const ROWS: usize = 32;

impl CpuOp for CrossEntropy {
    /// Saves the gradients of the loss, which cost little while the logits exist.
    fn forward<F: Float>(&self, Forward { ins, tracked }: Forward<F>) -> Vec<Vec<F>> {
        let (weight, width) = (ins[1], self.width);
        let scale = F::of(1.0 / self.targets.len() as f64);
        let of = |x: &[F]| zeros(if tracked { x.len() } else { 0 });
        let (mut gh, mut gw) = (of(ins[0]), of(weight));
        let (mut correct, mut loss) = (Vec::new(), 0.0);
        let mut logits = vec![blank::<F>(); BLOCK.min(self.targets.len()) * self.classes];
        let blocks = ins[0].chunks(BLOCK * width);
        for (block, (hidden, targets)) in blocks.zip(self.targets.chunks(BLOCK)).enumerate() {
            let logits = &mut logits[..targets.len() * self.classes];
            let found: Vec<_> = tiles(logits, targets.len())
                .zip(weight.chunks(CLASSES * width))
                .map_in_parallel(|((first, tile), weight)| self.fill((hidden, weight), targets, first, tile));
            let rows = RowStatistics::of(&found, targets.len());
            loss += rows.loss.iter().map(|loss| loss.to_f64()).sum::<f64>();
            correct.extend(&rows.correct);
            if !tracked {
                continue;
            }
            let of_hidden = Right::of(View::new(hidden, width));
            let parts: Vec<Vec<F>> = tiles(logits, targets.len())
                .zip(weight.chunks(CLASSES * width))
                .zip(gw.chunks_mut(CLASSES * width))
                .map_in_parallel(|(((first, tile), weight), gw)| {
                    slopes(tile, &rows, targets, first, scale);
                    let slopes = View::new(tile, weight.len() / width);
                    product_by(gw, width, slopes.t(), &of_hidden, true);
                    let mut gh = vec![F::zero(); hidden.len()];
                    product(&mut gh, width, slopes, View::new(weight, width), false);
                    gh
                });
            let gh = &mut gh[block * BLOCK * width..][..hidden.len()];
            add_up(&parts, gh);
        }
        let loss = vec![F::of(loss / self.targets.len() as f64)];
        vec![loss, correct, gh, gw]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let scale = call.outs[0].map_or(F::zero(), |loss| loss.grad[0]);
        let scaled = |grad: &&[F]| {
            map_chunks(grad, [SUM; 2], |from, to| {
                for (to, &from) in to.iter_mut().zip(from) {
                    *to = from * scale;
                }
            })
        };
        call.saved.iter().map(scaled).collect()
    }
}

impl CrossEntropy {
    /// Fills a tile with e^{x - top} for its classes from `first` on, and returns the statistics of
    /// its rows.
    fn fill<F: Float>(
        &self,
        (hidden, weight): (&[F], &[F]),
        targets: &[u32],
        first: usize,
        tile: &mut [F],
    ) -> Vec<RowStats<F>> {
        let classes = weight.len() / self.width;
        let (hidden, weight) = (View::new(hidden, self.width), View::new(weight, self.width));
        product(tile, classes, hidden, weight.t(), false);
        let mut found = vec![RowStats::default(); targets.len()];
        exponentiate(tile, targets, first, &mut found);
        found
    }
}

/// Writes the [`RowStatistics`] of the rows from `first` on, joined over all tiles.
#[simd]
fn join<F: Float>(tiles: &[Vec<RowStats<F>>], first: usize, (loss, correct, factors): (&mut [F], &mut [F], &mut [F])) {
    let rows = loss.iter_mut().zip(correct);
    for (i, ((loss, correct), factors)) in rows.zip(factors.chunks_mut(tiles.len())).enumerate() {
        let row = first + i;
        let mut top = tiles[0][row].top;
        for tile in tiles {
            top = top.at_least(tile[row].top);
        }
        let mut sum = F::zero();
        let (mut target, mut leads, mut beaten) = (F::zero(), false, false);
        for (tile, factor) in tiles.iter().zip(&mut *factors) {
            let found = tile[row];
            *factor = (found.top - top).exp();
            sum += found.sum * *factor;
            if let Some((logit, first)) = found.target {
                target = logit;
                leads = first && found.top == top && !beaten;
            }
            beaten |= found.top == top;
        }
        let inverse = F::one() / sum;
        for factor in factors {
            *factor *= inverse;
        }
        *loss = sum.ln() + top - target;
        *correct = if leads { F::one() } else { F::zero() };
    }
}

/// Replaces the logits of `tile` by e^{x - top}, row by row.
#[simd]
fn exponentiate<F: Float>(tile: &mut [F], targets: &[u32], first: usize, found: &mut [RowStats<F>]) {
    let rows = tile.chunks_exact_mut(tile.len() / targets.len());
    for ((x, &target), found) in rows.zip(targets).zip(found) {
        let top = largest(x);
        let inside = (target as usize).wrapping_sub(first);
        found.target = x.get(inside).map(|&logit| {
            let leads = logit == top && !x[..inside].contains(&top);
            (logit, leads)
        });
        for x in x.iter_mut() {
            *x = (*x - top).exp();
        }
        (found.top, found.sum) = (top, total([x], |[x]| x));
    }
}

/// Replaces the exponentials of `tile` by the gradient of the mean loss.
#[simd]
fn slopes<F: Float>(tile: &mut [F], of: &RowStatistics<F>, targets: &[u32], first: usize, scale: F) {
    let rows = tile.chunks_exact_mut(tile.len() / targets.len());
    let factors = of.factors.chunks(of.factors.len() / targets.len());
    for ((x, &target), factors) in rows.zip(targets).zip(factors) {
        let factor = factors[first / CLASSES] * scale;
        for x in x.iter_mut() {
            *x *= factor;
        }
        if let Some(x) = x.get_mut((target as usize).wrapping_sub(first)) {
            *x -= scale;
        }
    }
}

/// Statistics of rows over all tiles: their losses, whether their targets come first, and, row by row, the factor from
/// each tile's exponentials to probabilities.
struct RowStatistics<F> {
    loss: Vec<F>,
    correct: Vec<F>,
    factors: Vec<F>,
}

/// Statistics of one row of a tile: its largest logit, Σ e^{x - top}, and, if the target is among the tile's classes,
/// its logit and whether it is the first of the largest.
#[derive(Clone, Copy, Default)]
struct RowStats<F> {
    top: F,
    sum: F,
    target: Option<(F, bool)>,
}

impl<F: Float> RowStatistics<F> {
    fn of(tiles: &[Vec<RowStats<F>>], count: usize) -> Self {
        let mut rows = Self { loss: zeros(count), correct: zeros(count), factors: zeros(count * tiles.len()) };
        (rows.loss.chunks_mut(ROWS).zip(rows.correct.chunks_mut(ROWS)))
            .zip(rows.factors.chunks_mut(ROWS * tiles.len()))
            .enumerate()
            .in_parallel(|(i, ((loss, correct), factors))| {
                join(tiles, i * ROWS, (loss, correct, factors));
            });
        rows
    }
}

/// The tiles of `logits` for `rows` rows, each with the index of its first class.
fn tiles<F: Float>(logits: &mut [F], rows: usize) -> impl Iterator<Item = (usize, &mut [F])> {
    let tiles = logits.chunks_mut(rows * CLASSES).enumerate();
    tiles.map(|(i, tile)| (i * CLASSES, tile))
}

/// Adds the tiles' gradients to `sum`, which is zero, in their order.
fn add_up<F: Float>(parts: &[Vec<F>], sum: &mut [F]) {
    sum.chunks_mut(SUM).enumerate().in_parallel(|(i, sum)| {
        for part in parts {
            add_chunk(sum, &part[i * SUM..][..sum.len()]);
        }
    });
}
