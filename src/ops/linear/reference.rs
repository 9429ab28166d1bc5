//! Definition in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(crate) fn linear(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let (out, inner) = w.dims2()?;
    let mut shape = x.dims().to_vec();
    let rank = shape.len();
    shape[rank - 1] = out;
    let y = x.reshape(((), inner))?.matmul(&w.t()?)?.reshape(shape)?;
    match b {
        Some(b) => y.broadcast_add(b),
        None => Ok(y),
    }
}
