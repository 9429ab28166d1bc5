//! S5 (Smith et al. 2023): one complex diagonal state space model for all channels together (MIMO), where S4 has one
//! per channel,
//!
//! h_i = e^(ΔΛ) h_{i-1} + Λ⁻¹ (e^(ΔΛ) - I) B u_i,  y_i = 2 Re(C h_i) + D ⊙ u_i
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | Λ | continuous-time eigenvalues -e^(`a_re_log`) + i `a_im`, one of each conjugate pair | `(P)` |
//! | Δ | step size per state | `(P)` |

use super::complex::Complex;
use super::complex_state::{has_glu, ComplexMatrices, ComplexMixer, ComplexState, ACTIVATION};
use super::diagonal::initial_log_dt;
use super::{in_range, Core, Entry, Family, Growth, MixerOption, MixerSpec, MixerWork};
use crate::nn::{Init, Params};
use crate::ops::{self, Expression};
use candle_core::{Result, Tensor};
use std::f64::consts::PI;

pub(super) const ENTRY: Entry = Entry {
    name: "s5",
    equation: "h_i = e^(ΔΛ) h_{i-1} + Λ⁻¹(e^(ΔΛ) - I) B u_i, y_i = 2 Re(C h_i) + D ⊙ u_i",
    cite: "Smith et al. 2023",
    dsf: "N = d",
    options: &[
        MixerOption {
            name: "state",
            help: "number of conjugate pairs of states, P: `auto` is d/2, up to 65536",
            default: |_| "auto",
            accepts: |v| v == "auto" || in_range(v, 1..=1 << 16),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            help: "after the state: `none`, or `glu`, the GELU and half of a gated linear unit of the published block, g ⊙ σ(W g + b)",
            ..ACTIVATION
        },
    ],
    growth: Growth::No("the option `state` sets the size of its state: there is no n to grow"),
    stem: "s5",
    own_init: &["a_im", "a_re_log", "b_im", "b_re", "c_im", "c_re", "dskip", "log_dt"],
    work: |spec| {
        let (d, state) = (spec.d_model, 2 * pairs(spec));
        let glu = if has_glu(spec) { d * d } else { 0 };
        Some(MixerWork::new(Core::GatedScan, [state, 1], 2 * d * state + glu))
    },
    build: |spec, params| Ok(Box::new(ComplexMixer::new(S5::new(spec, params)?, false, spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

/// Number of conjugate pairs, P.
fn pairs(spec: &MixerSpec) -> usize {
    spec.parsed("state").unwrap_or(spec.d_model.div_ceil(2))
}

struct S5 {
    log_dt: Tensor,
    a_re_log: Tensor,
    a_im: Tensor,
    b: Complex,
    c: Complex,
    dskip: Tensor,
}

impl S5 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, pairs) = (spec.d_model, pairs(spec));
        // S4D-Lin (Gu et al. 2022), close to the eigenvalues of the normal part of HiPPO-LegS in the published code.
        let frequency = move |i: usize, _: &mut _| PI * i as f64;
        let normal =
            |name, shape: (usize, usize), variance: f64| params.get(name, shape, Init::Normal(variance.sqrt()));
        Ok(Self {
            log_dt: params.get("log_dt", pairs, Init::Each(&initial_log_dt))?,
            a_re_log: params.get("a_re_log", pairs, Init::Constant(0.5f64.ln()))?,
            a_im: params.get("a_im", pairs, Init::Each(&frequency))?,
            b: Complex {
                re: normal("b_re", (pairs, d), 0.5 / d as f64)?,
                im: normal("b_im", (pairs, d), 0.5 / d as f64)?,
            },
            c: Complex {
                re: normal("c_re", (d, pairs), 0.5 / pairs as f64)?,
                im: normal("c_im", (d, pairs), 0.5 / pairs as f64)?,
            },
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
        })
    }
}

impl ComplexState for S5 {
    fn matrices(&self) -> Result<ComplexMatrices> {
        let (log_dt, a_re_log) = (Expression::of(&self.log_dt), Expression::of(&self.a_re_log));
        let lambda = Complex { re: -a_re_log.exp(), im: Expression::of(&self.a_im) };
        let dt_lambda = lambda.scaled(&log_dt.exp());
        // Zero-order hold: Λ⁻¹ (e^(ΔΛ) - I)
        let (decay, hold) = (dt_lambda.exp(), dt_lambda.exp_m1().times(&lambda.recip()));
        let [re, im, hold_re, hold_im] = ops::tensors([&decay.re, &decay.im, &hold.re, &hold.im])?;
        let hold = Complex { re: hold_re.unsqueeze(1)?, im: hold_im.unsqueeze(1)? }; // (P, 1)
        Ok(ComplexMatrices {
            lambda: Complex { re, im },
            b: self.b.times(&hold)?,
            // One state stands for a conjugate pair.
            c: self.c.affine(2.0, 0.0)?,
        })
    }

    fn skip(&self) -> &Tensor {
        &self.dskip
    }

    fn states(&self) -> usize {
        self.a_im.elem_count()
    }
}
