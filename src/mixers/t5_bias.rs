//! Softmax attention with the relative position bias of T5 (Raffel et al. 2020): in place of position embeddings, a
//! learnt bias per head and bucket of distances is added to the scores. T5 shares the bias among its layers; here each
//! layer has its own.

use super::attention;
use super::softmax_attention::{AttentionPattern, SoftmaxAttention};
use super::{Core, Entry, Family, Gradient, Growth, MixerSpec, StateNormPlace};
use crate::nn::{Init, Params};
use crate::ops::{self, Pattern};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "t5-bias",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m + b_{h,bucket(i-j)}) v_j",
    cite: "Raffel et al. 2020",
    variants: &["reference"],
    dsf: "no (N = ∞, Lemma 1)",
    heads: true,
    multi_head: true,
    expands: true,
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk"], scaled: &["wq", "bq"] },
    stem: "t5_bias",
    own_init: &["bias"],
    uncounted: &["bias"],
    gradient: &[("bk", Gradient::Cancels), ("bias", Gradient::Partial)],
    work: |spec| Some(attention::work(spec, Core::SoftmaxAttention)),
    build: |spec, params| {
        let buckets = Buckets::new(spec, params)?;
        Ok(Box::new(SoftmaxAttention::new(spec, params, buckets)?))
    },
    ..Entry::of(Family::Attention)
};

/// Number of buckets of a head.
const BUCKETS: usize = 32;
/// Distances below this have a bucket each.
const EXACT: usize = 16;
/// Distance from which on all share the last bucket.
const FARTHEST: usize = 128;

/// Bucket of a distance: exact below [`EXACT`], logarithmic beyond.
fn bucket(distance: usize) -> usize {
    if distance < EXACT {
        return distance;
    }
    let log = |distance: usize| (distance as f64 / EXACT as f64).ln();
    let fraction = log(distance) / log(FARTHEST);
    let bucket = EXACT + (fraction * (BUCKETS - EXACT) as f64) as usize;
    bucket.min(BUCKETS - 1)
}

struct Buckets {
    /// Biases `(32, heads)`.
    table: Tensor,
    /// Buckets of the distances 0, 1, 2, .. up to the first one in the last bucket, `(1, distances)`.
    ids: Tensor,
}

impl Buckets {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let std = (spec.d_model as f64).powf(-0.5);
        let distances = (0..).map(bucket).take_while(|&bucket| bucket < BUCKETS - 1);
        let ids: Vec<u32> = distances.chain([BUCKETS - 1]).map(|id| id as u32).collect();
        let count = ids.len();
        Ok(Self {
            table: params.get("bias", (BUCKETS, spec.n_heads), Init::Normal(std))?,
            ids: Tensor::from_vec(ids, (1, count), params.device())?,
        })
    }
}

impl AttentionPattern for Buckets {
    fn pattern(&self, _seq_len: usize) -> Result<Pattern> {
        let dtype = self.table.dtype();
        let by_distance = ops::embedding(&self.ids, &self.table, None, None, dtype)?.squeeze(0)?;
        Ok(Pattern { bias: Some(by_distance.t()?.contiguous()?), ..Pattern::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buckets of `T5Attention._relative_position_bucket` in Hugging Face's transformers, for a decoder.
    #[test]
    fn buckets_are_those_of_t5() {
        let firsts = [(0, 0), (15, 15), (16, 16), (18, 16), (19, 17), (24, 19), (64, 26), (112, 30)];
        for (distance, expected) in firsts {
            assert_eq!(bucket(distance), expected, "{distance}");
        }
        assert_eq!([bucket(113), bucket(127), bucket(100_000)], [31; 3]);
    }
}
