//! Definition in ordinary tensor ops.

use crate::runtime::mask::Mask;
use candle_core::{Result, Tensor};

/// Returns `x` times its mask; `x` itself without one.
pub(crate) fn dropout(x: &Tensor, mask: impl Into<Option<Mask>>) -> Result<Tensor> {
    let Some(mask) = mask.into() else {
        return Ok(x.clone());
    };
    let factors = Tensor::from_vec(mask.factors(x.elem_count()), x.shape(), x.device())?;
    x * factors.to_dtype(x.dtype())?
}
