//! Discretisation of the continuous-time system h' = a h + u b by a step δ.

use crate::pointwise::phi1;
use candle_core::{Result, Tensor};

/// Rule by which a step δ and a rate a <= 0 give the decay ā and the factor b̄ of the input, h_t = ā h_{t-1} +
/// b̄ u_t b_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepRule {
    /// ā = e^{δ a}, b̄ = δ: the exact decay, and Euler's rule for the input.
    Euler,
    /// ā = e^{δ a}, b̄ = (e^{δ a} - 1)/a: exact where the input is constant during a step.
    Hold,
    /// ā = (1 + δ a/2)/(1 - δ a/2), b̄ = δ/(1 - δ a/2): the trapezoidal rule. ā is negative for δ |a| > 2.
    Bilinear,
}

impl StepRule {
    /// ā and b̄ for δ and a, which broadcast against each other; b̄ of [`StepRule::Euler`] has the shape of δ.
    pub fn discretise(self, delta: &Tensor, a: &Tensor) -> Result<[Tensor; 2]> {
        let x = delta.broadcast_mul(a)?;
        Ok(match self {
            Self::Euler => [x.exp()?, delta.clone()],
            Self::Hold => [x.exp()?, phi1(&x)?.broadcast_mul(delta)?],
            Self::Bilinear => {
                let shrink = (1.0 - (&x * 0.5)?)?.recip()?;
                [((&x * 0.5)? + 1.0)?.mul(&shrink)?, shrink.broadcast_mul(delta)?]
            }
        })
    }
}
