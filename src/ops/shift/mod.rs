//! Sequences moved on by one token. Candle would pad the gradient of the slice to the whole and add it to zeros.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use candle_core::{Result, Shape, Tensor};

/// `x` (B, L, ...) moved on by one token, starting with zeros: y\[b, t\] = x\[b, t - 1\].
pub fn shift(x: &Tensor) -> Result<Tensor> {
    let (batch, len) = (x.dim(0)?, x.dim(1)?);
    let width = x.elem_count() / (batch * len).max(1);
    match width {
        0 => reference::shift(x),
        _ => apply_or(Shift { shape: x.shape().clone(), len, width }, &[x], |_| reference::shift(x)),
    }
}

struct Shift {
    shape: Shape,
    len: usize,
    /// Elements of a token.
    width: usize,
}

impl Op for Shift {
    const NAME: &'static str = "shift";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
