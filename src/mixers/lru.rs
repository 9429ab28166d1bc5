//! Linear recurrent unit (Orvieto et al. 2023): a complex diagonal recurrence, parametrised so that |λ| < 1,
//!
//! h_i = λ ⊙ h_{i-1} + γ ⊙ B u_i,  y_i = Re(C h_i) + D ⊙ u_i,  λ = e^(-e^ν + i e^θ)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | ν, θ | parameters of modulus and phase, stored as `nu_log`, `theta_log` | `(N)` |
//! | γ | normalisation of the input, learnt; √(1 - λλ*) at initialisation | `(N)` |
//!
//! Options take back the steps of the paper's ablation: λ learnt as real and imaginary part (`eigenvalues=linear`), no γ
//! (`gamma=false`), and initial values on the whole disk (`r_min=0`, `r_max=1`). The variant `dense` ([`LinearRnn`]) is
//! its first step.

use super::complex::Complex;
use super::complex_state::{has_glu, ComplexMatrices, ComplexMixer, ComplexState, ACTIVATION};
use super::linear_rnn::LinearRnn;
use super::{in_range, Core, Entry, Family, Growth, MixerOption, MixerSpec, MixerWork, FALSE_OR_TRUE};
use crate::error::{self, refuse};
use crate::nn::{Init, Params};
use crate::ops::rng::Rng;
use crate::ops::Expression;
use candle_core::{DType, Result, Tensor};
use std::f64::consts::TAU;

pub(super) const ENTRY: Entry = Entry {
    name: "lru",
    equation: "h_i = λ ⊙ h_{i-1} + γ ⊙ B u_i, y_i = Re(C h_i) + D ⊙ u_i, λ = e^(-e^ν + i e^θ)",
    cite: "Orvieto et al. 2023",
    variants: &["paper", "dense"],
    dsf: "N = 2d (variant paper)",
    options: &[
        MixerOption {
            name: "state",
            help: "number of complex states, real ones in variant `dense`, N: `auto` is d, up to 65536",
            default: |_| "auto",
            accepts: |v| v == "auto" || in_range(v, 1..=1 << 16),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "r_min",
            help: "smallest initial |λ|: `0.9`, or a number from 0 to below `r_max`",
            default: |_| "0.9",
            accepts: |v| v.parse().is_ok_and(|r: f64| (0.0..1.0).contains(&r)),
            variants: PAPER,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "r_max",
            help: "largest initial |λ|: `0.999`, or a number above 0 and up to 1",
            default: |_| "0.999",
            accepts: |v| v.parse().is_ok_and(|r: f64| r > 0.0 && r <= 1.0),
            implied: true,
            variants: PAPER,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "max_phase",
            help: "largest initial phase of λ as a share of the circle: `1`, or a number above 0 and below 1",
            default: |_| "1",
            accepts: |v| v.parse().is_ok_and(|share: f64| share > 0.0 && share <= 1.0),
            implied: true,
            variants: PAPER,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "eigenvalues",
            help: "form of λ: `exp`, e^(-e^ν + i e^θ), which stays inside the unit circle, or `linear`, its real and \
                   imaginary parts",
            default: |_| "exp",
            accepts: |v| v == "exp" || v == "linear",
            implied: true,
            variants: PAPER,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "gamma",
            help: "whether the input of each state is scaled by γ: `true`, or `false`",
            default: |_| "true",
            variants: PAPER,
            ..FALSE_OR_TRUE
        },
        MixerOption {
            help: "after the state: `none`, or `glu`, the GELU and gated linear unit of the published block",
            ..ACTIVATION
        },
    ],
    check,
    growth: Growth::No("the option `state` sets the size of its state: there is no n to grow"),
    stem: "lru",
    own_init: &[
        "a",
        "b",
        "b_im",
        "b_re",
        "c",
        "c_im",
        "c_re",
        "dskip",
        "gamma_log",
        "lambda_im",
        "lambda_re",
        "nu_log",
        "theta_log",
    ],
    work: |spec| {
        // Sequential with a dense matrix: no throughput of the machine bounds its time.
        if is_dense(spec) {
            return None;
        }
        let (d, state) = (spec.d_model, 2 * states(spec));
        let glu = if has_glu(spec) { 2 * d * d } else { 0 };
        Some(MixerWork::new(Core::GatedScan, [state, 1], 2 * d * state + glu))
    },
    build: |spec, params| match is_dense(spec) {
        true => Ok(Box::new(LinearRnn::new(states(spec), spec, params)?)),
        false => Ok(Box::new(ComplexMixer::new(Lru::new(spec, params)?, true, spec, params)?)),
    },
    ..Entry::of(Family::StateSpace)
};

