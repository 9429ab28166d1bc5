//! Softmax attention with linear biases (ALiBi, Press et al. 2022): in place of position embeddings, scores fall
//! linearly with distance, with the slope 2^(-8(h+1)/s) in head h.

use super::attention;
use super::softmax_attention::{AttentionPattern, SoftmaxAttention};
use super::{Core, Entry, Family, Gradient, Growth, StateNormPlace};
use crate::ops::Pattern;
use candle_core::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "alibi",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m - 2^(-8(h+1)/s)(i-j)) v_j",
    cite: "Press et al. 2022",
    variants: &["reference"],
    dsf: "no (N = ∞, Lemma 1)",
    heads: true,
    multi_head: true,
    expands: true,
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk"], scaled: &["wq", "bq"] },
    stem: "alibi_attention",
    gradient: &[("bk", Gradient::Cancels)],
    work: |spec| Some(attention::work(spec, Core::SoftmaxAttention)),
    build: |spec, params| Ok(Box::new(SoftmaxAttention::new(spec, params, Alibi)?)),
    ..Entry::of(Family::Attention)
};

/// Slopes of the linear biases.
struct Alibi;

impl AttentionPattern for Alibi {
    fn pattern(&self, _seq_len: usize) -> Result<Pattern> {
        Ok(Pattern { slopes: true, ..Pattern::default() })
    }
}
