//! SSD, the core of Mamba-2 (Dao & Gu 2024): one scalar decay per head and token. With one head Λ_i is the scalar times
//! the identity of section 4.2. The recurrence and its symbols are those of [`state_space`](super::state_space), with
//! x = W_x u.

use super::state_norm::StateNorm;
use super::state_space::{
    decays, mamba_dt_bias, per_channel, rule, shared_decay_core, SsmInputs, SsmMixer, DISCRETIZATION,
};
use super::{Entry, Family, Growth, MixerSpec, MixerWork, ReleasedBlock, StateNormPlace};
use crate::ltv::Ltv;
use crate::nn::{linear, project, Cx, Init, Params, Scheme};
use crate::ops;
use crate::ops::StepRule;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "ssd-mamba2",
    equation: "S_i = e^(-Δ_i a) S_{i-1} + Δ_i b_i x_iᵀ per head, x = W_x u",
    cite: "Dao & Gu 2024",
    variants: &["mamba2"],
    dsf: "N = n d",
    heads: true,
    multi_head: true,
    splits_n: false,
    expands: true,
    released: ReleasedBlock::STATE_SPACE,
    options: &[DISCRETIZATION],
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::STATE_SPACE,
    stem: "ssd",
    authors_init: Some(Scheme::Mamba),
    own_init: &["a_log", "bdt", "dskip"],
    work: |spec| {
        let (d, n) = (spec.d_model, spec.d_state);
        Some(MixerWork::new(shared_decay_core(spec), [d, n], d * (spec.n_heads + 2 * n + 2 * d)))
    },
    build: |spec, params| Ok(Box::new(SsdMamba2::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct SsdMamba2 {
    wx: Tensor,
    /// Projections to B and C, `(n, d)` each.
    wb: Tensor,
    wc: Tensor,
    /// Projection to Δ, `(heads, d)`, and its bias.
    wdt: Tensor,
    bdt: Tensor,
    /// ln(-A), `(heads)`.
    a_log: Tensor,
    /// D, `(heads)`.
    dskip: Tensor,
    wout: Tensor,
    norm: Option<StateNorm>,
    /// Model width d.
    width: usize,
    rule: StepRule,
}

impl SsdMamba2 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, heads) = (spec.d_model, spec.d_state, spec.n_heads);
        let a_log = |_: usize, rng: &mut crate::ops::rng::Rng| (1.0 + 15.0 * rng.uniform()).ln();
        Ok(Self {
            wx: params.weight("wx", (d, d), spec.input_std)?,
            wb: params.weight("wb", (n, d), spec.input_std)?,
            wc: params.weight("wc", (n, d), spec.input_std)?,
            wdt: params.weight("wdt", (heads, d), spec.input_std)?,
            bdt: params.get("bdt", heads, Init::Each(&mamba_dt_bias))?,
            a_log: params.get("a_log", heads, Init::Each(&a_log))?,
            dskip: params.get("dskip", heads, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
            norm: StateNorm::new(spec, d, params)?,
            width: d,
            rule: rule(spec),
        })
    }
}

impl SsmMixer for SsdMamba2 {
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<(SsmInputs, Tensor)> {
        let maps = [&self.wdt, &self.wx, &self.wb].map(|w| (w, None));
        let maps = project(u, &maps, &[(&self.wc, None)], cx)?;
        let delta = ops::softplus_biased(&maps.all[0], &self.bdt)?; // (batch, seq_len, heads)
        let inputs = SsmInputs {
            x: maps.all[1].clone(),
            delta: per_channel(&delta, self.width, |x| x)?,
            a: decays(&self.a_log, self.width)?,
            b: maps.all[2].clone(),
            c: maps.queried[0].clone(),
            groups: 1,
            norm: self.norm.clone(),
            rule: self.rule,
        };
        let x = cx.select(&inputs.x)?;
        Ok((inputs, x))
    }

    fn output(&self, o: &Tensor, x: &Tensor) -> Result<Tensor> {
        let skip = per_channel(&self.dskip, self.width, |x| x)?;
        linear(&ops::add_scaled(o, x, &skip)?, &self.wout, None)
    }

    fn b_proj(&self) -> &Tensor {
        &self.wb
    }

    fn system(&self, u: &Tensor, inputs: &SsmInputs) -> Result<Ltv> {
        let skip = per_channel(&self.dskip, self.width, |x| x)?;
        let skip = u.ones_like()?.broadcast_mul(&skip)?;
        inputs.system(Some(&self.wx), skip, Some(&self.wout))
    }
}
