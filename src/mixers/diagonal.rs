//! Diagonal time-invariant state space models (S4D): m complex states per channel, as a long convolution and as a
//! recurrence,
//!
//! h_i = Ā h_{i-1} + B̄ u_i,  y_i = 2 Re(C h_i)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | A | -e^(`a_re_log`) + i `a_im`, one of each conjugate pair; B = 1 | `(d, m)` |
//! | Δ | step size e^(`log_dt`) | `(d)` |
//! | Ā, B̄ | discretisation of A and B by Δ | `(d, m)` |
//! | C | output vector | `(d, m)` |

use super::complex::Complex;
use super::hippo::Hippo;
use super::{MixerSpec, State};
use crate::ltv::{Ltv, OffDiagonal};
use crate::nn::{Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
use crate::ops::Expression;
use candle_core::{Result, Tensor, D};
use std::cell::OnceCell;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Initial A (Gu et al. 2022), the eigenvalue k of m.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// S4D-Lin: -1/2 + i π k.
    Linear,
    /// S4D-Inv: -1/2 + i (2m/π) (2m/(2k+1) - 1).
    Inverse,
    /// S4D-LegS: an eigenvalue of the normal part of HiPPO-LegS of 2m states.
    Legs,
    /// S4D-Real: -(k+1).
    Real,
}

impl Start {
    /// Real and imaginary parts of all m eigenvalues.
    pub fn eigenvalues(self, m: usize) -> Vec<[f64; 2]> {
        let n = 2.0 * m as f64;
        let each = |of: &dyn Fn(f64) -> [f64; 2]| (0..m).map(|k| of(k as f64)).collect();
        match self {
            Self::Linear => each(&|k| [INITIAL_RE, PI * k]),
            Self::Inverse => each(&|k| [INITIAL_RE, n / PI * (n / (2.0 * k + 1.0) - 1.0)]),
            Self::Legs => Hippo::Legs.in_eigenbasis(2 * m).lambda,
            Self::Real => each(&|k| [-(k + 1.0), 0.0]),
        }
    }
}

/// Discretisation of the continuous-time system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Discretisation {
    /// Zero-order hold.
    Zoh,
    /// Bilinear transform (trapezoidal rule).
    Bilinear,
    /// Forward Euler, Ā = I + Δ A: modes grow where Δ exceeds -2 Re A/|A|².
    Euler,
}

/// Parameters of S4D without its feedthrough D.
pub(super) struct DiagonalSsm {
    log_dt: Tensor,
    a_re_log: Tensor,
    a_im: Tensor,
    c: Complex,
    discretisation: Discretisation,
    /// Number of consecutive channels with the same system.
    copies: usize,
}

/// Initial real part of A, in most starts.
const INITIAL_RE: f64 = -0.5;

/// Initial ln Δ: Δ is log-uniform on [1e-3, 1e-1].
pub(super) fn initial_log_dt(_index: usize, rng: &mut Rng) -> f64 {
    let (low, high) = (1e-3_f64.ln(), 1e-1_f64.ln());
    low + (high - low) * rng.uniform()
}

impl DiagonalSsm {
    /// Systems of `d_model` channels with `d_state` conjugate pairs each.
    pub fn new(spec: &MixerSpec, start: Start, discretisation: Discretisation, params: &Params) -> Result<Self> {
        let (d, m) = (spec.d_model, spec.d_state);
        // Computed where a value is drawn: a model without values is only counted.
        let eigenvalues = OnceCell::new();
        let initial = |k: usize| -> [f64; 2] { eigenvalues.get_or_init(|| start.eigenvalues(m))[k] };
        let a_re_log = |i: usize, _: &mut Rng| (-initial(i % m)[0]).ln();
        let a_im = |i: usize, _: &mut Rng| initial(i % m)[1];
        let a_re_log = match start {
            Start::Linear | Start::Inverse => Init::Constant((-INITIAL_RE).ln()),
            Start::Legs | Start::Real => Init::Each(&a_re_log),
        };
        let c = |name| params.get(name, (d, m), Init::Normal(FRAC_1_SQRT_2));
        // Two decades of steps like those of the other rules, up to the largest at which no mode grows under Euler's.
        let limit_of_all = OnceCell::new();
        let largest = || {
            let limit = |[re, im]: [f64; 2]| -2.0 * re / (re * re + im * im);
            (0..m).map(|k| limit(initial(k))).fold(f64::INFINITY, f64::min)
        };
        let stable =
            |i: usize, rng: &mut Rng| initial_log_dt(i, rng) - 1e-1_f64.ln() + limit_of_all.get_or_init(largest).ln();
        let steps: &dyn Fn(usize, &mut Rng) -> f64 = match discretisation {
            Discretisation::Zoh | Discretisation::Bilinear => &initial_log_dt,
            Discretisation::Euler => &stable,
        };
        Ok(Self {
            log_dt: params.get("log_dt", d, Init::Each(steps))?,
            a_re_log: params.get("a_re_log", (d, m), a_re_log)?,
            a_im: params.get("a_im", (d, m), Init::Each(&a_im))?,
            c: Complex { re: c("c_re")?, im: c("c_im")? },
            discretisation,
            copies: 1,
        })
    }

