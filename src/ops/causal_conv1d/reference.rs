//! Definition in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(super) fn causal_conv1d(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let (len, taps) = (x.dim(1)?, w.dim(1)?);
    let padded = x.pad_with_zeros(1, taps - 1, 0)?;
    let mut y = x.zeros_like()?;
    if let Some(b) = b {
        y = y.broadcast_add(b)?;
    }
    for t in 0..taps {
        let weight = w.narrow(1, t, 1)?.squeeze(1)?;
        y = (y + padded.narrow(1, t, len)?.broadcast_mul(&weight)?)?;
    }
    Ok(y)
}
