//! Cross entropy of a linear head: loss and gradients are computed for some rows of logits at a
//! time. The full (R, V) logits, many times larger than everything else in a small model, are never
//! stored.

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::gemm::{product, Transposed, View};
use crate::runtime::lanes::{add_chunk, blank, largest, map_chunks, total};
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::zeros;
use candle_core::{bail, Result, Shape, Tensor, D};
use dsf_simd::simd;

mod launch;

/// Rows of logits that exist at one time: enough to make the products efficient.
const BLOCK: usize = 256;
/// Classes per task. A tile, the logits of a block of rows and a task's classes, stays in the
/// task's cache.
const CLASSES: usize = 512;
/// Numbers per task of the sum of the tiles' gradients, so that all of them stay in cache.
const SUM: usize = 1 << 12;
/// Rows per task that joins the statistics of tiles.
const ROWS: usize = 32;

/// The results of [`cross_entropy`].
pub struct Classified {
    /// The mean over rows of ln Σ_v e^{x_v} - x_target, a scalar.
    pub loss: Tensor,
    /// (R): 1 where the target is the first of the classes with the largest logit, else 0. Without
    /// gradient.
    pub correct: Tensor,
}

/// The cross entropy of the classes `targets` under the logits x = h W^T.
///
/// `hidden`: R rows (.., d); `weight`: (V, d); `targets`: (R) of u32 below V. Kernels return f32
/// for any type of the hidden layer.
///
/// Memory besides inputs and gradients: on the CPU the logits of 256 rows, and the gradients of
/// those rows once for every 512 classes, which is 52 MB and 52 MB at V = 50,304 and d = 512.
/// Kernels hold the logits of as many rows as fit into 32 MiB, or up to 2 d rows within 512 MiB if
/// that saves passes over the gradient of the weight: 309 MB in bf16 for the sizes above. The
/// gradients of weight and hidden layer are saved from the forward pass to the backward pass, which
/// scales them into new tensors.
pub fn cross_entropy(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Classified> {
    let op = CrossEntropy::check(hidden, weight, targets)?;
    if !runs_on(hidden) {
        return reference(hidden, weight, targets);
    }
    let mut outs = apply(op, &[hidden, weight])?.into_iter();
    match (outs.next(), outs.next()) {
        (Some(loss), Some(correct)) => Ok(Classified { loss, correct: correct.detach() }),
        _ => unreachable!("two outputs"),
    }
}

fn reference(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Classified> {
    let hidden = hidden.reshape((targets.dim(0)?, ()))?;
    let logits = hidden.matmul(&weight.t()?)?;
    let target = logits.gather(&targets.unsqueeze(1)?, 1)?;
    let largest = logits.max_keepdim(D::Minus1)?.detach();
    let sum = logits.broadcast_sub(&largest)?.exp()?.sum_keepdim(D::Minus1)?;
    let correct = logits.detach().argmax(D::Minus1)?.eq(targets)?;
    Ok(Classified { loss: ((sum.log()? + largest)? - target)?.mean_all()?, correct: correct.to_dtype(hidden.dtype())? })
}

struct CrossEntropy {
    width: usize,
    classes: usize,
    ids: Tensor,
    /// The targets on the CPU; empty for targets on a GPU.
    targets: Vec<u32>,
}

impl CrossEntropy {
    fn check(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Self> {
        let (leading, width) = shape::rows(Self::NAME, ("hidden", hidden))?;
        let rows: usize = leading.iter().product();
        let [classes, _] = shape::dims(Self::NAME, ("weight", weight))?;
        let by = ("hidden", hidden);
        shape::parameter(Self::NAME, ("weight", weight), by, &[classes, width])?;
        if targets.dims() != [rows] {
            bail!(
                "cross_entropy: targets has shape {:?}, but hidden of shape {:?} asks for [{rows}]",
                targets.dims(),
                hidden.dims()
            );
        }
        let ids = targets.contiguous()?;
        let targets = shape::on_the_cpu(&ids)?;
        if let Some(row) = targets.iter().position(|&id| id as usize >= classes) {
            bail!("cross_entropy: target {} in row {row}, but there are {classes} classes", targets[row]);
        }
        Ok(Self { width, classes, ids, targets })
    }

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
        let weight = Transposed::of(weight, self.width);
        let hidden = View::new(hidden, self.width);
        product(tile, classes, hidden, weight.view(), false);
        let mut found = vec![RowStats::default(); targets.len()];
        exponentiate(tile, targets, first, &mut found);
        found
    }
}

/// Statistics of one row of a tile: its largest logit, Σ e^{x - top}, and, if the target is among the tile's classes,
/// its logit and whether it is the first of the largest.
#[derive(Clone, Copy, Default)]
struct RowStats<F> {
    top: F,
    sum: F,
    target: Option<(F, bool)>,
}

/// Statistics of rows over all tiles: their losses, whether their targets come first, and, row by row, the factor from
/// each tile's exponentials to probabilities.
struct Rows<F> {
    loss: Vec<F>,
    correct: Vec<F>,
    factors: Vec<F>,
}

impl<F: Float> Rows<F> {
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

/// Fills some [`Rows`], from row `first` on.
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

/// The tiles of `logits` for `rows` rows, each with the index of its first class.
fn tiles<F: Float>(logits: &mut [F], rows: usize) -> impl Iterator<Item = (usize, &mut [F])> {
    let tiles = logits.chunks_mut(rows * CLASSES).enumerate();
    tiles.map(|(i, tile)| (i * CLASSES, tile))
}

impl FusedOp for CrossEntropy {
    const NAME: &'static str = "cross_entropy";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![Shape::from(()), self.ids.shape().clone()]
    }

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
            let rows = Rows::of(&found, targets.len());
            loss += rows.loss.iter().map(|loss| loss.to_f64()).sum::<f64>();
            correct.extend(&rows.correct);
            if !tracked {
                continue;
            }
            let parts: Vec<Vec<F>> = tiles(logits, targets.len())
                .zip(weight.chunks(CLASSES * width))
                .zip(gw.chunks_mut(CLASSES * width))
                .map_in_parallel(|(((first, tile), weight), gw)| {
                    slopes(tile, &rows, targets, first, scale);
                    let slopes = View::new(tile, weight.len() / width);
                    product(gw, width, slopes.t(), View::new(hidden, width), true);
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

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.launch_tiles(call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_scaled(call)
    }
}

/// Adds the tiles' gradients to `sum`, which is zero, in their order.
fn add_up<F: Float>(parts: &[Vec<F>], sum: &mut [F]) {
    sum.chunks_mut(SUM).enumerate().in_parallel(|(i, sum)| {
        for part in parts {
            add_chunk(sum, &part[i * SUM..][..sum.len()]);
        }
    });
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
fn slopes<F: Float>(tile: &mut [F], of: &Rows<F>, targets: &[u32], first: usize, scale: F) {
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

#[cfg(test)]
mod tests;
