//! The RMS norm, with an eps or, as in Hawk, without.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// gamma x / sqrt(mean(x²) + eps) over the last axis (Zhang & Sennrich 2019; the released code of Hawk has an eps of
/// 0).
///
/// `x`: (..., d); `gamma`: (d); result like `x`. Without an eps, a row in which no number exceeds 2^-126, such as a
/// row of zeros, gives zeros and has a gradient of zeros; the scale of other rows is arbitrary.
pub fn rms_norm(x: &Tensor, gamma: &Tensor, eps: f64) -> Result<Tensor> {
    let (_, width) = shape::rows(RmsNorm::NAME, ("x", x))?;
    shape::parameter(RmsNorm::NAME, ("gamma", gamma), ("x", x), &[width])?;
    apply_or(RmsNorm { shape: x.shape().clone(), width, eps }, &[x, gamma], |_| {
        reference::rms_norm(x, &gamma.to_dtype(x.dtype())?, eps)
    })
}

struct RmsNorm {
    shape: Shape,
    width: usize,
    eps: f64,
}

impl RmsNorm {
    /// sqrt(d eps), which is added to |x| as the side of a right triangle.
    fn root_eps(&self) -> f64 {
        (self.width as f64 * self.eps).sqrt()
    }
}

impl Op for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
