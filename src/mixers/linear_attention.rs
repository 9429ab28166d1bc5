//! Linear attention (16): features elu(x)+1, normalised by their sum. Katharopoulos et al. 2020.

use super::attention::{accumulate, Projections};
use super::rotary::{Places, Turn};
use super::{attention, Core, Entry, Family, Mixer, Recurrent, ReleasedBlock, State};
use crate::config::{ModelConfig, Rotary};
use crate::ltv::Ltv;
use crate::nn::{Cx, Params};
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
    rotary: true,
    family: Family::LinearAttention,
    released: ReleasedBlock::ATTENTION,
    options: &[],
    stem: "linear_attention",
    work: |model| Some(attention::work(model, Core::ChunkedScan)),
    build: |model, params| Ok(Box::new(LinearAttention::new(model, params)?)),
};

struct LinearAttention {
    projections: Projections,
    /// Turns features where they weigh values, and not where they are summed: the normaliser stays
    /// positive (Su et al. 2021).
    turn: Option<Turn>,
}

impl LinearAttention {
    fn new(model: &ModelConfig, params: &Params) -> Result<Self> {
        let mut projections = Projections::new(model, params)?;
        let language = model.language.as_ref();
        let behind = language.is_some_and(|l| l.rotary == Rotary::Post);
        Ok(Self {
            turn: behind.then(|| projections.turn.take()).flatten(),
            projections,
        })
    }

    /// φ(q) and φ(k), and both as they weigh values.
    fn features(&self, [q, k]: [&Tensor; 2], places: &Places) -> Result<[[Tensor; 2]; 2]> {
        let (q, k) = (ops::elu1(q)?, ops::elu1(k)?);
        let turned = match &self.turn {
            Some(turn) => turn.apply([&q, &k], places)?,
            None => [q.clone(), k.clone()],
        };
        Ok([[q, k], turned])
    }
}

impl Mixer for LinearAttention {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let p = &self.projections;
        let [q, k, v] = p.maps(x, cx)?;
        let [[q, k], turned] = self.features([&q, &k], &Places::Rows(cx))?;
        let o = match &self.turn {
            None => p.attend([&q, &k, &v], Weights::LinearNormalised, cx)?,
            Some(_) => {
                let sum = p.attend([&turned[0], &turned[1], &v], Weights::Plain, cx)?;
                ops::scale_heads(&sum, &p.sums(&q, &k, cx)?.recip()?)?
            }
        };
        p.output(&o)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.projections.state_size() + self.projections.n_heads * self.projections.head_features
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let (p, cx) = (&self.projections, Cx::eval());
        let [q, k, _] = p.maps(&u.unsqueeze(0)?, &cx)?;
        let [[q, k], [read, write]] = self.features([&q, &k], &Places::Rows(&cx))?;
        let eta = (p.split(&q)? * p.split(&k)?.cumsum(2)?)?
            .sum(3)?
            .squeeze(0)?;
        p.separable(&p.split(&read)?, &p.split(&write)?, &eta)
            .map(Some)
    }
}

impl Recurrent for LinearAttention {
    fn init(&self, batch: usize) -> Result<State> {
        let s = self.projections.zero_state(batch)?;
        let z = s.narrow(3, 0, 1)?.transpose(2, 3)?.contiguous()?; // (batch, heads, 1, m)
        Ok(State(vec![s, z]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let p = &self.projections;
        let [q, k, v] = p.maps_of_token(&x_t.unsqueeze(1)?, at)?;
        let [[q, k], [read, write]] = self.features([&q, &k], &Places::Token(at))?;
        let s = accumulate(&state.0[0], &p.split(&write)?, &p.split(&v)?)?;
        let z = (&state.0[1] + p.split(&k)?)?;
        let eta = (p.split(&q)? * &z)?.sum_keepdim(3)?;
        let o = p.split(&read)?.matmul(&s)?.broadcast_div(&eta)?;
        *state = State(vec![s, z]);
        p.output_step(&o)
    }
}