/// Variant with eigenvalues as parameters.
const PAPER: &[&str] = &["paper"];

fn is_dense(spec: &MixerSpec) -> bool {
    spec.variant == "dense"
}

/// Initial eigenvalues λ, uniform on a ring or on a sector of it.
#[derive(Clone, Copy)]
struct Ring {
    r_min: f64,
    r_max: f64,
    /// Largest phase, at most 2π.
    max_phase: f64,
}

impl Ring {
    fn of(spec: &MixerSpec) -> Self {
        Self {
            r_min: spec.parsed("r_min").unwrap_or(0.0),
            r_max: spec.parsed("r_max").unwrap_or(0.999),
            max_phase: TAU * spec.parsed("max_phase").unwrap_or(1.0),
        }
    }

    /// |λ|²; it is uniform.
    fn squared(self, rng: &mut Rng) -> f64 {
        self.r_min.powi(2) + (self.r_max.powi(2) - self.r_min.powi(2)) * rng.uniform()
    }

    fn phase(self, rng: &mut Rng) -> f64 {
        self.max_phase * rng.uniform().max(1e-6)
    }

    /// Im λ for Re λ on a whole ring, where it is uniform between the two circles, above or below the real axis.
    fn imaginary(self, re: f64, rng: &mut Rng) -> f64 {
        let [least, most] = [self.r_min, self.r_max].map(|r| (r * r - re * re).max(0.0).sqrt());
        let (height, above) = (least + (most - least) * rng.uniform(), rng.uniform() < 0.5);
        if above {
            height
        } else {
            -height
        }
    }
}

fn check(spec: &MixerSpec) -> error::Result<()> {
    let ring = Ring::of(spec);
    if ring.r_min >= ring.r_max {
        refuse!(flag "--option" = format!("r_min={}", ring.r_min), "is not below r_max={}: |λ| starts between the two", ring.r_max);
    }
    if is_linear(spec) && ring.max_phase < TAU {
        refuse!(flag "--option" = format!("max_phase={}", ring.max_phase / TAU), "needs eigenvalues=exp: λ by its real and imaginary parts starts on the whole ring");
    }
    Ok(())
}

/// Whether λ is learnt by its real and imaginary parts.
fn is_linear(spec: &MixerSpec) -> bool {
    spec.option("eigenvalues") == Some("linear")
}

/// Number of complex states, N.
fn states(spec: &MixerSpec) -> usize {
    spec.parsed("state").unwrap_or(spec.d_model)
}

/// Parameters of λ.
enum Eigenvalues {
    /// λ = e^(-e^ν + i e^θ).
    Exp { nu_log: Tensor, theta_log: Tensor },
    /// Its real and imaginary parts.
    Linear(Complex),
}

impl Eigenvalues {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (n, ring) = (states(spec), Ring::of(spec));
        if is_linear(spec) {
            let initial_re = |_: usize, rng: &mut Rng| ring.squared(rng).sqrt() * ring.phase(rng).cos();
            let re = params.get("lambda_re", n, Init::Each(&initial_re))?;
            let known = re.to_dtype(DType::F64)?.to_vec1::<f64>()?;
            let initial_im = |i: usize, rng: &mut Rng| ring.imaginary(known[i], rng);
            return Ok(Self::Linear(Complex { im: params.get("lambda_im", n, Init::Each(&initial_im))?, re }));
        }
        let initial_nu = |_: usize, rng: &mut Rng| (-0.5 * ring.squared(rng).ln()).ln();
        let initial_theta = |_: usize, rng: &mut Rng| ring.phase(rng).ln();
        Ok(Self::Exp {
            nu_log: params.get("nu_log", n, Init::Each(&initial_nu))?,
            theta_log: params.get("theta_log", n, Init::Each(&initial_theta))?,
        })
    }

    /// ln γ at initialisation, γ = √(1 - λλ*).
    fn initial_gamma_log(&self) -> Result<Vec<f64>> {
        let numbers = |x: &Tensor| x.to_dtype(DType::F64)?.to_vec1::<f64>();
        Ok(match self {
            Self::Exp { nu_log, .. } => {
                numbers(nu_log)?.iter().map(|nu| 0.5 * (-(-2.0 * nu.exp()).exp_m1()).ln()).collect()
            }
            Self::Linear(Complex { re, im }) => {
                let parts = numbers(re)?.into_iter().zip(numbers(im)?);
                parts.map(|(re, im)| 0.5 * (1.0 - re * re - im * im).max(1e-12).ln()).collect()
            }
        })
    }

    fn lambda(&self) -> Result<Complex> {
        match self {
            Self::Exp { nu_log, theta_log } => {
                let log = Complex { re: -Expression::of(nu_log).exp(), im: Expression::of(theta_log).exp() };
                log.exp().tensors()
            }
            Self::Linear(lambda) => Ok(lambda.clone()),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Exp { nu_log: x, .. } | Self::Linear(Complex { re: x, .. }) => x.elem_count(),
        }
    }
}

