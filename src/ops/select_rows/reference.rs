//! Definition in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(super) fn select_rows(x: &Tensor, positions: &Tensor) -> Result<Tensor> {
    let index = positions.unsqueeze(2)?;
    let (batch, rows, _) = index.dims3()?;
    let index = index.broadcast_as((batch, rows, x.dim(2)?))?;
    x.gather(&index.contiguous()?, 1)
}
