//! Linear attention (16): features elu(x)+1, normalised by their sum. Katharopoulos et al. 2020.

use super::attention::{accumulate, Projections};
use super::{Entry, Home, Mixer, Recurrent, State};
use crate::ltv::Ltv;
use crate::nn::Cx;
use crate::ops::{self, Weights};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "linear",
    equation: "o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), φ = elu+1",
    cite: "(15), (16)",
    variants: &["reference", "paper"],
    dsf: "N = n d/s",
    heads: true,
    expands: true,
    widens: false,
    home: Home::ATTENTION,
    options: &[],
    stem: "linear_attention",
    build: |model, params| Ok(Box::new(LinearAttention(Projections::new(model, params)?))),
};

struct LinearAttention(Projections);

impl Mixer for LinearAttention {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let [q, k, v] = self.0.maps(x, cx)?;
        let (q, k) = (ops::elu1(&q)?, ops::elu1(&k)?);
        let weights = Weights::LinearNormalised;
        self.0.output(&self.0.attend([&q, &k, &v], weights, cx)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.0.state_size() + self.0.n_heads * self.0.head_features
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let x = u.unsqueeze(0)?;
        let [q, k, _] = self.0.heads(&x)?;
        let (phi, psi) = (ops::elu1(&q)?, ops::elu1(&k)?);
        let eta = (&phi * psi.cumsum(2)?)?.sum(3)?.squeeze(0)?;
        self.0.separable(&phi, &psi, &eta).map(Some)
    }
}

impl Recurrent for LinearAttention {
    fn init(&self, batch: usize) -> Result<State> {
        let s = self.0.zero_state(batch)?;
        let z = s.narrow(3, 0, 1)?.transpose(2, 3)?.contiguous()?; // (batch, heads, 1, m)
        Ok(State(vec![s, z]))
    }

    fn step(&self, x_t: &Tensor, state: &mut State) -> Result<Tensor> {
        let x = x_t.unsqueeze(1)?;
        let [q, k, v] = self.0.heads(&x)?;
        let (q, k) = (ops::elu1(&q)?, ops::elu1(&k)?);
        let s = accumulate(&state.0[0], &k, &v)?;
        let z = (&state.0[1] + &k)?;
        let eta = (&q * &z)?.sum_keepdim(3)?;
        let o = q.matmul(&s)?.broadcast_div(&eta)?;
        *state = State(vec![s, z]);
        self.0.output_step(&o)
    }
}
