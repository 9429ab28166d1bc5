//! The RMS norm of Hawk, without an eps.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// gamma sqrt(d) x / |x| over the last axis (De et al. 2024; the released code of Hawk has no eps).
///
/// `x`: (..., d); `gamma`: (d); result like `x`. A row in which no number exceeds 2^-126, such as a
/// row of zeros, gives zeros and has a gradient of zeros; the scale of other rows is arbitrary.
pub fn rms_norm(x: &Tensor, gamma: &Tensor) -> Result<Tensor> {
    let (_, width) = shape::rows(RmsNorm::NAME, ("x", x))?;
    shape::parameter(RmsNorm::NAME, ("gamma", gamma), ("x", x), &[width])?;
    apply_or(RmsNorm { shape: x.shape().clone(), width }, &[x, gamma], |_| {
        reference::rms_norm(x, &gamma.to_dtype(x.dtype())?)
    })
}

struct RmsNorm {
    shape: Shape,
    width: usize,
}

impl Op for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
