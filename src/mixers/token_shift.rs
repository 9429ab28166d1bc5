//! The token shift of RWKV: what a map reads is a blend of a token and the one before it.

use candle_core::{Result, Tensor};

/// x `(batch, seq_len, ..)` one token later, behind `first` `(batch, 1, ..)`.
pub(super) fn later(x: &Tensor, first: &Tensor) -> Result<Tensor> {
    Tensor::cat(&[first, &x.narrow(1, 0, x.dim(1)? - 1)?], 1)
}

/// [`later`] behind zeros.
pub(super) fn later_from_nothing(x: &Tensor) -> Result<Tensor> {
    later(x, &x.narrow(1, 0, 1)?.zeros_like()?)
}

/// a + (b - a) ⊙ share, where the share of b is one of each channel, or of each token too.
pub(super) fn blend(a: &Tensor, b: &Tensor, share: &Tensor) -> Result<Tensor> {
    a + (b - a)?.broadcast_mul(&share.to_dtype(a.dtype())?)?
}
