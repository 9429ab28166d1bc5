//! Generalized linear attention (17) with η = 1: o_i = Σ_{j≤i} (q_i·k_j) v_j, the bare recurrence
//! that normalized attention divides.

use super::attention::{accumulate, Projections};
use super::{attention, Core, Entry, Family, Mixer, Recurrent, ReleasedBlock, State};
use crate::ltv::Ltv;
use crate::nn::Cx;
use crate::ops::Weights;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "generalized-linear",
    equation: "o_i = Σ_j (q_i·k_j) v_j",
    cite: "(17)",
    variants: &["reference", "paper"],
    dsf: "N = n d/s",
    heads: true,
    expands: true,
    widens: false,
    rotary: true,
    family: Family::LinearAttention,
    released: ReleasedBlock::ATTENTION,
    options: &[],
    stem: "generalized_linear_attention_none",
    work: |spec| Some(attention::work(spec, Core::ChunkedScan)),
    build: |spec, params| Ok(Box::new(Generalized(Projections::new(spec, params)?))),
};

struct Generalized(Projections);

impl Mixer for Generalized {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let [q, k, v] = self.0.maps(x, cx)?;
        self.0
            .output(&self.0.attend([&q, &k, &v], Weights::Plain, cx)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.0.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let x = u.unsqueeze(0)?;
        let [phi, psi, _] = self.0.heads(&x)?;
        let eta = phi.sum(3)?.squeeze(0)?.ones_like()?;
        self.0.separable(&phi, &psi, &eta).map(Some)
    }
}

impl Recurrent for Generalized {
    fn init(&self, batch: usize) -> Result<State> {
        Ok(State(vec![self.0.zero_state(batch)?]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let x = x_t.unsqueeze(1)?;
        let [q, k, v] = self.0.heads_of_token(&x, at)?;
        let s = accumulate(&state.0[0], &k, &v)?;
        let o = q.matmul(&s)?;
        *state = State(vec![s]);
        self.0.output_step(&o)
    }
}
