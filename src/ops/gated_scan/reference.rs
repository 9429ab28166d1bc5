//! The reference: gates as tensors, the linear scan, and a selection of rows.

use super::Gates;
use crate::linear_scan::linear_scan;
use crate::pointwise::{sigmoid, softplus, tanh};
use crate::runtime::rows::gather_rows;
use candle_core::{Result, Tensor, D};

pub(super) fn gates(gates: &Gates, z: &Tensor) -> Result<(Tensor, Tensor)> {
    let width = z.dim(D::Minus1)? / 2;
    let part = |i: usize| z.narrow(D::Minus1, i * width, width);
    let (zf, input) = (part(0)?, sigmoid(&part(1)?)?);
    let beside_z = |parameter: &Tensor| parameter.to_dtype(z.dtype());
    match gates {
        Gates::Sigmoid => Ok((sigmoid(&zf)?, input)),
        Gates::Reversed { alpha } => {
            let f = softplus(&zf)?.broadcast_mul(&beside_z(alpha)?)?.neg()?.exp()?;
            Ok((f, input))
        }
        Gates::RgLru { lambda, eps } => {
            let rate = (softplus(lambda)? * -8.0)?;
            let log_f = sigmoid(&zf)?.broadcast_mul(&beside_z(&rate)?)?;
            // 1 - f² = -2t / (1 - t) with t = tanh(log f), which has no cancellation near f = 1.
            let t = tanh(&log_f)?;
            let scale = (((&t * -2.0)? / (t.neg()? + 1.0)?)? + *eps)?.sqrt()?;
            Ok((log_f.exp()?, (scale * input)?))
        }
    }
}

pub(super) fn gated_scan(z: &Tensor, x: &Tensor, rule: &Gates, rows: Option<&Tensor>) -> Result<Tensor> {
    let (f, s) = gates(rule, z)?;
    let h = linear_scan(&f, &(s * x)?)?;
    match rows {
        Some(rows) => gather_rows(&h, rows),
        None => Ok(h),
    }
}
