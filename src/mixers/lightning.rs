//! Lightning attention as in TransNormerLLM (Qin et al. 2023): linear attention with a constant decay per head, slower
//! in deeper layers, an RMS norm without weights and a linear output gate,
//!
//! S_t = e^(-r) S_{t-1} + k_t v_tᵀ,  y_t = W (W_g u_t ⊙ norm(S_tᵀ q_t)),  q, k = silu(W u)
//!
//! The name is that of the tiled algorithm, which computes every mixer with a matrix-valued state here.

use super::matrix_state::{work, HeadSizes, MatrixMixer, MatrixState, ScanInputs};
use super::rotary::RotaryPositions;
use super::state_norm::rms_scale;
use super::{Entry, Family, Growth, MixerSpec, StateNormPlace};
use crate::nn::{project, Map, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "lightning",
    equation: "y_i = W (W_g u_i ⊙ norm(Σ_j e^(-r(i-j)) (q_i·k_j) v_j)), q, k = silu(W u)",
    cite: "Qin et al. 2023",
    dsf: "N = n d/s, inside its norm",
    heads: true,
    multi_head: true,
    expands: true,
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Exact { zeroed: &["wq"], scaled: &[] },
    stem: "lightning_attention",
    work: |spec| Some(work(spec, 2)),
    build: |spec, params| Ok(Box::new(MatrixMixer::new(Lightning::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// ε of the RMS norm.
const EPS: f64 = 1e-8;

struct Lightning {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wg: Tensor,
    wout: Tensor,
    /// -r per head.
    log_decays: Vec<f64>,
    sizes: HeadSizes,
}

/// -r per head: the slopes of ALiBi, 2^(-8(h+1)/s), times a factor that falls from 1 in the first layer to 1e-5 in the
/// last.
fn log_decays(spec: &MixerSpec) -> Vec<f64> {
    let last = spec.n_layers.saturating_sub(1).max(1) as f64;
    let depth = 1.0 - spec.layer as f64 / last + 1e-5;
    let slope = |head: usize| 2f64.powf(-8.0 * (head + 1) as f64 / spec.n_heads as f64);
    (0..spec.n_heads).map(|head| -slope(head) * depth).collect()
}

impl Lightning {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        Ok(Self {
            wq: weight("wq", n, spec.input_std)?,
            wk: weight("wk", n, spec.input_std)?,
            wv: weight("wv", d, spec.input_std)?,
            wg: weight("wg", d, spec.input_std)?,
            wout: weight("wout", d, spec.output_std)?,
            log_decays: log_decays(spec),
            sizes: HeadSizes::new(spec),
        })
    }
}

impl MatrixState for Lightning {
    /// Output gate `(batch, rows, d)`.
    type Gate = Tensor;

    const AROUND: Option<&'static str> = Some(
        "driven by its values W_V u; C_i holds the scale of the norm, which is not linear in the state, the gate W_g u and the \
         output projection",
    );

    fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, Tensor)> {
        let (all, queried) = ([&self.wk, &self.wv], [&self.wq, &self.wg]);
        let maps = project(u, &all.map(|w| (w, None)), &queried.map(|w| (w, None)), at.cx())?;
        let k = self.sizes.split(&ops::silu(&maps.all[0])?)?;
        let inputs = ScanInputs {
            q: self.sizes.split(&ops::silu(&maps.queried[0])?)?,
            v: self.sizes.split(&maps.all[1])?,
            g: self.sizes.constant_decays(&self.log_decays, &k)?,
            k,
            rank_one: None,
        };
        Ok((inputs, maps.queried[1].clone()))
    }

    fn output_scale(&self, o: &Tensor, gate: &Tensor) -> Result<Option<Tensor>> {
        let scale = rms_scale(&o.flatten_from(2)?, EPS)?;
        gate.broadcast_mul(&scale).map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
