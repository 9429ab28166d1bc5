//! S6, the selective state space model (4), (19); Gu & Dao 2023. Δ, B and C depend on the input, and every channel and
//! state has its own decay. The recurrence and its symbols are those of [`state_space`](super::state_space), with
//! x = u.

use super::state_space::{
    dt_rank, OutputHead, SelectiveProjection, SsmInputs, SsmMixer, DISCRETIZATION, DT_INIT, DT_RANK,
};
use super::{Core, Entry, Family, Growth, MixerOption, MixerSpec, MixerWork, ReleasedBlock, StateNormPlace};
use crate::config::Protocol;
use crate::ltv::Ltv;
use crate::nn::{Cx, Params};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "s6",
    equation: "H_i = e^(-Δ_i A) H_{i-1} + Δ_i u_i b_i, o_i = H_i c_i",
    cite: "(4), (19)",
    variants: &["reference", "paper"],
    dsf: "N = n d",
    expands: true,
    released: ReleasedBlock::STATE_SPACE,
    options: &[
        MixerOption {
            default: |protocol| match protocol {
                Protocol::Paper => "mamba",
                Protocol::Reference | Protocol::Matched => "zero",
            },
            implied: false,
            ..DT_INIT
        },
        DT_RANK,
        DISCRETIZATION,
    ],
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::STATE_SPACE,
    stem: "s6",
    own_init: &["a_log", "bdt", "dskip"],
    uncounted: &["a_log"],
    work: |spec| {
        let (d, n) = (spec.d_model, spec.d_state);
        Some(MixerWork::new(Core::SelectiveScan, [d, n], d * (2 * dt_rank(spec) + 2 * n + d)))
    },
    build: |spec, params| Ok(Box::new(S6::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct S6 {
    selective: SelectiveProjection,
    head: OutputHead,
}

impl S6 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let mamba = spec.option(DT_INIT.name) == Some("mamba");
        Ok(Self {
            head: OutputHead::new(spec, params)?,
            selective: SelectiveProjection::new(spec, spec.d_model, mamba, params)?,
        })
    }
}

impl SsmMixer for S6 {
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<(SsmInputs, Tensor)> {
        self.selective.project(u, cx)
    }

    fn output(&self, o: &Tensor, u: &Tensor) -> Result<Tensor> {
        self.head.forward(o, u)
    }

    fn b_proj(&self) -> &Tensor {
        &self.selective.wb
    }

    fn system(&self, u: &Tensor, inputs: &SsmInputs) -> Result<Ltv> {
        self.head.system(u, inputs)
    }
}
