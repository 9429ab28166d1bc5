//! Definition in ordinary tensor ops.

use super::{AdamWRates, AdamWSettings};
use candle_core::{Result, Tensor};

/// One update of a parameter θ by its gradient g, with the moments m and v:
///
/// g ← scale · g,  m ← β₁ m + (1-β₁) g,  v ← β₂ v + (1-β₂) g²,  θ ← decay · θ - rate · m / (√v / correction + eps).
///
/// `scale` clips the gradient. Returns the new θ, m and v.
pub(super) fn adamw(
    [theta, grad, m, v]: [&Tensor; 4],
    scale: f64,
    settings: &AdamWSettings,
    rates: &AdamWRates,
) -> Result<[Tensor; 3]> {
    let AdamWSettings { beta1, beta2, eps, .. } = *settings;
    let grad = (grad * scale)?;
    let m = ((m * beta1)? + (&grad * (1.0 - beta1))?)?;
    let v = ((v * beta2)? + (grad.sqr()? * (1.0 - beta2))?)?;
    let root = ((v.sqrt()? / rates.correction)? + eps)?;
    let theta = ((theta * rates.decay)? - (&m / root)? * rates.rate)?;
    Ok([theta, m, v])
}
