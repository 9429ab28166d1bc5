//! Definition in ordinary tensor ops.

use candle_core::{Result, Tensor, D};

pub(super) fn rms_norm(x: &Tensor, gamma: &Tensor, eps: f64) -> Result<Tensor> {
    let squares = (x.sqr()?.sum_keepdim(D::Minus1)? + x.dim(D::Minus1)? as f64 * eps)?;
    let zero = squares.eq(0.0)?.to_dtype(x.dtype())?;
    let root = ((x.dim(D::Minus1)? as f64).sqrt() * (1.0 - &zero)?)?;
    // sqrt has no derivative at zero: rows of zeros take that at one, times zero
    let factor = (root / (squares + zero)?.sqrt()?)?;
    x.broadcast_mul(&factor)?.broadcast_mul(gamma)
}
