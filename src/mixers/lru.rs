//! Linear recurrent unit (Orvieto et al. 2023): a complex diagonal recurrence, parametrised so that |λ| < 1,
//!
//! h_i = λ ⊙ h_{i-1} + γ ⊙ B u_i,  y_i = Re(C h_i) + D ⊙ u_i,  λ = e^(-e^ν + i e^θ)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | ν, θ | parameters of modulus and phase, stored as `nu_log`, `theta_log` | `(N)` |
//! | γ | normalisation of the input, learnt; √(1 - λλ*) at initialisation | `(N)` |

use super::complex::Complex;
use super::complex_state::{has_glu, ComplexMatrices, ComplexMixer, ComplexState, ACTIVATION};
use super::{in_range, Core, Entry, Family, Growth, MixerOption, MixerSpec, MixerWork};
use crate::nn::{Init, Params};
use crate::ops::rng::Rng;
use candle_core::{DType, Result, Tensor};
use std::f64::consts::TAU;

pub(super) const ENTRY: Entry = Entry {
    name: "lru",
    equation: "h_i = λ ⊙ h_{i-1} + γ ⊙ B u_i, y_i = Re(C h_i) + D ⊙ u_i, λ = e^(-e^ν + i e^θ)",
    cite: "Orvieto et al. 2023",
    dsf: "N = 2d",
    options: &[
        MixerOption {
            name: "state",
            help: "number of complex states, N: `auto` is d, up to 65536",
            default: |_| "auto",
            accepts: |v| v == "auto" || in_range(v, 1..=1 << 16),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "r_min",
            help: "smallest initial |λ|, from 0 to below 1; the largest is 0.999",
            default: |_| "0.9",
            accepts: |v| v.parse().is_ok_and(|r: f64| (0.0..R_MAX).contains(&r)),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            help: "behind the state: `none`, or `glu`, the GELU and gated linear unit of the published block",
            ..ACTIVATION
        },
    ],
    growth: Growth::No("the option `state` sets the size of its state: there is no n to grow"),
    stem: "lru",
    own_init: &["b_im", "b_re", "c_im", "c_re", "dskip", "gamma_log", "nu_log", "theta_log"],
    work: |spec| {
        let (d, state) = (spec.d_model, 2 * states(spec));
        let glu = if has_glu(spec) { 2 * d * d } else { 0 };
        Some(MixerWork::new(Core::GatedScan, [state, 1], 2 * d * state + glu))
    },
    build: |spec, params| Ok(Box::new(ComplexMixer::new(Lru::new(spec, params)?, true, spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

/// Largest initial |λ|.
const R_MAX: f64 = 0.999;

/// Number of complex states, N.
fn states(spec: &MixerSpec) -> usize {
    spec.parsed("state").unwrap_or(spec.d_model)
}

struct Lru {
    nu_log: Tensor,
    theta_log: Tensor,
    gamma_log: Tensor,
    /// B before its normalisation, `(N, d)`.
    b: Complex,
    /// C, `(d, N)`.
    c: Complex,
    dskip: Tensor,
}

impl Lru {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, states(spec));
        let r_min: f64 = spec.parsed("r_min").unwrap_or(0.0);
        // A uniform |λ|² makes λ uniform on the ring between r_min and r_max.
        let squared = move |rng: &mut Rng| r_min.powi(2) + (R_MAX.powi(2) - r_min.powi(2)) * rng.uniform();
        let initial_nu = |_: usize, rng: &mut Rng| (-0.5 * squared(rng).ln()).ln();
        let nu_log = params.get("nu_log", n, Init::Each(&initial_nu))?;
        let nu = nu_log.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let gamma = |i: usize, _: &mut Rng| 0.5 * (-(-2.0 * nu[i].exp()).exp_m1()).ln();
        let theta = |_: usize, rng: &mut Rng| (TAU * rng.uniform().max(1e-6)).ln();
        let normal =
            |name, shape: (usize, usize), variance: f64| params.get(name, shape, Init::Normal(variance.sqrt()));
        Ok(Self {
            nu_log,
            theta_log: params.get("theta_log", n, Init::Each(&theta))?,
            gamma_log: params.get("gamma_log", n, Init::Each(&gamma))?,
            b: Complex { re: normal("b_re", (n, d), 0.5 / d as f64)?, im: normal("b_im", (n, d), 0.5 / d as f64)? },
            c: Complex { re: normal("c_re", (d, n), 1.0 / n as f64)?, im: normal("c_im", (d, n), 1.0 / n as f64)? },
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
        })
    }
}

impl ComplexState for Lru {
    fn matrices(&self) -> Result<ComplexMatrices> {
        let exponent = Complex { re: self.nu_log.exp()?.neg()?, im: self.theta_log.exp()? };
        Ok(ComplexMatrices {
            lambda: exponent.exp()?,
            b: self.b.scaled(&self.gamma_log.exp()?.unsqueeze(1)?)?,
            c: self.c.clone(),
        })
    }

    fn skip(&self) -> &Tensor {
        &self.dskip
    }

    fn states(&self) -> usize {
        self.nu_log.elem_count()
    }
}
