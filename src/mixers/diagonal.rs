//! Time-invariant diagonal systems: per channel m complex states with an input of their own speed, as a kernel as long as the
//! sequence and as a recurrence.

use super::complex::Complex;
use super::{MixerSpec, State};
use crate::ltv::{Beside, Ltv};
use crate::nn::{Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
use candle_core::{Result, Tensor, D};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// How the imaginary parts of A start (Gu et al. 2022).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Frequencies {
    /// π k.
    Linear,
    /// (2m/π) (2m/(2k+1) - 1).
    Inverse,
}

/// How the continuous system becomes a recurrence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Zero-order hold.
    Hold,
    /// The trapezoidal rule.
    Bilinear,
}

/// The parameters of S4D: A = -e^{a_re_log} + i a_im, B = 1, C, and a step Δ for every channel.
pub(super) struct Diagonal {
    log_dt: Tensor,
    a_re_log: Tensor,
    a_im: Tensor,
    c: Complex,
    rule: Rule,
}

/// ln Δ, even between 1e-3 and 1e-1 on its own scale.
pub(super) fn log_step(_index: usize, rng: &mut Rng) -> f64 {
    let (low, high) = (1e-3_f64.ln(), 1e-1_f64.ln());
    low + (high - low) * rng.uniform()
}

impl Diagonal {
    /// For `d_model` channels with `d_state` conjugate pairs each.
    pub fn new(
        spec: &MixerSpec,
        frequencies: Frequencies,
        rule: Rule,
        params: &Params,
    ) -> Result<Self> {
        let (d, m) = (spec.d_model, spec.d_state);
        let start = move |i: usize, _: &mut _| {
            let (k, n) = ((i % m) as f64, 2.0 * m as f64);
            match frequencies {
                Frequencies::Linear => PI * k,
                Frequencies::Inverse => n / PI * (n / (2.0 * k + 1.0) - 1.0),
            }
        };
        let read = |name| params.get(name, (d, m), Init::Normal(FRAC_1_SQRT_2));
        Ok(Self {
            log_dt: params.get("log_dt", d, Init::Each(&log_step))?,
            a_re_log: params.get("a_re_log", (d, m), Init::Constant(0.5f64.ln()))?,
            a_im: params.get("a_im", (d, m), Init::Each(&start))?,
            c: Complex {
                re: read("c_re")?,
                im: read("c_im")?,
            },
            rule,
        })
    }

    /// The discrete A and C ⊙ B, `(d, m)` each.
    fn discrete(&self) -> Result<[Complex; 2]> {
        let dt = self.log_dt.exp()?.unsqueeze(1)?;
        let a = Complex {
            re: self.a_re_log.exp()?.neg()?,
            im: self.a_im.clone(),
        };
        let z = a.scaled(&dt)?;
        let [a, b] = match self.rule {
            Rule::Hold => [z.exp()?, z.exp_m1()?.times(&a.recip()?)?],
            Rule::Bilinear => {
                let denominator = z.affine(-0.5, 1.0)?.recip()?;
                [
                    z.affine(0.5, 1.0)?.times(&denominator)?,
                    denominator.scaled(&dt)?,
                ]
            }
        };
        Ok([a, self.c.times(&b)?])
    }

    /// The kernel of `len` taps, `(d, len)`.
    pub fn kernel(&self, len: usize) -> Result<Tensor> {
        let [a, read] = self.discrete()?;
        taps(&a, &read, len)
    }

    /// The system along `seq_len` tokens: d channels of real parts, and d of imaginary ones, which nothing is written to. Each
    /// pair reads the same input and adds to the same output, which the caller's maps have to say.
    pub fn system(&self, seq_len: usize) -> Result<Ltv> {
        let [a, read] = self.discrete()?;
        let along = |x: &Tensor| {
            let (channels, m) = x.dims2()?;
            x.unsqueeze(0)?.broadcast_as((seq_len, channels, m))
        };
        let pair = |re: &Tensor, im: &Tensor| along(&Tensor::cat(&[re, im], 0)?);
        let none = a.re.zeros_like()?;
        // Of each conjugate pair one number is kept.
        let (re, im) = ((&read.re * 2.0)?, (&read.im * -2.0)?);
        let (decay, write) = (pair(&a.re, &a.re)?, pair(&none.ones_like()?, &none)?);
        Ok(Ltv {
            beside: Beside::Turn(along(&a.im)?),
            ..Ltv::new(decay, write, pair(&re, &im)?)
        })
    }

    /// Numbers of state a sequence.
    pub fn state_size(&self) -> usize {
        2 * self.a_im.elem_count()
    }

    /// The state before the first token, `(batch, 2, d, m)`.
    pub fn zero_state(&self, batch: usize) -> Result<State> {
        let (d, m) = self.a_im.dims2()?;
        let like = &self.a_im;
        let zeros = Tensor::zeros((batch, 2, d, m), like.dtype(), like.device())?;
        Ok(State(vec![zeros]))
    }

    /// The output `(batch, d)` for one input `(batch, d)`, and the state behind it.
    pub fn step(&self, x: &Tensor, state: &Tensor) -> Result<(Tensor, Tensor)> {
        let [a, read] = self.discrete()?;
        let part = |i| state.narrow(1, i, 1)?.squeeze(1);
        let h = Complex {
            re: part(0)?,
            im: part(1)?,
        };
        let turned = h.times(&a)?;
        let h = Complex {
            re: turned.re.broadcast_add(&x.unsqueeze(2)?)?,
            im: turned.im,
        };
        let y = (h.times(&read)?.re.sum(D::Minus1)? * 2.0)?;
        Ok((y, Tensor::stack(&[h.re, h.im], 1)?))
    }
}

/// 2 Re Σ_k read\[c,k\] a\[c,k\]^l for l below `len`, `(d, len)`: what a state and its conjugate read together.
pub(super) fn taps(a: &Complex, read: &Complex, len: usize) -> Result<Tensor> {
    ops::vandermonde([&a.re, &a.im], [&read.re, &read.im], len)? * 2.0
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
        let settings = [
            ("preset", "smoke"),
            ("mixer", "s4d"),
            ("d", "6"),
            ("n", "5"),
        ];
        let model = recipes::run("mqar", &settings).unwrap().model;
        for (frequencies, rule) in [
            (Frequencies::Linear, Rule::Hold),
            (Frequencies::Inverse, Rule::Bilinear),
        ] {
            let params = Params::seeded(1, DType::F64, &Device::Cpu);
            let spec = MixerSpec::from(&model);
            let system = Diagonal::new(&spec, frequencies, rule, &params).unwrap();
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
            let written = u
                .unsqueeze(3)
                .unwrap()
                .broadcast_as((2, LEN, d, m))
                .unwrap();
            let written = written.contiguous().unwrap();
            let x = Tensor::stack(&[&written, &written.zeros_like().unwrap()], 2).unwrap();
            let x = x.reshape((2, LEN, 2, d * m)).unwrap();
            let h = ops::complex_scan(&lambda.contiguous().unwrap(), &x).unwrap();
            let h = h.reshape((2, LEN, 2, d, m)).unwrap();
            let part = |i| h.get_on_dim(2, i).unwrap();
            let h = Complex {
                re: part(0),
                im: part(1),
            };
            let scanned = (h.times(&read).unwrap().re.sum(D::Minus1).unwrap() * 2.0).unwrap();
            for other in [steps, scanned] {
                let apart = (&whole - other).unwrap().abs().unwrap().max_all().unwrap();
                assert!(apart.to_scalar::<f64>().unwrap() < 1e-10);
            }
        }
    }
}
