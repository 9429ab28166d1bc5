//! Layer of RetNet (Sun et al. 2023): retention with rotary position embedding, an RMS norm of each head and an output gate,
//!
//! S_t = γ S_{t-1} + R_t k_t v_tᵀ,  y_t = W (silu(W_g u_t) ⊙ norm(S_tᵀ R_t q_t / √m))
//!
//! The published layer differs in its rotation angles and has a group norm.

use super::matrix_state::{head_rms_scale, work, HeadSizes, MatrixMixer, MatrixState, ScanInputs};
use super::retention::log_decays;
use super::rotary::{RotaryEmbedding, RotaryPositions};
use super::{Entry, Family, Growth, MixerSpec, StateNormPlace};
use crate::nn::{project, Map, Params};
use crate::ops;
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
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::No("the angles of its rotation depend on n"),
    stem: "retnet",
    work: |spec| Some(work(spec, 2)),
    build: |spec, params| Ok(Box::new(MatrixMixer::new(RetNet::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// ε of the RMS norm over each head.
const EPS: f64 = 1e-6;

struct RetNet {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wg: Tensor,
    wout: Tensor,
    /// Permutation of the rows of `wq` and `wk` from interleaved pairs to halves.
    rotation_order: Tensor,
    rotary: RotaryEmbedding,
    sizes: HeadSizes,
}

impl RetNet {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        let wq = weight("wq", n, spec.input_std)?;
        let sizes = HeadSizes::new(spec);
        Ok(Self {
            wk: weight("wk", n, spec.input_std)?,
            wv: weight("wv", d, spec.input_std)?,
            wg: weight("wg", d, spec.input_std)?,
            wout: weight("wout", d, spec.output_std)?,
            rotation_order: Tensor::new(interleaved_to_halves(sizes), wq.device())?,
            rotary: RotaryEmbedding::over(sizes.heads, sizes.features),
            wq,
            sizes,
        })
    }
}

/// Permutation that puts the even channels of a head before its odd ones: RetNet rotates channels 2j and 2j + 1 together, and
/// [`RotaryEmbedding`] rotates j and j + m/2. A last channel without a partner stays in place and is not rotated.
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
    /// Output gate before its activation, `(batch, rows, d)`.
    type Gate = Tensor;

    const AROUND: Option<&'static str> = Some(
        "driven by its values W_V u; C_i holds the scale of each head's norm, which is not linear in the state, the gate \
         silu(W_g u) and the output projection",
    );

    fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, Tensor)> {
        let (wq, wk) = (self.wq.index_select(&self.rotation_order, 0)?, self.wk.index_select(&self.rotation_order, 0)?);
        let (all, queried) = ([&wk, &self.wv], [&wq, &self.wg]);
        let maps = project(u, &all.map(|w| (w, None)), &queried.map(|w| (w, None)), at.cx())?;
        let [q, k] = self.rotary.apply([&maps.queried[0], &maps.all[0]], at)?;
        let k = self.sizes.split(&k)?;
        let scale = (self.sizes.features as f64).powf(-0.5);
        let log_gamma = log_decays(self.sizes.heads);
        let inputs = ScanInputs {
            q: (self.sizes.split(&q)? * scale)?,
            v: self.sizes.split(&maps.all[1])?,
            g: self.sizes.constant_decays(&log_gamma, &k)?,
            k,
            rank_one: None,
        };
        Ok((inputs, maps.queried[1].clone()))
    }

    fn output_scale(&self, o: &Tensor, gate: &Tensor) -> Result<Option<Tensor>> {
        (ops::silu(gate)? * head_rms_scale(o, EPS)?).map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
