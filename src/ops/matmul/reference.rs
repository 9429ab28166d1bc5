//! Definition in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(super) fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.contiguous()?.matmul(&b.contiguous()?)
}
