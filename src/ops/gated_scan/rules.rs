//! The gates as functions of two pre-activations and one number of the channel, with their slopes.

use crate::ops::float::Float;
use crate::ops::pointwise::{Pointwise, Sigmoid, Softplus};

/// What a step reads of one channel: pre-activations of the gates and the channel's number.
#[derive(Clone, Copy)]
pub(super) struct At<F> {
    pub(super) zf: F,
    pub(super) zi: F,
    pub(super) p: F,
}

/// A way from pre-activations to gates.
pub(super) trait Rule: Copy + Send + Sync + 'static {
    /// Whether there is a parameter behind the channels' numbers.
    const LEARNT: bool;

    /// How the names of its kernels begin.
    const KERNELS: &'static str;

    /// What is added under its root.
    fn eps(&self) -> f32 {
        0.0
    }

    /// The number of each of `width` channels, given the parameter.
    fn numbers<F: Float>(&self, parameter: Option<&[F]>, width: usize) -> Vec<F>;

    /// The gradient of the parameter, given that of the channels' numbers.
    fn learn<F: Float>(&self, parameter: &[F], numbers: Vec<F>) -> Vec<F>;

    /// Decay f and input scale s.
    fn gates<F: Float>(&self, at: At<F>) -> [F; 2];

    /// The gradients of z_f, z_i and the channel's number, given the gates and theirs.
    fn slopes<F: Float>(&self, at: At<F>, gates: [F; 2], grads: [F; 2]) -> [F; 3];
}

/// σ' where σ is `s`.
#[inline(always)]
fn sigmoid_slope<F: Float>(s: F) -> F {
    Sigmoid::slope(s, s)
}

/// f = σ(z_f), s = σ(z_i).
#[derive(Clone, Copy)]
pub(super) struct Gated;

impl Rule for Gated {
    const LEARNT: bool = false;
    const KERNELS: &'static str = "sigmoid";

    fn numbers<F: Float>(&self, _: Option<&[F]>, width: usize) -> Vec<F> {
        vec![F::zero(); width]
    }

    fn learn<F: Float>(&self, _: &[F], _: Vec<F>) -> Vec<F> {
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

/// f = e^{-α softplus(z_f)}, s = σ(z_i); the channel's number is α.
#[derive(Clone, Copy)]
pub(super) struct Reversed;

impl Rule for Reversed {
    const LEARNT: bool = true;
    const KERNELS: &'static str = "reversed";

    fn numbers<F: Float>(&self, parameter: Option<&[F]>, width: usize) -> Vec<F> {
        vec![parameter.map_or(F::zero(), |alpha| alpha[0]); width]
    }

    fn learn<F: Float>(&self, _: &[F], numbers: Vec<F>) -> Vec<F> {
        vec![numbers.iter().fold(F::zero(), |sum, &x| sum + x)]
    }

    #[inline(always)]
    fn gates<F: Float>(&self, at: At<F>) -> [F; 2] {
        let f = (-at.p * Softplus::value(at.zf)).exp();
        [f, Sigmoid::value(at.zi)]
    }

    #[inline(always)]
    fn slopes<F: Float>(&self, at: At<F>, [f, s]: [F; 2], [gf, gs]: [F; 2]) -> [F; 3] {
        let exponent = gf * f;
        [
            -exponent * at.p * Sigmoid::value(at.zf),
            gs * sigmoid_slope(s),
            -exponent * Softplus::value(at.zf),
        ]
    }
}

/// f = e^{p σ(z_f)}, s = √(1 - f² + eps) σ(z_i); the channel's number is p = -8 softplus(λ).
#[derive(Clone, Copy)]
pub(super) struct RgLru {
    pub(super) eps: f64,
}

impl RgLru {
    /// √(1 - f² + eps) for f = e^{log_f}. 1 - f² = -2t / (1 - t) with t = tanh(log f): the
    /// difference would lose the digits of an f near 1.
    #[inline(always)]
    fn scale<F: Float>(&self, log_f: F) -> F {
        let t = log_f.tanh();
        let above = -(t + t) / (F::one() - t);
        (above + F::from_f64(self.eps)).sqrt()
    }
}

impl Rule for RgLru {
    const LEARNT: bool = true;
    const KERNELS: &'static str = "rg_lru";

    fn eps(&self) -> f32 {
        self.eps as f32
    }

    fn numbers<F: Float>(&self, parameter: Option<&[F]>, _: usize) -> Vec<F> {
        let number = |&lambda: &F| F::from_f64(-8.0) * Softplus::value(lambda);
        parameter.into_iter().flatten().map(number).collect()
    }

    fn learn<F: Float>(&self, parameter: &[F], numbers: Vec<F>) -> Vec<F> {
        let slope = |&lambda: &F| F::from_f64(-8.0) * Sigmoid::value(lambda);
        let each = parameter.iter().zip(numbers);
        each.map(|(lambda, grad)| grad * slope(lambda)).collect()
    }

    #[inline(always)]
    fn gates<F: Float>(&self, at: At<F>) -> [F; 2] {
        let log_f = at.p * Sigmoid::value(at.zf);
        [log_f.exp(), self.scale(log_f) * Sigmoid::value(at.zi)]
    }

    /// d scale / d log f = -f² / scale. Without eps that grows without bound as f tends to 1, but
    /// what it multiplies vanishes faster: the lower bound keeps 0 / 0 at 0.
    #[inline(always)]
    fn slopes<F: Float>(&self, at: At<F>, [f, _]: [F; 2], [gf, gs]: [F; 2]) -> [F; 3] {
        let (r, g) = (Sigmoid::value(at.zf), Sigmoid::value(at.zi));
        let scale = self.scale(at.p * r);
        let steepness = r / scale.at_least(F::from_f64(1e-30));
        let gp = gf * f * r - gs * g * f * f * steepness;
        [
            gp * at.p * (F::one() - r),
            gs * scale * sigmoid_slope(g),
            gp,
        ]
    }
}
