//! Definition in ordinary tensor ops.

use crate::pointwise::reference::softplus;
use candle_core::{Result, Tensor, D};

pub(super) fn add_scaled(x: &Tensor, y: &Tensor, scale: &Tensor) -> Result<Tensor> {
    x + y.broadcast_mul(&scale.to_dtype(x.dtype())?)?
}

pub(super) fn softplus_biased(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    softplus(&x.broadcast_add(&bias.to_dtype(x.dtype())?)?)
}

pub(super) fn scale_heads(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let heads = [scale.dims(), &[x.dim(D::Minus1)? / scale.dim(D::Minus1)?]].concat();
    x.reshape(heads)?.broadcast_mul(&scale.unsqueeze(D::Minus1)?)?.reshape(x.shape())
}
