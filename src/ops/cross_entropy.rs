//! Cross entropy of a linear head: loss and gradients from some rows of logits at a time. The
//! (R, V) logits, many times larger than everything else in a small model, never exist.

use super::float::Float;
use super::fused::{apply, runs_on, Backward, Forward, FusedOp};
use super::gemm::{product, View};
use super::lanes::{largest, total};
use super::shape;
use candle_core::{bail, Result, Shape, Tensor, D};
use multiversion::multiversion;
use rayon::prelude::*;

/// Rows whose logits exist at one time: enough to make the products efficient.
const BLOCK: usize = 128;
/// Rows per task.
const ROWS: usize = 16;
/// Classes per task.
const CLASSES: usize = 512;

/// What [`cross_entropy`] finds.
pub struct Classified {
    /// The mean over rows of ln Σ_v e^{x_v} - x_target, a scalar.
    pub loss: Tensor,
    /// (R): 1 where no class has a larger logit than the target, and none before it one as large.
    /// Without gradient.
    pub right: Tensor,
}

/// The loss of the classes `targets` under the logits x = h W^T.
///
/// `hidden`: (R, d); `weight`: (V, d); `targets`: (R) of u32 below V.
pub fn cross_entropy(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Classified> {
    let op = CrossEntropy::check(hidden, weight, targets)?;
    if !runs_on(hidden) {
        return reference(hidden, weight, targets);
    }
    let mut outs = apply(op, &[hidden, weight])?.into_iter();
    match (outs.next(), outs.next()) {
        (Some(loss), Some(right)) => Ok(Classified {
            loss,
            right: right.detach(),
        }),
        _ => unreachable!("two outputs"),
    }
}

fn reference(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Classified> {
    let logits = hidden.matmul(&weight.t()?)?;
    let target = logits.gather(&targets.unsqueeze(1)?, 1)?;
    let largest = logits.max_keepdim(D::Minus1)?.detach();
    let sum = logits
        .broadcast_sub(&largest)?
        .exp()?
        .sum_keepdim(D::Minus1)?;
    let right = logits.detach().argmax(D::Minus1)?.eq(targets)?;
    Ok(Classified {
        loss: ((sum.log()? + largest)? - target)?.mean_all()?,
        right: right.to_dtype(hidden.dtype())?,
    })
}

struct CrossEntropy {
    width: usize,
    classes: usize,
    targets: Vec<u32>,
}

impl CrossEntropy {
    fn check(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Self> {
        let [rows, width] = shape::dims(Self::NAME, ("hidden", hidden))?;
        let [classes, _] = shape::dims(Self::NAME, ("weight", weight))?;
        let by = ("hidden", hidden);
        shape::expect(Self::NAME, ("weight", weight), by, &[classes, width])?;
        if targets.dims() != [rows] {
            bail!(
                "cross_entropy: targets has shape {:?}, but hidden of shape {:?} asks for [{rows}]",
                targets.dims(),
                hidden.dims()
            );
        }
        let targets: Vec<u32> = targets.to_vec1()?;
        if let Some(row) = targets.iter().position(|&id| id as usize >= classes) {
            bail!(
                "cross_entropy: target {} in row {row}, but there are {classes} classes",
                targets[row]
            );
        }
        Ok(Self {
            width,
            classes,
            targets,
        })
    }

    /// Writes the logits of `hidden` rows.
    fn set_logits<F: Float>(&self, hidden: &[F], weight: &[F], logits: &mut [F]) {
        logits
            .par_chunks_mut(ROWS * self.classes)
            .zip(hidden.par_chunks(ROWS * self.width))
            .for_each(|(logits, hidden)| {
                for first in (0..self.classes).step_by(CLASSES) {
                    let last = (first + CLASSES).min(self.classes);
                    let weight = &weight[first * self.width..last * self.width];
                    let hidden = View::new(hidden, self.width);
                    let weight = View::new(weight, self.width).t();
                    product(&mut logits[first..], self.classes, hidden, weight, false);
                }
            });
    }

    /// Adds the gradients that `slopes`, the gradient of a block's logits, sends back.
    fn add_grads<F: Float>(
        &self,
        slopes: &[F],
        (hidden, weight): (&[F], &[F]),
        (gh, gw): (&mut [F], &mut [F]),
    ) {
        let (width, classes) = (self.width, self.classes);
        gh.par_chunks_mut(ROWS * width)
            .zip(slopes.par_chunks(ROWS * classes))
            .for_each(|(gh, slopes)| {
                let weight = View::new(weight, width);
                product(gh, width, View::new(slopes, classes), weight, false);
            });
        gw.par_chunks_mut(CLASSES * width)
            .enumerate()
            .for_each(|(i, gw)| {
                let slopes = View::strided(&slopes[i * CLASSES..], gw.len() / width, classes);
                product(gw, width, slopes.t(), View::new(hidden, width), true);
            });
    }
}

impl FusedOp for CrossEntropy {
    const NAME: &'static str = "cross_entropy";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![Shape::from(()), Shape::from(self.targets.len())]
    }

    /// Keeps the gradients of the loss: they come almost for free while the logits are at hand.
    fn forward<F: Float>(&self, Forward { ins, tracked }: Forward<F>) -> Vec<Vec<F>> {
        let (hidden, weight) = (ins[0], ins[1]);
        let rows = self.targets.len();
        let (mut losses, mut right) = (vec![F::zero(); rows], vec![F::zero(); rows]);
        let grads = |like: &[F]| vec![F::zero(); if tracked { like.len() } else { 0 }];
        let (mut gh, mut gw) = (grads(hidden), grads(weight));
        let mut logits = vec![F::zero(); BLOCK.min(rows) * self.classes];
        let share = F::from_f64(1.0 / rows as f64);
        for first in (0..rows).step_by(BLOCK) {
            let block = first..(first + BLOCK).min(rows);
            let hidden = &hidden[block.start * self.width..block.end * self.width];
            let logits = &mut logits[..block.len() * self.classes];
            self.set_logits(hidden, weight, logits);
            let share = tracked.then_some(share);
            logits
                .par_chunks_mut(ROWS * self.classes)
                .zip(self.targets[block.clone()].par_chunks(ROWS))
                .zip(losses[block.clone()].par_chunks_mut(ROWS))
                .zip(right[block.clone()].par_chunks_mut(ROWS))
                .for_each(|(((x, targets), losses), right)| {
                    classify(x, targets, share, losses, right)
                });
            if tracked {
                let gh = &mut gh[block.start * self.width..block.end * self.width];
                self.add_grads(logits, (hidden, weight), (gh, &mut gw));
            }
        }
        let sum: f64 = losses.iter().map(|loss| loss.to_f64()).sum();
        let loss = vec![F::from_f64(sum / rows as f64)];
        vec![loss, right, gh, gw]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let scale = call.outs[0].map_or(F::zero(), |loss| loss.grad[0]);
        let scaled = |grad: &Vec<F>| grad.iter().map(|&g| g * scale).collect();
        call.kept.iter().map(scaled).collect()
    }
}

/// Loss and correctness of some rows; their logits become `share` times the gradient of the loss.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn classify<F: Float>(
    logits: &mut [F],
    targets: &[u32],
    share: Option<F>,
    losses: &mut [F],
    right: &mut [F],
) {
    let rows = logits.chunks_exact_mut(logits.len() / targets.len());
    let found = losses.iter_mut().zip(right);
    for ((x, &target), (loss, right)) in rows.zip(targets).zip(found) {
        let (target, top) = (target as usize, largest(x));
        let of_target = x[target];
        if of_target == top && !x[..target].contains(&top) {
            *right = F::one();
        }
        for x in x.iter_mut() {
            *x = (*x - top).exp();
        }
        let sum = total([x], |[x]| x);
        *loss = sum.ln() + top - of_target;
        if let Some(share) = share {
            let scale = share / sum;
            for x in x.iter_mut() {
                *x *= scale;
            }
            x[target] -= share;
        }
    }
}

#[cfg(test)]
mod tests;
