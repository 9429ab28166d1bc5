//! Layer of RetNet (Sun et al. 2023): retention with rotary position embedding, an RMS norm of each head and an output
//! gate,
//!
//! S_t = γ S_{t-1} + R_t k_t v_tᵀ,  y_t = W (silu(W_g u_t) ⊙ norm(S_tᵀ R_t q_t / √m))
//!
//! By default it is the layer of flash-linear-attention. `norm=group` and `angles=retnet` are those of the authors' code.

use super::matrix_state::{
    self, has_output_gate, norm_eps, normed_and_gated, value_width, work, HeadSizes, MatrixMixer, MatrixState,
    ScanInputs, OUTPUT_GATE, VALUE_WIDTH,
};
use super::retention::log_decays;
use super::rotary::{RotaryEmbedding, RotaryPositions};
use super::{Entry, Family, Growth, MixerOption, MixerSpec, StateNormPlace, FALSE_OR_TRUE, NORM_EPS};
use crate::nn::{project, Init, Map, Params};
use crate::ops::Expression;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "retnet",
    equation: "y_i = W (silu(W_g u_i) ⊙ norm(Σ_j γ^(i-j) (R_i q_i·R_j k_j/√m) v_j))",
    cite: "Sun et al. 2023",
    variants: &["block"],
    dsf: "N = n d/s, inside its norm",
    heads: true,
    multi_head: true,
    expands: true,
    values: matrix_state::values,
    options: &[
        VALUE_WIDTH,
        OUTPUT_GATE,
        MixerOption {
            name: ANGLES,
            help: "angles of the rotation of m channels: `rope`, 10000^(-2j/m), or `retnet`, from 1 to 1/10000 as in its authors' code",
            default: |_| "rope",
            accepts: |v| ["rope", "retnet"].contains(&v),
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: NORM,
            help: "norm of each head: `rms`, or `group`, which subtracts the mean, as published",
            default: |_| "rms",
            accepts: |v| ["rms", "group"].contains(&v),
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: NORM_WEIGHTS,
            help: "whether the norm of each head has weights, which the heads share: `false` or `true`",
            ..FALSE_OR_TRUE
        },
        MixerOption {
            help: "ε of the norm of each head: `1e-6`, or a number between 0 and 1",
            default: |_| "1e-6",
            ..NORM_EPS
        },
    ],
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::No("the angles of its rotation depend on n"),
    stem: "retnet",
    work: |spec| Some(work(spec, 1 + usize::from(has_output_gate(spec, true)))),
    build: |spec, params| Ok(Box::new(MatrixMixer::new(RetNet::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// Option for the angles of the rotation.
const ANGLES: &str = "angles";
/// Option for the kind of norm.
const NORM: &str = "norm";
/// Option for weights of the norm.
const NORM_WEIGHTS: &str = "norm_weights";

/// ε of the RMS norm over each head.
const EPS: f64 = 1e-6;

struct RetNet {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    /// Projection to the output gate, `(V, d)` for values of width V.
    wg: Option<Tensor>,
    /// Weights of the norm, `(e)`, shared by the heads.
    norm: Option<Tensor>,
    wout: Tensor,
    /// Permutation of the rows of `wq` and `wk` from interleaved pairs to halves.
    rotation_order: Tensor,
    rotary: RotaryEmbedding,
    /// Whether the norm subtracts the mean of a head.
    centred: bool,
    eps: f64,
    sizes: HeadSizes,
}

impl RetNet {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, width) = (spec.d_model, spec.d_state, value_width(spec));
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        let wq = weight("wq", n, spec.input_std)?;
        let sizes = HeadSizes::new(spec);
        Ok(Self {
            wk: weight("wk", n, spec.input_std)?,
            wv: weight("wv", width, spec.input_std)?,
            wg: has_output_gate(spec, true).then(|| weight("wg", width, spec.input_std)).transpose()?,
            norm: spec.has(NORM_WEIGHTS).then(|| params.get("norm", sizes.values, Init::Constant(1.0))).transpose()?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
            eps: norm_eps(spec, EPS),
            rotation_order: Tensor::new(interleaved_to_halves(sizes), wq.device())?,
            rotary: match spec.option(ANGLES) {
                Some("retnet") => RotaryEmbedding::over(sizes.heads, sizes.features).to_the_base(),
                _ => RotaryEmbedding::over(sizes.heads, sizes.features),
            },
            centred: spec.option(NORM) == Some("group"),
            wq,
            sizes,
        })
    }
}

/// Permutation that puts the even channels of a head before its odd ones: RetNet rotates channels 2j and 2j + 1
/// together, and [`RotaryEmbedding`] rotates j and j + m/2. A last channel without a partner stays in place and is not
/// rotated.
fn interleaved_to_halves(sizes: HeadSizes) -> Vec<u32> {
    let m = sizes.features;
    let pairs = m / 2;
    let of_head = move |head: usize| {
        let evens = (0..pairs).map(|j| 2 * j);
        let odds = (0..pairs).map(|j| 2 * j + 1);
        let all = evens.chain(odds).chain(2 * pairs..m);
        all.map(move |channel| (head * m + channel) as u32)
    };
    (0..sizes.heads).flat_map(of_head).collect()
}

impl MatrixState for RetNet {
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
        let (wq, wk) = (self.wq.index_select(&self.rotation_order, 0)?, self.wk.index_select(&self.rotation_order, 0)?);
        let all = [&wk, &self.wv].map(|w| (w, None));
        let queried: Vec<_> = [Some(&wq), self.wg.as_ref()].into_iter().flatten().map(|w| (w, None)).collect();
        let mut maps = project(u, &all, &queried, at.cx())?;
        let gate = self.wg.as_ref().and_then(|_| maps.queried.pop());
        let [q, k] = self.rotary.apply([&maps.queried[0], &maps.all[0]], at)?;
        let k = self.sizes.split(&k)?;
        let scale = (self.sizes.features as f64).powf(-0.5);
        let log_gamma = log_decays(self.sizes.heads);
        let inputs = ScanInputs {
            q: (Expression::of(&self.sizes.split(&q)?) * scale).tensor()?,
            v: self.sizes.split(&maps.all[1])?,
            g: self.sizes.constant_decays(&log_gamma, &k)?,
            k,
            rank_one: None,
        };
        Ok((inputs, gate))
    }

    fn is_centred(&self) -> bool {
        self.centred
    }

    fn output_scale(&self, o: &Tensor, gate: &Option<Tensor>) -> Result<Option<Expression>> {
        let scale = normed_and_gated(o, self.norm.as_ref(), None, self.eps)?;
        Ok(Some(match gate {
            Some(gate) => Expression::of(&self.sizes.split(gate)?).silu() * scale,
            None => scale,
        }))
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
