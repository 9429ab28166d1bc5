//! Softmax attention (1), (2), (18): o_i = Σ_{j≤i} softmax_j(q_i·k_j / √m) v_j. Vaswani et al. 2017.

use super::attention::Projections;
use super::rotary::Positions;
use super::{attention, Core, Entry, Family, Growth, Mixer, Recurrent, ReleasedBlock, State};
use crate::nn::Cx;
use crate::ops::Weights;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "softmax",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m) v_j",
    cite: "(1), (2), (18)",
    variants: &["reference", "paper"],
    dsf: "no (N = ∞, Lemma 1)",
    heads: true,
    expands: true,
    widens: false,
    rotary: true,
    family: Family::Attention,
    released: ReleasedBlock::ATTENTION,
    options: &[],
    growth: Growth::Exact {
        zeroed: &["wq", "wk", "bq", "bk"],
        scaled: &["wq", "bq"],
    },
    stem: "softmax_attention",
    work: |spec| Some(attention::work(spec, Core::SoftmaxAttention)),
    build: |spec, params| Ok(Box::new(SoftmaxAttention(Projections::new(spec, params)?))),
};

/// Mixer and variant that Hugging Face's GPT-NeoX computes, the only ones that its files can hold.
pub(crate) const GPT_NEOX: (&str, &str) = (ENTRY.name, "reference");

struct SoftmaxAttention(Projections);

impl Mixer for SoftmaxAttention {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let [q, k, v] = self.0.maps(x, &Positions::Sequence(cx))?;
        self.0
            .output(&self.0.attend([&q, &k, &v], Weights::Softmax, cx)?)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        seq_len * self.0.n_heads * (self.0.head_features + self.0.head_dim)
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "the features that separate e^(q·k) are infinitely many, so that N is infinite (Lemma 1)"
    }
}

impl Recurrent for SoftmaxAttention {
    fn init(&self, _batch: usize) -> Result<State> {
        Ok(State::default())
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let x = x_t.unsqueeze(1)?;
        let [q, k, v] = self.0.heads(&x, &Positions::Token(at))?;
        let q = (q * (self.0.head_features as f64).powf(-0.5))?;
        *state = match &state.0[..] {
            [keys, values] => State(vec![
                Tensor::cat(&[keys, &k], 2)?,
                Tensor::cat(&[values, &v], 2)?,
            ]),
            _ => State(vec![k, v]),
        };
        let weights = q.matmul(&state.0[0].transpose(2, 3)?)?;
        let weights = candle_nn::ops::softmax(&weights, 3)?;
        self.0.output_step(&weights.matmul(&state.0[1])?)
    }
}
