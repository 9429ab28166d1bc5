//! Token shift of RWKV: each projection reads an interpolation between a token and its predecessor.

use crate::ops::{self, Expression};
use candle_core::{Result, Tensor};

/// x `(batch, seq_len, ..)` shifted by one token, starting with `first` `(batch, 1, ..)`.
pub(super) fn shift(x: &Tensor, first: &Tensor) -> Result<Tensor> {
    Tensor::cat(&[first, &x.narrow(1, 0, x.dim(1)? - 1)?], 1)
}

/// start + weight ⊙ (end - start), with a weight `(d)` per channel or `(batch, seq_len, d)` per token.
pub(crate) fn lerp(start: &Tensor, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let [mixed] = lerps(start, end, [weight])?;
    Ok(mixed)
}

/// [`lerp`] with several weights.
pub(crate) fn lerps<const N: usize>(start: &Tensor, end: &Tensor, weights: [&Tensor; N]) -> Result<[Tensor; N]> {
    let (start, end) = (Expression::of(start), Expression::of(end));
    let lerp = |weight| (&start + &((&end - &start).apart()? * Expression::parameter(weight))).apart();
    let mixed = weights.into_iter().map(lerp).collect::<Result<Vec<_>>>()?;
    ops::tensors(std::array::from_fn(|i| &mixed[i]))
}
