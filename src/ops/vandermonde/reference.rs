//! The reference: all powers, one after the other.

use candle_core::{Result, Tensor, D};

/// Allocates d m `len` elements of each kind.
pub(super) fn vandermonde(a: [&Tensor; 2], w: [&Tensor; 2], len: usize) -> Result<Tensor> {
    let times = |[xr, xi]: [&Tensor; 2]| -> Result<[Tensor; 2]> {
        Ok([((xr * a[0])? - (xi * a[1])?)?, ((xr * a[1])? + (xi * a[0])?)?])
    };
    let mut term = [w[0].clone(), w[1].clone()];
    let mut taps = Vec::with_capacity(len);
    for _ in 0..len {
        taps.push(term[0].sum(D::Minus1)?);
        term = times([&term[0], &term[1]])?;
    }
    Tensor::stack(&taps, 1)
}
