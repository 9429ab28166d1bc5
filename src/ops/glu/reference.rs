//! Definition in ordinary tensor ops.

use super::Glu;
use crate::pointwise::reference::{gelu, gelu_tanh, sigmoid, silu};
use candle_core::{Result, Tensor, D};

pub(super) fn glu(x: &Tensor, kind: Glu) -> Result<Tensor> {
    let width = x.dim(D::Minus1)? / 2;
    let (first, second) = (x.narrow(D::Minus1, 0, width)?, x.narrow(D::Minus1, width, width)?);
    match kind {
        Glu::Sigmoid => first * sigmoid(&second)?,
        Glu::Gelu => second * gelu(&first)?,
        Glu::GeluTanh => second * gelu_tanh(&first)?,
        Glu::Silu => second * silu(&first)?,
        Glu::Bilinear => second * first,
    }
}