    /// The same systems for `copies` consecutive channels each.
    pub fn with_copies(self, copies: usize) -> Self {
        Self { copies, ..self }
    }

    /// x of each system `(systems, ..)`, repeated for each of its channels.
    pub fn per_channel(&self, x: &Tensor) -> Result<Tensor> {
        if self.copies == 1 {
            return Ok(x.clone());
        }
        let mut shape = x.dims().to_vec();
        shape.insert(1, self.copies);
        x.unsqueeze(1)?.broadcast_as(shape)?.contiguous()?.flatten(0, 1)
    }

    /// Ā and C ⊙ B̄, `(d, m)` each.
    fn discrete(&self) -> Result<[Complex; 2]> {
        let dt = Expression::parameter_as(&self.log_dt, (self.log_dt.elem_count(), 1)).exp();
        let a = Complex { re: -Expression::of(&self.a_re_log).exp(), im: Expression::of(&self.a_im) };
        let dt_a = a.scaled(&dt);
        let [a, b] = match self.discretisation {
            Discretisation::Zoh => [dt_a.exp(), dt_a.exp_m1().times(&a.recip())],
            Discretisation::Bilinear => {
                let denominator = dt_a.affine(-0.5, 1.0).recip();
                [dt_a.affine(0.5, 1.0).times(&denominator), denominator.scaled(&dt)]
            }
            Discretisation::Euler => [dt_a.affine(1.0, 1.0), a.affine(0.0, 1.0).scaled(&dt)],
        };
        let read = Complex::of(&self.c).times(&b);
        let [re, im, read_re, read_im] = ops::tensors([&a.re, &a.im, &read.re, &read.im])?;
        Ok([Complex { re, im }, Complex { re: read_re, im: read_im }])
    }

    /// Convolution kernel of `len` taps, `(d, len)`.
    pub fn kernel(&self, len: usize) -> Result<Tensor> {
        let [a, cb] = self.discrete()?;
        self.per_channel(&vandermonde_kernel(&a, &cb, len)?)
    }

    /// Ā and C ⊙ B̄ of all channels, `(channels, m)` each.
    fn of_channels(&self) -> Result<[Complex; 2]> {
        let [a, cb] = self.discrete()?;
        let repeated = |x: &Complex| -> Result<Complex> {
            Ok(Complex { re: self.per_channel(&x.re)?, im: self.per_channel(&x.im)? })
        };
        Ok([repeated(&a)?, repeated(&cb)?])
    }

    /// System of 2d channels along `seq_len` tokens: d channels of real parts, then d of imaginary parts, whose input
    /// is zero. The caller adds the value map that feeds both channels of a pair and the output map that sums them.
    pub fn system(&self, seq_len: usize) -> Result<Ltv> {
        let [a, cb] = self.of_channels()?;
        let repeat = |x: &Tensor| {
            let (channels, m) = x.dims2()?;
            x.unsqueeze(0)?.broadcast_as((seq_len, channels, m))
        };
        let pair = |re: &Tensor, im: &Tensor| repeat(&Tensor::cat(&[re, im], 0)?);
        let zero = a.re.zeros_like()?;
        // One state stands for a conjugate pair.
        let (re, im) = ((&cb.re * 2.0)?, (&cb.im * -2.0)?);
        let (decay, write) = (pair(&a.re, &a.re)?, pair(&zero.ones_like()?, &zero)?);
        Ok(Ltv { off_diagonal: OffDiagonal::Complex(repeat(&a.im)?), ..Ltv::new(decay, write, pair(&re, &im)?) })
    }

