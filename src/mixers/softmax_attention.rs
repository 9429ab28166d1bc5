//! Softmax attention (1), (2), (18): o_i = Σ_{j≤i} softmax_j(q_i·k_j / √m) v_j. Vaswani et al. 2017.

use super::attention::Projections;
use super::key_value_cache::CachedRows;
use super::rotary::RotaryPositions;
use super::{
    attention, Core, Entry, Family, Gradient, Growth, Mixer, MixerSpec, Recurrent, ReleasedBlock, State, StateNormPlace,
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
    options: &[attention::KV_HEADS, attention::HEAD_DIM, attention::BIAS],
    values: attention::values,
    check: attention::check,
    released: ReleasedBlock::ATTENTION,
    state_norm: StateNormPlace::Free(attention::value_width),
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk"], scaled: &["wq", "bq"] },
    stem: "softmax_attention",
    gradient: &[("bk", Gradient::Cancels)],
    work: |spec| Some(attention::work(spec, Core::SoftmaxAttention)),
    build: |spec, params| Ok(Box::new(SoftmaxAttention::new(spec, params, AllPairs)?)),
    ..Entry::of(Family::Attention)
};

/// Name of softmax attention in the registry.
pub(crate) const SOFTMAX: &str = ENTRY.name;

/// Attention pattern: the pairs of queries and keys that the softmax runs over, and biases of their scores.
pub(super) trait AttentionPattern {
    /// Pattern of a sequence of `seq_len` tokens.
    fn pattern(&self, seq_len: usize) -> Result<Pattern>;

    /// Number of last tokens that stay in the key-value cache. The pattern has no pairs with earlier ones.
    fn cached(&self) -> usize {
        usize::MAX
    }

    /// Reason why there is no finite system, as the end of a sentence.
    fn without_system(&self) -> &'static str {
        "e^(q·k) is separable only with infinitely many features, so that N is infinite (Lemma 1)"
    }
}

/// Causal attention over all pairs.
struct AllPairs;

impl AttentionPattern for AllPairs {
    fn pattern(&self, _seq_len: usize) -> Result<Pattern> {
        Ok(Pattern::default())
    }
}

/// Softmax attention with the pattern `P`.
pub(super) struct SoftmaxAttention<P> {
    projections: Projections,
    pattern: P,
}

impl<P> SoftmaxAttention<P> {
    pub fn new(spec: &MixerSpec, params: &Params, pattern: P) -> Result<Self> {
        let projections = Projections::new(spec, params)?;
        Ok(Self { projections, pattern })
    }
}

impl<P: AttentionPattern> SoftmaxAttention<P> {
    /// y `(batch, rows, d)`, and keys and values `(batch, seq_len, kv_heads · width)`.
    fn attend(&self, x: &Tensor, cx: &Cx) -> Result<[Tensor; 3]> {
        let [q, keys, values] = self.projections.qkv(x, &RotaryPositions::Sequence(cx))?;
        let [k, v] = [self.projections.repeated(&keys)?, self.projections.repeated(&values)?];
        let pattern = self.pattern.pattern(x.dim(1)?)?;
        let o = self.projections.attend_within([&q, &k, &v], &pattern, cx)?;
        Ok([self.projections.output(&o)?, keys, values])
    }
}

impl<P: AttentionPattern> Mixer for SoftmaxAttention<P> {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let [y, ..] = self.attend(x, cx)?;
        Ok(y)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        let kept = seq_len.min(self.pattern.cached());
        kept * self.projections.kv_heads * (self.projections.head_features + self.projections.head_dim)
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        self.pattern.without_system()
    }
}

impl<P: AttentionPattern> Recurrent for SoftmaxAttention<P> {
    fn init(&self, _batch: usize) -> Result<State> {
        Ok(State::default())
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let x = x_t.unsqueeze(1)?;
        let [q, k, v] = self.projections.heads(&x, &RotaryPositions::Token(at))?;
        let CachedRows { tensors: [keys, values], end } = state.append([k, v], self.pattern.cached())?;
        let batch = x.dim(0)?;
        let Projections { n_heads, kv_heads, head_features, head_dim, .. } = self.projections;
        // The queries that share a head of keys are its rows.
        let q = q.reshape((batch, kv_heads, n_heads / kv_heads, head_features))?;
        let pattern = self.pattern.pattern(keys.dim(2)?)?;
        let o = ops::attention_at(end - 1, [&q, &keys, &values], &pattern)?;
        self.projections.output_step(&o.reshape((batch, n_heads, 1, head_dim))?)
    }

    fn read(&self, x: &Tensor) -> Result<(Tensor, State)> {
        let [y, keys, values] = self.attend(x, &Cx::eval())?;
        let seq_len = x.dim(1)?;
        let kept = seq_len.min(self.pattern.cached());
        let cache = |t: &Tensor| {
            let last = t.narrow(1, seq_len - kept, kept)?.contiguous()?;
            ops::heads_apart(&last, self.projections.kv_heads)
        };
        Ok((y, State::new(vec![cache(&keys)?, cache(&values)?])))
    }
}
