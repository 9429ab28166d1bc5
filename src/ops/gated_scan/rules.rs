//! The gates as functions of two pre-activations and one coefficient of the channel, with their
//! derivatives.

use crate::pointwise::{Pointwise, Sigmoid, Softplus};
use crate::runtime::float::Float;

/// The inputs of the gates at one step and channel: the pre-activations and the channel's
/// coefficient.
#[derive(Clone, Copy)]
pub(super) struct At<F> {
    pub(super) zf: F,
    pub(super) zi: F,
    pub(super) p: F,
}

/// A rule from pre-activations to gates.
pub(super) trait Rule: Copy + Send + Sync + 'static {
    /// True if the channels' coefficients depend on a trained parameter.
    const HAS_PARAMETER: bool;

    /// The prefix of its kernels' names.
    const KERNELS: &'static str;

    /// The term added under the root; 0 for rules without one.
    fn eps(&self) -> f32 {
        0.0
    }

    /// The coefficient of each of `width` channels, given the parameter.
    fn coefficients<F: Float>(&self, parameter: Option<&[F]>, width: usize) -> Vec<F>;

    /// The gradient of the parameter, given that of the channels' coefficients.
    fn parameter_grad<F: Float>(&self, parameter: &[F], coefficients: Vec<F>) -> Vec<F>;

    /// Decay f and input scale s.
    fn gates<F: Float>(&self, at: At<F>) -> [F; 2];

    /// The gradients of z_f, z_i and the channel's coefficient, given the gates and their
    /// gradients.
    fn slopes<F: Float>(&self, at: At<F>, gates: [F; 2], grads: [F; 2]) -> [F; 3];
}

/// The derivative of the sigmoid where its value is `s`.
#[inline(always)]
fn sigmoid_slope<F: Float>(s: F) -> F {
    Sigmoid::slope(s, s)
}

/// f = σ(z_f), s = σ(z_i).
#[derive(Clone, Copy)]
pub(super) struct Gated;

impl Rule for Gated {
    const HAS_PARAMETER: bool = false;
    const KERNELS: &'static str = "sigmoid";

    fn coefficients<F: Float>(&self, _: Option<&[F]>, width: usize) -> Vec<F> {
        vec![F::zero(); width]
    }

    fn parameter_grad<F: Float>(&self, _: &[F], _: Vec<F>) -> Vec<F> {
        unreachable!("these gates have no parameter")
    }

    #[inline(always)]
    fn gates<F: Float>(&self, at: At<F>) -> [F; 2] {
        [Sigmoid::value(at.zf), Sigmoid::value(at.zi)]
    }

    #[inline(always)]
    fn slopes<F: Float>(&self, _: At<F>, [f, s]: [F; 2], [gf, gs]: [F; 2]) -> [F; 3] {
        [gf * sigmoid_slope(f), gs * sigmoid_slope(s), F::zero()]
    }
}

/// f = e^{-α softplus(z_f)}, s = σ(z_i); the channel's coefficient is α.
#[derive(Clone, Copy)]
pub(super) struct Reversed;

impl Rule for Reversed {
    const HAS_PARAMETER: bool = true;
    const KERNELS: &'static str = "reversed";

    fn coefficients<F: Float>(&self, parameter: Option<&[F]>, width: usize) -> Vec<F> {
        vec![parameter.map_or(F::zero(), |alpha| alpha[0]); width]
    }

    fn parameter_grad<F: Float>(&self, _: &[F], coefficients: Vec<F>) -> Vec<F> {
        vec![coefficients.iter().fold(F::zero(), |sum, &x| sum + x)]
    }

    #[inline(always)]
    fn gates<F: Float>(&self, at: At<F>) -> [F; 2] {
        let f = (-at.p * Softplus::value(at.zf)).exp();
        [f, Sigmoid::value(at.zi)]
    }

    #[inline(always)]
    fn slopes<F: Float>(&self, at: At<F>, [f, s]: [F; 2], [gf, gs]: [F; 2]) -> [F; 3] {
        let exponent = gf * f;
        [-exponent * at.p * Sigmoid::value(at.zf), gs * sigmoid_slope(s), -exponent * Softplus::value(at.zf)]
    }
}

/// f = e^{p σ(z_f)}, s = √(1 - f² + eps) σ(z_i); the channel's coefficient is p = -8 softplus(λ).
#[derive(Clone, Copy)]
pub(super) struct RgLru {
    pub(super) eps: f64,
}

impl RgLru {
    /// √(1 - f² + eps) for f = e^{log_f}, with 1 - f² = -2t / (1 - t) and t = tanh(log f): the
    /// difference itself would cancel for f near 1.
    #[inline(always)]
    fn scale<F: Float>(&self, log_f: F) -> F {
        let t = log_f.tanh();
        let above = -(t + t) / (F::one() - t);
        (above + F::of(self.eps)).sqrt()
    }
}

impl Rule for RgLru {
    const HAS_PARAMETER: bool = true;
    const KERNELS: &'static str = "rg_lru";

    fn eps(&self) -> f32 {
        self.eps as f32
    }

    fn coefficients<F: Float>(&self, parameter: Option<&[F]>, _: usize) -> Vec<F> {
        let number = |&lambda: &F| F::of(-8.0) * Softplus::value(lambda);
        parameter.into_iter().flatten().map(number).collect()
    }

    fn parameter_grad<F: Float>(&self, parameter: &[F], coefficients: Vec<F>) -> Vec<F> {
        let slope = |&lambda: &F| F::of(-8.0) * Sigmoid::value(lambda);
        let each = parameter.iter().zip(coefficients);
        each.map(|(lambda, grad)| grad * slope(lambda)).collect()
    }

    #[inline(always)]
    fn gates<F: Float>(&self, at: At<F>) -> [F; 2] {
        let log_f = at.p * Sigmoid::value(at.zf);
        [log_f.exp(), self.scale(log_f) * Sigmoid::value(at.zi)]
    }

    /// d scale / d log f = -f² / scale. Without eps it grows without bound as f tends to 1, but its
    /// factor vanishes faster: the lower bound turns 0 / 0 into 0.
    #[inline(always)]
    fn slopes<F: Float>(&self, at: At<F>, [f, _]: [F; 2], [gf, gs]: [F; 2]) -> [F; 3] {
        let (r, g) = (Sigmoid::value(at.zf), Sigmoid::value(at.zi));
        let scale = self.scale(at.p * r);
        let steepness = r / scale.at_least(F::of(1e-30));
        let gp = gf * f * r - gs * g * f * f * steepness;
        [gp * at.p * (F::one() - r), gs * scale * sigmoid_slope(g), gp]
    }
}
