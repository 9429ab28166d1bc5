//! Retention (Sun et al. 2023, equation (5)): linear attention with a constant decay γ per head,
//!
//! S_t = γ S_{t-1} + k_t v_tᵀ,  y_t = S_tᵀ q_t / √m,  γ = 1 - 2^(-5-h) for head h

use super::matrix_state::{work, HeadSizes, MatrixMixer, MatrixState, ScanInputs};
use super::rotary::RotaryPositions;
use super::{Entry, Family, Growth, MixerSpec, StateNormPlace};
use crate::nn::{project, Map, Params};
use crate::ops::Expression;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "retention",
    equation: "o_i = Σ_j γ^(i-j) (q_i·k_j/√m) v_j, γ = 1-2^(-5-h) of head h",
    cite: "Sun et al. 2023",
    dsf: "N = n d/s",
    heads: true,
    multi_head: true,
    expands: true,
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Exact { zeroed: &["wq"], scaled: &["wq"] },
    stem: "retention",
    work: |spec| Some(work(spec, 0)),
    build: |spec, params| Ok(Box::new(MatrixMixer::new(Retention::new(spec, params)?, spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// ln γ per head.
pub(super) fn log_decays(heads: usize) -> Vec<f64> {
    let log_gamma = |head: usize| (-(2f64.powi(-5 - head as i32))).ln_1p();
    (0..heads).map(log_gamma).collect()
}

struct Retention {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    sizes: HeadSizes,
}

impl Retention {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        Ok(Self {
            wq: params.weight("wq", (n, d), spec.input_std)?,
            wk: params.weight("wk", (n, d), spec.input_std)?,
            wv: params.weight("wv", (d, d), spec.input_std)?,
            sizes: HeadSizes::new(spec),
        })
    }
}

impl MatrixState for Retention {
    type Gate = ();

    const AROUND: Option<&'static str> = None;

    fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, ())> {
        let (all, queried) = ([&self.wk, &self.wv], [&self.wq]);
        let maps = project(u, &all.map(|w| (w, None)), &queried.map(|w| (w, None)), at.cx())?;
        let k = self.sizes.split(&maps.all[0])?;
        let scale = (self.sizes.features as f64).powf(-0.5);
        let log_gamma = log_decays(self.sizes.heads);
        let inputs = ScanInputs {
            q: (Expression::of(&self.sizes.split(&maps.queried[0])?) * scale).tensor()?,
            v: self.sizes.split(&maps.all[1])?,
            g: self.sizes.constant_decays(&log_gamma, &k)?,
            k,
            rank_one: None,
        };
        Ok((inputs, ()))
    }

    fn output_scale(&self, _o: &Tensor, _gate: &()) -> Result<Option<Expression>> {
        Ok(None)
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        None
    }
}
