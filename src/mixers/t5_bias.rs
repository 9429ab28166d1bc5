//! Softmax attention with the relative position bias of T5 (Raffel et al. 2020): a learnt number for each head and bucket of
//! distances, added to scores in place of position embeddings. T5 shares it among its layers; here each layer has its own.

use super::attention;
use super::softmax_attention::{Pairs, SoftmaxAttention};
use super::{Core, Entry, Family, Gradient, Growth, MixerSpec};
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
    expands: true,
    growth: Growth::Exact {
        zeroed: &["wq", "wk", "bq", "bk"],
        scaled: &["wq", "bq"],
    },
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

/// Buckets of a head.
const BUCKETS: usize = 32;
/// Distances below this have a bucket each.
const EXACT: usize = 16;
/// From this distance on, all share the last bucket.
const FARTHEST: usize = 128;

/// The bucket of a distance: beyond [`EXACT`], buckets grow with the distance.
fn bucket(distance: usize) -> usize {
    if distance < EXACT {
        return distance;
    }
    let of = |distance: usize| (distance as f64 / EXACT as f64).ln();
    let share = of(distance) / of(FARTHEST);
    let bucket = EXACT + (share * (BUCKETS - EXACT) as f64) as usize;
    bucket.min(BUCKETS - 1)
}

struct Buckets {
    /// `(32, heads)`.
    table: Tensor,
    /// Of the distances 0, 1, 2 and so on, up to the first in the last bucket.
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

impl Pairs for Buckets {
    fn pattern(&self, _seq_len: usize) -> Result<Pattern> {
        let dtype = self.table.dtype();
        let by_distance = ops::embedding(&self.ids, &self.table, None, None, dtype)?.squeeze(0)?;
        Ok(Pattern {
            bias: Some(by_distance.t()?.contiguous()?),
            ..Pattern::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `T5Attention._relative_position_bucket` of Hugging Face's transformers gives them for a decoder.
    #[test]
    fn buckets_are_those_of_t5() {
        let firsts = [
            (0, 0),
            (15, 15),
            (16, 16),
            (18, 16),
            (19, 17),
            (24, 19),
            (64, 26),
            (112, 30),
        ];
        for (distance, expected) in firsts {
            assert_eq!(bucket(distance), expected, "{distance}");
        }
        assert_eq!([bucket(113), bucket(127), bucket(100_000)], [31; 3]);
    }
}
