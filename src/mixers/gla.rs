//! Gated linear attention (Yang et al. 2023): linear attention whose every key feature fades by a gate that the input sets.

use super::matrix_state::{
    head_rms_factor, log_sigmoid, work, Drive, MatrixMixer, MatrixState, Sizes,
};
use super::rotary::Positions;
use super::{Entry, Family, Growth, MixerOption, MixerSpec};
use crate::nn::{linear, project, Init, Map, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "gla",
    equation: "S_i = diag(f_i) S_{i-1} + k_i v_iᵀ, f = σ(W_2 W_1 u + b)^(1/16)",
    cite: "Yang et al. 2023",
    dsf: "N = n d/s, inside its norm",
    heads: true,
    expands: true,
    options: &[MixerOption {
        name: "gate_rank",
        help: "width of the bottleneck in front of the gate: `16` as published, up to 4096",
        default: |_| "16",
        accepts: |v| {
            v.parse::<usize>()
                .is_ok_and(|rank| (1..=4096).contains(&rank))
        },
        ..MixerOption::DEFAULT
    }],
    growth: Growth::Exact {
        zeroed: &["wq"],
        scaled: &["wq"],
    },
    stem: "gla",
    own_init: &["norm"],
    work: |spec| {
        let mut work = work(spec, 2);
        work.projections += rank(spec) * (spec.d_model + spec.d_state);
        Some(work)
    },
    build: |spec, params| Ok(Box::new(MatrixMixer(Gla::new(spec, params)?))),
    ..Entry::of(Family::GatedLinear)
};

/// Width of the bottleneck in front of the gate.
fn rank(spec: &MixerSpec) -> usize {
    let given = spec.option("gate_rank").and_then(|rank| rank.parse().ok());
    given.unwrap_or(16)
}

/// The root that is taken of a gate, so that it starts near 1.
const TEMPERATURE: f64 = 16.0;
/// Added to the mean square in the norm.
const EPS: f64 = 1e-5;

struct Gla {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    /// To the bottleneck and from it to the gates.
    wf: [Tensor; 2],
    bf: Tensor,
    wg: Tensor,
    /// Of the norm, `(e)`: all heads have the same.
    norm: Tensor,
    wout: Tensor,
    sizes: Sizes,
}

impl Gla {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let rank = rank(spec);
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        let sizes = Sizes::of(spec);
        Ok(Self {
            wq: weight("wq", n, spec.input_std)?,
            wk: weight("wk", n, spec.input_std)?,
            wv: weight("wv", d, spec.input_std)?,
            wf: [
                weight("wf1", rank, spec.input_std)?,
                params.weight("wf2", (n, rank), spec.input_std)?,
            ],
            bf: params.bias("bf", n, rank)?,
            wg: weight("wg", d, spec.input_std)?,
            norm: params.get("norm", sizes.values, Init::Constant(1.0))?,
            wout: weight("wout", d, spec.output_std)?,
            sizes,
        })
    }
}

impl MatrixState for Gla {
    const AROUND: Option<&'static str> = Some(
        "driven by its values W_V u; C_i holds what is not linear in the state, the scale of each head's norm, and the gate \
         silu(W_g u) and the output projection",
    );

    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn drive(&self, u: &Tensor, at: &Positions) -> Result<Drive> {
        let all = [&self.wk, &self.wv].map(|w| (w, None));
        let queried = [&self.wq, &self.wg].map(|w| (w, None));
        let maps = project(u, &all, &queried, at.cx())?;
        let narrow = linear(u, &self.wf[0], None)?;
        let gate = linear(&narrow, &self.wf[1], Some(&self.bf))?;
        let split = |x: &Tensor| self.sizes.split(x);
        let scale = (self.sizes.features as f64).powf(-0.5);
        Ok(Drive {
            q: (split(&maps.queried[0])? * scale)?,
            k: split(&maps.all[0])?,
            v: split(&maps.all[1])?,
            g: (split(&log_sigmoid(&gate)?)? / TEMPERATURE)?,
            beside: maps.queried[1].clone(),
        })
    }

    fn factor(&self, o: &Tensor, gate: &Tensor) -> Result<Option<Tensor>> {
        let weights = Tensor::cat(&vec![&self.norm; self.sizes.heads], 0)?;
        let weights = weights.to_dtype(o.dtype())?;
        let scale = head_rms_factor(o, EPS)?.broadcast_mul(&weights)?;
        (ops::silu(gate)? * scale).map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
