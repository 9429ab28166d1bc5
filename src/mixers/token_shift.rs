//! Token shift of RWKV: each projection reads an interpolation between a token and its predecessor.

use candle_core::{Result, Tensor};

/// x `(batch, seq_len, ..)` shifted by one token, starting with `first` `(batch, 1, ..)`.
pub(super) fn shift(x: &Tensor, first: &Tensor) -> Result<Tensor> {
    Tensor::cat(&[first, &x.narrow(1, 0, x.dim(1)? - 1)?], 1)
}

/// [`shift`] starting with zeros.
pub(crate) fn zero_shift(x: &Tensor) -> Result<Tensor> {
    shift(x, &x.narrow(1, 0, 1)?.zeros_like()?)
}

/// start + weight ⊙ (end - start), with a weight `(d)` per channel or `(batch, seq_len, d)` per token.
pub(crate) fn lerp(start: &Tensor, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
    start + (end - start)?.broadcast_mul(&weight.to_dtype(start.dtype())?)?
}
