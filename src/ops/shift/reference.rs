//! Definition in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(super) fn shift(x: &Tensor) -> Result<Tensor> {
    let first = x.narrow(1, 0, 1)?.zeros_like()?;
    Tensor::cat(&[first, x.narrow(1, 0, x.dim(1)? - 1)?], 1)
}
