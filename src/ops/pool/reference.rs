//! Definition in ordinary tensor ops.

use super::{Pool, Pooled};
use candle_core::{DType, Result, Tensor};

/// Sums of bf16 are accumulated in f32.
pub(super) fn pool(op: &Pooled, x: &Tensor) -> Result<Tensor> {
    let (batch, len, width) = x.dims3()?;
    let whole = || Tensor::full(len as u32, batch, x.device());
    let lengths = op.lengths.clone().map_or_else(whole, Ok)?;
    let lengths = lengths.reshape((batch, 1, 1))?;
    let wide = match x.dtype() {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let steps = Tensor::arange(0, len as u32, x.device())?.reshape((1, len, 1))?;
    let inside = steps.broadcast_lt(&lengths)?.broadcast_as(x.shape())?;
    let padded = |x: &Tensor, beyond: f32| {
        let beyond = Tensor::full(beyond, x.shape(), x.device())?;
        inside.where_cond(&x.to_dtype(wide)?, &beyond.to_dtype(wide)?)
    };
    let one_of = |index: Tensor| {
        let index = index.broadcast_as((batch, 1, width))?.contiguous()?;
        x.gather(&index, 1)?.squeeze(1)
    };
    match op.pool {
        Pool::Mean => {
            let sum = padded(x, 0.0)?.sum_keepdim(1)?;
            let mean = sum.broadcast_div(&lengths.to_dtype(wide)?)?;
            mean.squeeze(1)?.to_dtype(x.dtype())
        }
        Pool::Last => one_of((&lengths - lengths.ones_like()?)?),
        Pool::Max => one_of(padded(&x.detach(), f32::NEG_INFINITY)?.argmax_keepdim(1)?),
    }
}