struct Lru {
    eigenvalues: Eigenvalues,
    /// ln γ; `None` where the input is not scaled.
    gamma_log: Option<Tensor>,
    /// B before its normalisation, `(N, d)`.
    b: Complex,
    /// C, `(d, N)`.
    c: Complex,
    dskip: Tensor,
}

impl Lru {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, states(spec));
        let eigenvalues = Eigenvalues::new(spec, params)?;
        let gamma_log = || {
            let initial = eigenvalues.initial_gamma_log()?;
            params.get("gamma_log", n, Init::Each(&|i, _| initial[i]))
        };
        let gamma_log = (spec.option("gamma") != Some("false")).then(gamma_log).transpose()?;
        let normal =
            |name, shape: (usize, usize), variance: f64| params.get(name, shape, Init::Normal(variance.sqrt()));
        Ok(Self {
            eigenvalues,
            gamma_log,
            b: Complex { re: normal("b_re", (n, d), 0.5 / d as f64)?, im: normal("b_im", (n, d), 0.5 / d as f64)? },
            c: Complex { re: normal("c_re", (d, n), 1.0 / n as f64)?, im: normal("c_im", (d, n), 1.0 / n as f64)? },
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
        })
    }
}

impl ComplexState for Lru {
    fn matrices(&self) -> Result<ComplexMatrices> {
        let b = match &self.gamma_log {
            Some(gamma_log) => {
                let gamma = Expression::parameter_as(gamma_log, (gamma_log.elem_count(), 1)).exp();
                Complex::of(&self.b).scaled(&gamma).tensors()?
            }
            None => self.b.clone(),
        };
        Ok(ComplexMatrices { lambda: self.eigenvalues.lambda()?, b, c: self.c.clone() })
    }

    fn skip(&self) -> &Tensor {
        &self.dskip
    }

    fn states(&self) -> usize {
        self.eigenvalues.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;
    use candle_core::Device;

    /// In both forms |λ|² starts uniform between `r_min`² and `r_max`², and γ is √(1 - |λ|²).
    #[test]
    fn eigenvalues_start_on_their_ring() {
        for form in ["exp", "linear"] {
            let form = format!("eigenvalues={form}");
            let options =
                [("option", &*form), ("option", "r_min=0.6"), ("option", "r_max=0.8"), ("option", "state=4000")];
            let settings = [&[("preset", "smoke"), ("mixer", "lru")][..], &options].concat();
            let model = recipes::run("mqar", &settings).unwrap().model;
            let lru = Lru::new(&MixerSpec::from(&model), &Params::seeded(1, DType::F64, &Device::Cpu)).unwrap();
            let Complex { re, im } = lru.eigenvalues.lambda().unwrap();
            let squared = (re.sqr().unwrap() + im.sqr().unwrap()).unwrap();
            let gamma = lru.gamma_log.unwrap().exp().unwrap().to_vec1::<f64>().unwrap();
            let squared = squared.to_vec1::<f64>().unwrap();
            assert!(squared.iter().all(|x| (0.36 - 1e-9..0.64 + 1e-9).contains(x)), "{form}");
            let mean = squared.iter().sum::<f64>() / 4000.0;
            assert!((mean - 0.5).abs() < 0.006, "{form}: {mean}");
            let apart = squared.iter().zip(&gamma).map(|(squared, gamma)| (1.0 - squared - gamma * gamma).abs());
            assert!(apart.fold(0.0, f64::max) < 1e-12, "{form}");
            // Above and below the real axis alike.
            let above = im.to_vec1::<f64>().unwrap().iter().filter(|im| **im > 0.0).count();
            assert!((1850..2150).contains(&above), "{form}: {above}");
        }
    }

    #[test]
    fn rings_that_are_none_are_refused() {
        for (option, other, part) in [
            ("r_min=0.9", "r_max=0.5", "r_min=0.9: is not below r_max=0.5"),
            ("max_phase=0.5", "eigenvalues=linear", "max_phase=0.5: needs eigenvalues=exp"),
        ] {
            let settings = [("preset", "smoke"), ("mixer", "lru"), ("option", option), ("option", other)];
            let error = recipes::run("mqar", &settings).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
