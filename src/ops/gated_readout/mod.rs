//! The gated read-out of a gated recurrence, in one pass.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// h gelu(g), times σ(z) if there is an output gate z; elementwise.
///
/// `h`, `gate` (g) and `output` (z) have the same shape, which is that of the result.
pub fn gated_readout(h: &Tensor, gate: &Tensor, output: Option<&Tensor>) -> Result<Tensor> {
    shape::expect(Readout::NAME, ("gate", gate), ("h", h), h.dims())?;
    if let Some(output) = output {
        shape::expect(Readout::NAME, ("output", output), ("h", h), h.dims())?;
    }
    let ins: Vec<&Tensor> = [h, gate].into_iter().chain(output).collect();
    apply_or(Readout(h.shape().clone()), &ins, |_| reference::gated_readout(h, gate, output))
}

struct Readout(Shape);

impl Op for Readout {
    const NAME: &'static str = "gated_readout";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.0.clone()]
    }
}

#[cfg(test)]
mod tests;
