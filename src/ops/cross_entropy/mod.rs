//! Cross entropy of a linear head: loss and gradients are computed for some rows of logits at a
//! time. The full (R, V) logits, many times larger than everything else in a small model, are never
//! stored.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply, runs_on, Op};
use crate::runtime::shape;
use candle_core::{bail, Result, Shape, Tensor};

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
/// scales them into new tensors unless the loss is what is differentiated.
pub fn cross_entropy(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Classified> {
    let op = CrossEntropy::check(hidden, weight, targets)?;
    if !runs_on(hidden) {
        return reference::cross_entropy(hidden, weight, targets);
    }
    let mut outs = apply(op, &[hidden, weight])?.into_iter();
    match (outs.next(), outs.next()) {
        (Some(loss), Some(correct)) => Ok(Classified { loss, correct: correct.detach() }),
        _ => unreachable!("two outputs"),
    }
}

/// The cross entropy of the classes `targets`, R of u32, under `logits`, R rows (.., V). All logits are held at once.
pub fn cross_entropy_of_logits(logits: &Tensor, targets: &Tensor) -> Result<Classified> {
    let rows = targets.dims1()?;
    reference::cross_entropy_of_logits(&logits.reshape((rows, ()))?, targets)
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
}

impl Op for CrossEntropy {
    const NAME: &'static str = "cross_entropy";
    const SAVES_GRADIENTS: bool = true;

    fn out_shapes(&self) -> Vec<Shape> {
        vec![Shape::from(()), self.ids.shape().clone()]
    }
}

#[cfg(test)]
mod tests;
