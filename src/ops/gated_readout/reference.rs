//! Definition in ordinary tensor ops.

use crate::pointwise::reference::{gelu, sigmoid, silu};
use candle_core::{Result, Tensor};

pub(super) fn gated_readout(h: &Tensor, gate: &Tensor, output: Option<&Tensor>) -> Result<Tensor> {
    let y = (h * gelu(gate)?)?;
    match output {
        Some(output) => y * sigmoid(output)?,
        None => Ok(y),
    }
}

pub(super) fn silu_gate(h: &Tensor, gate: &Tensor) -> Result<Tensor> {
    h * silu(gate)?
}
