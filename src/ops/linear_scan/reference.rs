//! The reference: a loop over time of ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(super) fn linear_scan(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let mut h = x.narrow(1, 0, 1)?.zeros_like()?;
    let mut all = Vec::with_capacity(x.dim(1)?);
    for t in 0..x.dim(1)? {
        h = ((a.narrow(1, t, 1)? * h)? + x.narrow(1, t, 1)?)?;
        all.push(h.clone());
    }
    Tensor::cat(&all, 1)
}
