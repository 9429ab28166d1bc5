//! Gated linear attention (Yang et al. 2023): linear attention with a data-dependent decay of each key feature,
//!
//! S_t = diag(f_t) S_{t-1} + k_t v_tᵀ,  y_t = W (silu(W_g u_t) ⊙ norm(S_tᵀ q_t)),  f = σ(W_2 W_1 u + b)^(1/16)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | S | state, one matrix per head | `(batch, heads, m, e)` |
//! | f | forget gate per key feature | `(batch, seq_len, n)` |

use super::matrix_state::{
    self, has_output_gate, norm_eps, normed_and_gated, value_width, work, HeadSizes, MatrixMixer, MatrixState,
    ScanInputs, OUTPUT_GATE, VALUE_WIDTH,
};
use super::rotary::RotaryPositions;
use super::{in_range, Entry, Family, Growth, MixerOption, MixerSpec, StateNormPlace, NORM_EPS};
use crate::nn::{linear, project, Init, Map, Params};
use crate::ops::Expression;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "gla",
    equation: "S_i = diag(f_i) S_{i-1} + k_i v_iᵀ, f = σ(W_2 W_1 u + b)^(1/16)",
    cite: "Yang et al. 2023",
    dsf: "N = n d/s, inside its norm",
    heads: true,
    multi_head: true,
    expands: true,
    values: matrix_state::values,
    options: &[
        MixerOption {
            name: "gate_rank",
            help: "rank of the projection to the forget gate: `16` as published, up to 4096",
            default: |_| "16",
            accepts: |v| in_range(v, 1..=4096),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "gate_temperature",
            help: "number that divides the logarithm of the forget gate: `16` as published, or another positive one",
            default: |_| "16",
            accepts: |v| v.parse().is_ok_and(|t: f64| t > 0.0 && t.is_finite()),
            implied: true,
            ..MixerOption::DEFAULT
        },
        VALUE_WIDTH,
        OUTPUT_GATE,
        MixerOption {
            help: "ε of the norm of each head: `1e-5`, or a number between 0 and 1",
            default: |_| "1e-5",
            ..NORM_EPS
        },
    ],
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Exact { zeroed: &["wq"], scaled: &["wq"] },
    stem: "gla",
    own_init: &["norm"],
    work: |spec| {
        let mut work = work(spec, 1 + usize::from(has_output_gate(spec, true)));
        work.projections += rank(spec) * (spec.d_model + spec.d_state);
        Some(work)
    },
    build: |spec, params| Ok(Box::new(MatrixMixer::new(GatedLinearAttention::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// Rank of the projection to the forget gate.
fn rank(spec: &MixerSpec) -> usize {
    spec.parsed("gate_rank").unwrap_or(16)
}

/// Inverse of the exponent of the forget gate, so that it starts near 1.
const TEMPERATURE: f64 = 16.0;
/// ε of the RMS norm over each head.
const EPS: f64 = 1e-5;

struct GatedLinearAttention {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    /// Low-rank projection to the forget gate: W_1 `(rank, d)`, W_2 `(n, rank)`.
    wf: [Tensor; 2],
    bf: Tensor,
    /// Projection to the output gate, `(V, d)` for values of width V.
    wg: Option<Tensor>,
    /// Weights of the norm, `(e)`, shared by the heads.
    norm: Tensor,
    wout: Tensor,
    temperature: f64,
    eps: f64,
    sizes: HeadSizes,
}

impl GatedLinearAttention {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, width) = (spec.d_model, spec.d_state, value_width(spec));
        let rank = rank(spec);
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        let sizes = HeadSizes::new(spec);
        Ok(Self {
            wq: weight("wq", n, spec.input_std)?,
            wk: weight("wk", n, spec.input_std)?,
            wv: weight("wv", width, spec.input_std)?,
            wf: [weight("wf1", rank, spec.input_std)?, params.weight("wf2", (n, rank), spec.input_std)?],
            bf: params.bias("bf", n, rank)?,
            wg: has_output_gate(spec, true).then(|| weight("wg", width, spec.input_std)).transpose()?,
            norm: params.get("norm", sizes.values, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
            temperature: spec.parsed("gate_temperature").unwrap_or(TEMPERATURE),
            eps: norm_eps(spec, EPS),
            sizes,
        })
    }
}

impl MatrixState for GatedLinearAttention {
    /// Output gate before its activation, `(batch, rows, V)`, if there is one.
    type Gate = Option<Tensor>;

    const AROUND: Option<&'static str> = Some(
        "driven by its values W_V u; C_i holds the scale of each head's norm, which is not linear in the state, the gate \
         silu(W_g u) and the output projection",
    );

    fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, Option<Tensor>)> {
        let all = [&self.wk, &self.wv].map(|w| (w, None));
        let queried: Vec<_> = [Some(&self.wq), self.wg.as_ref()].into_iter().flatten().map(|w| (w, None)).collect();
        let mut maps = project(u, &all, &queried, at.cx())?;
        let gate = self.wg.as_ref().and_then(|_| maps.queried.pop());
        let hidden = linear(u, &self.wf[0], None)?; // (batch, seq_len, rank)
        let f = linear(&hidden, &self.wf[1], Some(&self.bf))?; // (batch, seq_len, n)
        let split = |x: &Tensor| self.sizes.split(x); // (batch, seq_len, heads, m or e)
        let scale = (self.sizes.features as f64).powf(-0.5);
        let inputs = ScanInputs {
            q: (Expression::of(&split(&maps.queried[0])?) * scale).tensor()?,
            k: split(&maps.all[0])?,
            v: split(&maps.all[1])?,
            g: (Expression::of(&split(&f)?).log_sigmoid() * (1.0 / self.temperature)).tensor()?,
            rank_one: None,
        };
        Ok((inputs, gate))
    }

    fn output_scale(&self, o: &Tensor, gate: &Option<Tensor>) -> Result<Option<Expression>> {
        normed_and_gated(o, Some(&self.norm), gate.as_ref(), self.eps).map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