    /// Elements of the state per sequence.
    pub fn state_size(&self) -> usize {
        2 * self.copies * self.a_im.elem_count()
    }

    /// Initial state h, `(batch, 2, d, m)`.
    pub fn zero_state(&self, batch: usize) -> Result<State> {
        let (d, m) = self.a_im.dims2()?;
        let like = &self.a_im;
        let zeros = Tensor::zeros((batch, 2, self.copies * d, m), like.dtype(), like.device())?;
        Ok(State::new(vec![zeros]))
    }

    /// y_t `(batch, d)` and the next state for u_t `(batch, d)`.
    pub fn step(&self, u_t: &Tensor, state: &Tensor) -> Result<(Tensor, Tensor)> {
        let [a, cb] = self.of_channels()?;
        let part = |i| state.narrow(1, i, 1)?.squeeze(1);
        let h = Complex { re: part(0)?, im: part(1)? };
        let a_h = h.times(&a)?; // (batch, d, m)
        let h = Complex { re: a_h.re.broadcast_add(&u_t.unsqueeze(2)?)?, im: a_h.im };
        let y = (h.times(&cb)?.re.sum(D::Minus1)? * 2.0)?;
        Ok((y, Tensor::stack(&[h.re, h.im], 1)?))
    }
}

/// 2 Re Σ_k cb\[c,k\] a\[c,k\]^l for l < `len`, `(d, len)`: the kernel of conjugate pairs of states.
pub(super) fn vandermonde_kernel(a: &Complex, cb: &Complex, len: usize) -> Result<Tensor> {
    (Expression::of(&ops::vandermonde([&a.re, &a.im], [&cb.re, &cb.im], len)?) * 2.0).tensor()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;
    use candle_core::{DType, Device};

    /// One map by the kernel, by the steps, and by a scan over all states.
    #[test]
    fn convolution_recurrence_and_scan_are_one_map() {
        const LEN: usize = 37;
        let settings = [("preset", "smoke"), ("mixer", "s4d"), ("d", "6"), ("n", "5")];
        let model = recipes::run("mqar", &settings).unwrap().model;
        for (start, discretisation) in [
            (Start::Linear, Discretisation::Zoh),
            (Start::Inverse, Discretisation::Bilinear),
            (Start::Linear, Discretisation::Euler),
            (Start::Legs, Discretisation::Zoh),
            (Start::Real, Discretisation::Bilinear),
        ] {
            let params = Params::seeded(1, DType::F64, &Device::Cpu);
            let spec = MixerSpec::from(&model);
            let system = DiagonalSsm::new(&spec, start, discretisation, &params).unwrap();
            let (d, m) = system.a_im.dims2().unwrap();
            let u = Tensor::randn(0.0, 1.0, (2, LEN, d), &Device::Cpu).unwrap();
            let whole = ops::long_conv(&u, &system.kernel(LEN).unwrap()).unwrap();
            let mut state = system.zero_state(2).unwrap().0.remove(0);
            let steps = (0..LEN).map(|i| {
                let (y, next) = system.step(&u.get_on_dim(1, i).unwrap(), &state).unwrap();
                state = next;
                y
            });
            let steps = Tensor::stack(&steps.collect::<Vec<_>>(), 1).unwrap();
            let [a, read] = system.discrete().unwrap();
            let lambda = Tensor::stack(&[&a.re, &a.im], 0).unwrap();
            let lambda = lambda.reshape((1, 1, 2, d * m)).unwrap();
            let lambda = lambda.broadcast_as((2, LEN, 2, d * m)).unwrap();
            let written = u.unsqueeze(3).unwrap().broadcast_as((2, LEN, d, m)).unwrap();
            let written = written.contiguous().unwrap();
            let x = Tensor::stack(&[&written, &written.zeros_like().unwrap()], 2).unwrap();
            let x = x.reshape((2, LEN, 2, d * m)).unwrap();
            let h = ops::complex_scan(&lambda.contiguous().unwrap(), &x).unwrap();
            let h = h.reshape((2, LEN, 2, d, m)).unwrap();
            let part = |i| h.get_on_dim(2, i).unwrap();
            let h = Complex { re: part(0), im: part(1) };
            let scanned = (h.times(&read).unwrap().re.sum(D::Minus1).unwrap() * 2.0).unwrap();
            for other in [steps, scanned] {
                let apart = (&whole - other).unwrap().abs().unwrap().max_all().unwrap();
                assert!(apart.to_scalar::<f64>().unwrap() < 1e-10);
            }
        }
    }

    /// The normal part of HiPPO-LegS of two states is [[-1/2, -√3/2], [√3/2, -1/2]].
    #[test]
    fn starts_are_those_of_their_paper() {
        let [re, im] = Start::Legs.eigenvalues(1)[0];
        assert!((re + 0.5).abs() < 1e-12 && (im.abs() - 0.75f64.sqrt()).abs() < 1e-12, "{re} {im}");
        assert_eq!(Start::Real.eigenvalues(3), [[-1.0, 0.0], [-2.0, 0.0], [-3.0, 0.0]]);
        assert_eq!(Start::Linear.eigenvalues(2), [[-0.5, 0.0], [-0.5, PI]]);
        // Inverse and LegS have the same highest frequency, up to a few per cent.
        let highest =
            |start: Start| start.eigenvalues(64).into_iter().fold(0.0, |most: f64, [_, im]| most.max(im.abs()));
        assert!((highest(Start::Inverse) / highest(Start::Legs) - 1.0).abs() < 0.05);
    }

    /// With Euler's rule |Ā| of the initial modes is at most 1, and larger at steps 100 times as long; the modes of the
    /// other rules are stable at every step.
    #[test]
    fn under_every_rule_the_initial_modes_are_stable() {
        let settings = [("preset", "smoke"), ("mixer", "s4d"), ("d", "64"), ("n", "16")];
        let model = recipes::run("mqar", &settings).unwrap().model;
        for start in [Start::Linear, Start::Inverse, Start::Legs, Start::Real] {
            for discretisation in [Discretisation::Zoh, Discretisation::Bilinear, Discretisation::Euler] {
                let params = Params::seeded(1, DType::F64, &Device::Cpu);
                let spec = MixerSpec::from(&model);
                let mut system = DiagonalSsm::new(&spec, start, discretisation, &params).unwrap();
                let initial = system.log_dt.clone();
                let mut moduli = |steps: f64| {
                    system.log_dt = (&initial + steps.ln()).unwrap();
                    let [a, _] = system.discrete().unwrap();
                    let moduli = (a.re.sqr().unwrap() + a.im.sqr().unwrap()).unwrap().sqrt().unwrap();
                    moduli.max_all().unwrap().to_scalar::<f64>().unwrap()
                };
                assert!(moduli(1.0) <= 1.0);
                assert_eq!(moduli(100.0) > 1.0, discretisation == Discretisation::Euler);
            }
        }
    }

    /// The rules agree with the exact solution for a constant input to the first and second order of the step.
    #[test]
    fn the_rules_converge_to_the_zero_order_hold() {
        let settings = [("preset", "smoke"), ("mixer", "s4d"), ("d", "6"), ("n", "3")];
        let model = recipes::run("mqar", &settings).unwrap().model;
        let response = |discretisation, steps: usize| {
            let params = Params::seeded(1, DType::F64, &Device::Cpu);
            let system = DiagonalSsm::new(&MixerSpec::from(&model), Start::Linear, discretisation, &params).unwrap();
            let log_dt = (system.log_dt.zeros_like().unwrap() + (0.5 / steps as f64).ln()).unwrap();
            let kernel = DiagonalSsm { log_dt, ..system }.kernel(steps).unwrap();
            kernel.sum(1).unwrap() // y at time 1/2 for an input of 1
        };
        let error = |discretisation, steps| {
            let apart = (response(discretisation, steps) - response(Discretisation::Zoh, 7)).unwrap();
            apart.abs().unwrap().max_all().unwrap().to_scalar::<f64>().unwrap()
        };
        let ratio = |discretisation| error(discretisation, 200) / error(discretisation, 400);
        assert!(error(Discretisation::Zoh, 200) < 1e-12);
        assert!((ratio(Discretisation::Euler) - 2.0).abs() < 0.1, "{}", ratio(Discretisation::Euler));
        assert!((ratio(Discretisation::Bilinear) - 4.0).abs() < 0.1, "{}", ratio(Discretisation::Bilinear));
    }
}
