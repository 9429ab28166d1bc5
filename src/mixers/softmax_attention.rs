//! Softmax attention (1), (2), (18): o_i = Σ_{j≤i} softmax_j(q_i·k_j / √m) v_j. Vaswani et al. 2017.

use super::attention::Projections;
use super::rotary::Positions;
use super::{
    attention, Core, Entry, Family, Gradient, Growth, Mixer, MixerSpec, Recurrent, ReleasedBlock,
    State,
};
use crate::nn::{Cx, Params};
use crate::ops::{self, Pattern};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "softmax",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m) v_j",
    cite: "(1), (2), (18)",
    variants: &["reference", "paper"],
    dsf: "no (N = ∞, Lemma 1)",
    heads: true,
    expands: true,
    rotary: true,
    bidirectional: true,
    released: ReleasedBlock::ATTENTION,
    growth: Growth::Exact {
        zeroed: &["wq", "wk", "bq", "bk"],
        scaled: &["wq", "bq"],
    },
    stem: "softmax_attention",
    gradient: &[("bk", Gradient::Cancels)],
    work: |spec| Some(attention::work(spec, Core::SoftmaxAttention)),
    build: |spec, params| Ok(Box::new(SoftmaxAttention::new(spec, params, AllPairs)?)),
    ..Entry::of(Family::Attention)
};

/// What others call attention.
pub(crate) const SOFTMAX: &str = ENTRY.name;

/// Mixer and variant that Hugging Face's GPT-NeoX computes, the only ones that its files can hold.
pub(crate) const GPT_NEOX: (&str, &str) = (ENTRY.name, "reference");

/// Which pairs of queries and keys a softmax takes in.
pub(super) trait Pairs {
    /// Of a sequence of `seq_len` tokens.
    fn pattern(&self, seq_len: usize) -> Result<Pattern>;

    /// The tokens that steps keep: all that are still attended to, which are the last ones where there is a limit.
    fn kept(&self) -> usize {
        usize::MAX
    }

    /// Why there is no finite system, in words that end a sentence.
    fn without_system(&self) -> &'static str {
        "the features that separate e^(q·k) are infinitely many, so that N is infinite (Lemma 1)"
    }
}

struct AllPairs;

impl Pairs for AllPairs {
    fn pattern(&self, _seq_len: usize) -> Result<Pattern> {
        Ok(Pattern::default())
    }
}

/// Attention by a softmax over the pairs that `P` allows.
pub(super) struct SoftmaxAttention<P> {
    maps: Projections,
    pairs: P,
}

impl<P> SoftmaxAttention<P> {
    pub fn new(spec: &MixerSpec, params: &Params, pairs: P) -> Result<Self> {
        let maps = Projections::new(spec, params)?;
        Ok(Self { maps, pairs })
    }
}

impl<P: Pairs> Mixer for SoftmaxAttention<P> {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let [q, k, v] = self.maps.maps(x, &Positions::Sequence(cx))?;
        let pattern = self.pairs.pattern(x.dim(1)?)?;
        let o = self.maps.attend_within([&q, &k, &v], &pattern, cx)?;
        self.maps.output(&o)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        let kept = seq_len.min(self.pairs.kept());
        kept * self.maps.n_heads * (self.maps.head_features + self.maps.head_dim)
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        self.pairs.without_system()
    }
}

impl<P: Pairs> Recurrent for SoftmaxAttention<P> {
    fn init(&self, _batch: usize) -> Result<State> {
        Ok(State::default())
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let x = x_t.unsqueeze(1)?;
        let [q, k, v] = self.maps.heads(&x, &Positions::Token(at))?;
        let after = |kept: &Tensor, new: &Tensor| {
            let first = (kept.dim(2)? + 1).saturating_sub(self.pairs.kept());
            Tensor::cat(&[&kept.narrow(2, first, kept.dim(2)? - first)?, new], 2)
        };
        *state = match &state.0[..] {
            [keys, values] => State(vec![after(keys, &k)?, after(values, &v)?]),
            _ => State(vec![k, v]),
        };
        let [keys, values] = [&state.0[0], &state.0[1]];
        let (batch, len) = (x.dim(0)?, keys.dim(2)?);
        let last = Tensor::full(len as u32 - 1, (batch, 1), x.device())?;
        let pattern = self.pairs.pattern(len)?;
        let heads = self.maps.n_heads;
        let o = ops::patterned_attention([&q, keys, values], heads, Some(&last), &pattern, None)?;
        self.maps.output_step(&o)
    }
}
