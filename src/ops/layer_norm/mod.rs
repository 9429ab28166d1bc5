//! Layer normalisation; candle-nn's fused one has no backward pass.

mod cpu;
pub(crate) mod cuda;
mod reference;

use crate::runtime::autograd::{apply, apply_or, runs_on, Op};
use crate::runtime::float::Float;
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// (x - mean) / sqrt(var + eps) * weight + bias over the last axis, with the biased variance.
///
/// `x`: (..., d); `weight`, `bias`: (d); result like `x`.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let width = width(LayerNorm::NAME, x, weight, bias)?;
    apply_or(LayerNorm { shape: x.shape().clone(), width, eps }, &[x, weight, bias], |_| {
        reference::layer_norm(x, weight, bias, eps)
    })
}

/// The size of the last axis; an error if the shapes do not agree.
fn width(op: &str, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<usize> {
    let (_, width) = shape::rows(op, ("x", x))?;
    shape::parameter(op, ("weight", weight), ("x", x), &[width])?;
    shape::parameter(op, ("bias", bias), ("x", x), &[width])?;
    Ok(width)
}

/// A residual connection followed by a norm: x + y, and [`layer_norm`] of that sum.
///
/// `x`, `y`: (..., d); `weight`, `bias`: (d); results like `x`.
pub fn add_layer_norm(x: &Tensor, y: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<(Tensor, Tensor)> {
    let width = width(AddLayerNorm::NAME, x, weight, bias)?;
    shape::expect(AddLayerNorm::NAME, ("y", y), ("x", x), x.dims())?;
    if !runs_on(x) {
        let sum = (x + y)?;
        let normed = reference::layer_norm(&sum, weight, bias, eps)?;
        return Ok((sum, normed));
    }
    let op = AddLayerNorm(LayerNorm { shape: x.shape().clone(), width, eps });
    let [sum, normed] =
        <[Tensor; 2]>::try_from(apply(op, &[x, y, weight, bias])?).unwrap_or_else(|_| unreachable!("two outputs"));
    Ok((sum, normed))
}

struct LayerNorm {
    shape: Shape,
    width: usize,
    eps: f64,
}

impl LayerNorm {
    fn eps<F: Float>(&self) -> F {
        F::of(self.eps)
    }
}

impl Op for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

/// [`LayerNorm`] of the sum of the first two inputs; the sum is the other output.
struct AddLayerNorm(LayerNorm);

impl Op for AddLayerNorm {
    const NAME: &'static str = "add_layer_norm";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.0.shape.clone(); 2]
    }
}

#[cfg(test)]
mod tests;
