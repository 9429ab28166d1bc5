//! Definition in ordinary tensor ops.

use crate::dropout::reference::dropout;
use crate::runtime::mask::Mask;
use candle_core::{Result, Tensor};

pub(super) fn residual(x: &Tensor, branch: &Tensor, mask: Option<Mask>, scale: Option<&Tensor>) -> Result<Tensor> {
    let branch = dropout(branch, mask)?;
    match scale {
        Some(scale) => x.broadcast_mul(&scale.to_dtype(x.dtype())?)? + branch,
        None => x + branch,
    }
}
