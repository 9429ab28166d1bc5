//! The short depthwise convolution in front of many recurrent mixers.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// y_i = b + Σ_t w\[:,t\] x_{i-K+1+t}, with x_j = 0 for j < 0; w\[:,K-1\] is applied to the current step.
///
/// `x`: (B, L, C); `w`: (C, K); `b`: (C), zero if there is none; result (B, L, C).
pub fn causal_conv1d(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let [batch, len, width] = shape::dims(CausalConv1d::NAME, ("x", x))?;
    let [_, taps] = shape::dims(CausalConv1d::NAME, ("w", w))?;
    shape::parameter(CausalConv1d::NAME, ("w", w), ("x", x), &[width, taps])?;
    if let Some(b) = b {
        shape::parameter(CausalConv1d::NAME, ("b", b), ("x", x), &[width])?;
    }
    let ins: Vec<&Tensor> = [x, w].into_iter().chain(b).collect();
    apply_or(CausalConv1d { batch, len, width, taps }, &ins, |_| reference::causal_conv1d(x, w, b))
}

struct CausalConv1d {
    batch: usize,
    len: usize,
    width: usize,
    taps: usize,
}

impl Op for CausalConv1d {
    const NAME: &'static str = "causal_conv1d";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.len, self.width).into()]
    }
}

#[cfg(test)]
mod tests;
