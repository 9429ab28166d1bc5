//! Values times a function of a gate, in one pass: the read-outs of gated recurrences and of Mamba.

mod cpu;
mod cuda;
mod reference;

use crate::pointwise::{Gelu, Pointwise, Silu};
use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};
use std::marker::PhantomData;

/// h gelu(g), times σ(z) if there is an output gate z; elementwise.
///
/// `h`, `gate` (g) and `output` (z) have the same shape, which is that of the result.
pub fn gated_readout(h: &Tensor, gate: &Tensor, output: Option<&Tensor>) -> Result<Tensor> {
    if let Some(output) = output {
        shape::expect(Readout::<Gelu>::NAME, ("output", output), ("h", h), h.dims())?;
    }
    let ins: Vec<&Tensor> = [h, gate].into_iter().chain(output).collect();
    apply_or(Readout::<Gelu>::check(h, gate)?, &ins, |_| reference::gated_readout(h, gate, output))
}

/// h silu(g), elementwise. `h` and `gate` (g) have the same shape, which is that of the result.
pub fn silu_gate(h: &Tensor, gate: &Tensor) -> Result<Tensor> {
    apply_or(Readout::<Silu>::check(h, gate)?, &[h, gate], |_| reference::silu_gate(h, gate))
}

/// h P(g), times σ(z) if there is a third input z.
struct Readout<P> {
    shape: Shape,
    function: PhantomData<P>,
}

impl<P: Pointwise> Readout<P> {
    fn check(h: &Tensor, gate: &Tensor) -> Result<Self> {
        shape::expect(Self::NAME, ("gate", gate), ("h", h), h.dims())?;
        Ok(Self { shape: h.shape().clone(), function: PhantomData })
    }
}

impl<P: Pointwise> Op for Readout<P> {
    const NAME: &'static str = "gated_readout";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
