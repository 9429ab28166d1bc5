//! Definition in ordinary tensor ops.

use super::Embedding;
use crate::dropout::reference::dropout;
use candle_core::{Result, Tensor};

pub(super) fn embedding(op: &Embedding, table: &Tensor, positions: Option<&Tensor>) -> Result<Tensor> {
    let (batch, len) = op.ids.dims2()?;
    let embedded = table.index_select(&op.ids.flatten_all()?, 0)?;
    let mut x = embedded.reshape((batch, len, op.width))?;
    if let Some(positions) = positions {
        x = x.broadcast_add(&positions.narrow(0, 0, len)?)?;
    }
    dropout(&x, op.mask)?.to_dtype(op.dtype)
}
