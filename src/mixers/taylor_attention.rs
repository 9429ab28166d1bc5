//! Softmax attention whose exponential is truncated to its Taylor polynomial T_P of order P: the system of Lemma 1,
//! truncated and trained as such,
//!
//! o_i = Σ_j T_P(q_i·k_j/√m) v_j / Σ_j T_P(q_i·k_j/√m),  T_P(x) = Σ_{p≤P} x^p / p!
//!
//! It is linear attention over the monomials (24) of queries and keys. With P = 2 its kernel is that of Based (Arora et
//! al. 2024). TaylorShift (Nauen et al. 2024) is `unit_qk=true`: T_P(τ cos(q_i, k_j)) with a learnt temperature τ per
//! head; `scaled_output=true` is its factor √(i/e) of the output, for the i tokens that a token sees and values of width
//! e, where the paper has the length of the sequence for i.

use super::linear_attention::{FeatureMap, LinearAttention};
use super::matrix_state::l2_normalize;
use super::{
    attention, Core, Entry, Family, Growth, MixerOption, MixerSpec, ReleasedBlock, StateNormPlace, FALSE_OR_TRUE,
};
use crate::ltv::lemmas::Monomials;
use crate::nn::{Init, Params};
use candle_core::{Device, Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "taylor",
    equation: "o_i = Σ_j T(q_i·k_j/√m) v_j / Σ_j T(q_i·k_j/√m), T(x) = Σ_p≤P x^p/p!",
    cite: "Lemma 1, (24)",
    variants: &["reference", "paper"],
    dsf: "N = d C(n/s+P, P)",
    heads: true,
    expands: true,
    rotary: true,
    bidirectional: true,
    released: ReleasedBlock::ATTENTION,
    options: &[
        MixerOption {
            name: "order",
            help: "order P of the series: `2`, 4, 6 or 8; weights of odd orders could be negative",
            default: |_| "2",
            accepts: |v| matches!(v, "2" | "4" | "6" | "8"),
            ..MixerOption::DEFAULT
        },
        UNIT_QK,
        SCALED_OUTPUT,
    ],
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk"], scaled: &["wq", "bq"] },
    stem: "taylor_attention",
    own_init: &["log_tau"],
    work: |spec| {
        let (features, heads) = (features(spec), spec.n_heads);
        let work = attention::work(spec, Core::ChunkedScan);
        Some(work.over_features(features, 2 * heads))
    },
    build: |spec, params| {
        let map = |device: &Device| Taylor::new(spec, params, device);
        Ok(Box::new(LinearAttention::new(spec, params, map)?))
    },
    ..Entry::of(Family::LinearAttention)
};

/// Queries and keys of length 1, as in TaylorShift.
const UNIT_QK: MixerOption = MixerOption {
    name: "unit_qk",
    help:
        "`false`; `true` divides queries and keys by their lengths and learns a temperature per head, as in TaylorShift",
    ..FALSE_OR_TRUE
};

/// Output that keeps its size however many values it is the mean of, as in TaylorShift.
const SCALED_OUTPUT: MixerOption = MixerOption {
    name: "scaled_output",
    help:
        "`false`; `true` multiplies the output by √(i/e), for the i tokens that a token sees and values of width e, as \
           in TaylorShift",
    ..FALSE_OR_TRUE
};

/// Order P.
fn order(spec: &MixerSpec) -> usize {
    spec.parsed("order").unwrap_or(2)
}

/// Number of features of a head.
fn features(spec: &MixerSpec) -> usize {
    Monomials::count(spec.d_state / spec.n_heads, order(spec))
}

/// Feature map φ: the monomials x^ν / √ν! of x / m^{1/4}, or of √τ x/|x|, up to degree P, with φ(q)·φ(k) = T_P(q·k/√m)
/// or T_P(τ cos(q, k)).
struct Taylor {
    /// Width m of queries and keys.
    variables: usize,
    /// ln τ per head, `(heads)`, where queries and keys have length 1.
    log_tau: Option<Tensor>,
    scales_output: bool,
    /// Per degree from 1 on, the factors of each monomial: index of a monomial of the degree below, and of a variable.
    degrees: Vec<[Tensor; 2]>,
    /// Scale 1/√ν! of each monomial, `(features, 1)`.
    scales: Tensor,
}

impl Taylor {
    fn new(spec: &MixerSpec, params: &Params, device: &Device) -> Result<Self> {
        let variables = spec.d_state / spec.n_heads;
        let monomials = Monomials::new(variables, order(spec));
        let indices = |ids: &dyn Fn(usize) -> Vec<u32>| {
            let degrees = 0..monomials.degrees.len();
            let tensor = |degree| Tensor::new(ids(degree), device);
            degrees.map(tensor).collect::<Result<Vec<_>>>()
        };
        let parents = indices(&|p| monomials.degrees[p].iter().map(|m| m.parent).collect())?;
        let factors = indices(&|p| monomials.degrees[p].iter().map(|m| m.variable).collect())?;
        let scales = monomials.of(&vec![1.0; variables]);
        let count = scales.len();
        let log_tau = || params.get("log_tau", spec.n_heads, Init::Constant(0.0));
        Ok(Self {
            variables,
            scales_output: spec.has(SCALED_OUTPUT.name),
            log_tau: spec.has(UNIT_QK.name).then(log_tau).transpose()?,
            degrees: parents.into_iter().zip(factors).map(<[_; 2]>::from).collect(),
            scales: Tensor::from_vec(scales, (count, 1), device)?,
        })
    }
}

impl Taylor {
    /// x `(rows, heads, m)`, scaled so that its products are the arguments of the series.
    fn scaled(&self, x: &Tensor) -> Result<Tensor> {
        match &self.log_tau {
            Some(log_tau) => {
                let root = (log_tau * 0.5)?.exp()?.to_dtype(x.dtype())?;
                l2_normalize(x)?.broadcast_mul(&root.reshape((1, (), 1))?)
            }
            None => x * (self.variables as f64).powf(-0.25),
        }
    }
}

impl FeatureMap for Taylor {
    fn width(&self) -> usize {
        self.scales.elem_count()
    }

    fn scales_output(&self) -> bool {
        self.scales_output
    }

    /// Monomials are rows while they are built, so that selecting one copies contiguous memory.
    fn features(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, rows, width) = x.dims3()?;
        let heads = width / self.variables;
        let x = self.scaled(&x.reshape((batch * rows, heads, self.variables))?)?;
        let x = x.flatten_to(1)?.t()?.contiguous()?; // (m, batch · rows · heads)
        let mut degree = Tensor::ones((1, x.dim(1)?), x.dtype(), x.device())?;
        let mut all = vec![degree.clone()];
        for [parents, variables] in &self.degrees {
            degree = (degree.index_select(parents, 0)? * x.index_select(variables, 0)?)?;
            all.push(degree.clone());
        }
        let scales = self.scales.to_dtype(x.dtype())?;
        let features = Tensor::cat(&all, 0)?.broadcast_mul(&scales)?;
        let features = features.t()?.contiguous()?;
        features.reshape((batch, rows, heads * self.width()))
    }
}
