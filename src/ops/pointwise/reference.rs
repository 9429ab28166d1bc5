//! Definitions in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(crate) fn sigmoid(x: &Tensor) -> Result<Tensor> {
    (x.neg()?.exp()? + 1.0)?.recip()
}

pub(crate) fn softplus(x: &Tensor) -> Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

pub(crate) fn elu1(x: &Tensor) -> Result<Tensor> {
    x.relu()? + x.minimum(0.0)?.exp()?
}

/// Candle's `gelu_erf` is not used: its gradient has an error of 3e-8 from a constant with six digits.
pub(crate) fn gelu(x: &Tensor) -> Result<Tensor> {
    let below = (((x * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5)?;
    x * below
}

pub(crate) fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    let inner = ((x + (x.powf(3.0)? * 0.044_715)?)? * (2.0 / std::f64::consts::PI).sqrt())?;
    (x * 0.5)? * (inner.tanh()? + 1.0)?
}

pub(crate) fn silu(x: &Tensor) -> Result<Tensor> {
    x * sigmoid(x)?
}

pub(crate) fn tanh(x: &Tensor) -> Result<Tensor> {
    x.tanh()
}

/// Near 0 by its power series, to 16 terms; elsewhere by the difference, at an x that is not near 0.
pub(crate) fn phi1(x: &Tensor) -> Result<Tensor> {
    let near = x.abs()?.lt(0.5)?;
    let small = x.clamp(-0.5, 0.5)?;
    let mut series = (&small * 0.0)?;
    for j in (1..=16).rev() {
        series = ((series * &small)? / (j + 1) as f64)?.affine(1.0, 1.0)?;
    }
    let large = near.where_cond(&x.ones_like()?, x)?;
    near.where_cond(&series, &((large.exp()? - 1.0)? / &large)?)
}
