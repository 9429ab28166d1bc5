//! SpAtten (Wang, Zhang & Han 2021): softmax attention with cascade pruning of tokens and heads at inference. The
//! importance of a token is its cumulative attention weight over all heads, that of a head the cumulative magnitude of
//! its outputs; a fixed share of either is kept.
//!
//! In the variant `reference`, each layer keeps sums of its own from token to token, and its state holds the kept tokens
//! alone. In the variant `cascade`, importance goes from layer to layer, as in the paper.

use super::attention::{self, Projections};
use super::rotary::RotaryPositions;
use super::spatten_cascade::{self, kept, top_k, Cascade, WITHOUT_SYSTEM};
use super::{
    Core, Entry, Family, Gradient, Growth, Mixer, MixerOption, MixerSpec, Recurrent, ReleasedBlock, State,
    StateNormPlace,
};
use crate::nn::{Cx, Params};
use crate::ops::Weights;
use candle_core::{bail, DType, Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "spatten",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m) v_j, at inference over the most important j",
    cite: "Wang et al. 2021",
    variants: &["reference", "cascade"],
    dsf: "no (keys are dropped)",
    heads: true,
    multi_head: true,
    expands: true,
    rotary: true,
    released: ReleasedBlock::ATTENTION,
    options: &[
        MixerOption {
            name: "keep_tokens",
            help: "share of past tokens kept at evaluation, in the variant `cascade` by the last layer: `0.5`, or any \
                   number above 0 and up to 1",
            default: |_| "0.5",
            accepts: is_share,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "keep_heads",
            help: "share of heads kept at evaluation, in the variant `cascade` by the last layer: `0.75`, or any \
                   number above 0 and up to 1",
            default: |_| "0.75",
            accepts: is_share,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "keep_values",
            help:
                "share of the values of a head that its query reads at evaluation, those of the largest weights: `1`, \
                   or any number above 0 and up to 1",
            default: |_| "1",
            accepts: is_share,
            variants: &["cascade"],
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "bits",
            help: "bits of queries, keys and values at evaluation: `none` (not quantized), or leading bits + further \
                   bits such as `8+4`, 2 to 12 + 1 to 12; further bits of queries and keys are read where no weight \
                   reaches `threshold`",
            default: |_| "none",
            accepts: |v| v == "none" || spatten_cascade::bits(v).is_some(),
            variants: &["cascade"],
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "threshold",
            help: "largest weight of a query below which all `bits` are read: `0.1`, or any number above 0 and up to 1",
            default: |_| "0.1",
            accepts: is_share,
            variants: &["cascade"],
            ..MixerOption::DEFAULT
        },
    ],
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk"], scaled: &["wq", "bq"] },
    stem: "spatten",
    gradient: &[("bk", Gradient::Cancels)],
    work: |spec| Some(attention::work(spec, Core::SoftmaxAttention)),
    build: |spec, params| match spec.variant {
        "cascade" => Ok(Box::new(Cascade::new(spec, params)?)),
        _ => Ok(Box::new(SpAtten::new(spec, params)?)),
    },
    ..Entry::of(Family::Attention)
};

/// Whether an option is a number in (0, 1].
fn is_share(value: &str) -> bool {
    value.parse().is_ok_and(|share: f64| share > 0.0 && share <= 1.0)
}

struct SpAtten {
    projections: Projections,
    keep_tokens: f64,
    keep_heads: f64,
}

impl SpAtten {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let share = |name, default| spec.parsed(name).unwrap_or(default);
        Ok(Self {
            projections: Projections::new(spec, params)?,
            keep_tokens: share("keep_tokens", 0.5),
            keep_heads: share("keep_heads", 0.75),
        })
    }

    /// o `(batch, heads, 1, e)` of token `at` for its query, key and value, `(batch, heads, 1, m or e)`. The state
    /// holds keys, values and importance of the kept tokens, and the importance of all heads.
    fn attend(&self, [q, k, v]: [&Tensor; 3], at: usize, state: &mut State) -> Result<Tensor> {
        let [keys, values, token_importance, head_importance] = &mut state.0[..] else {
            bail!("spatten: a state of {} tensors, and not of 4", state.0.len());
        };
        (*keys, *values) = (Tensor::cat(&[&*keys, k], 2)?, Tensor::cat(&[&*values, v], 2)?);
        let scale = (k.dim(D::Minus1)? as f64).powf(-0.5);
        let scores = (q.matmul(&keys.t()?.contiguous()?)? * scale)?;
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        let o = weights.matmul(values)?;

        let attention = weights.squeeze(2)?.sum(1)?; // (batch, tokens)
        *token_importance = (token_importance.pad_with_zeros(1, 0, 1)? + attention)?;
        let count = kept(self.keep_tokens, at + 1);
        if count < token_importance.dim(1)? {
            let ids = most_important(token_importance, count)?;
            (*keys, *values) = (gather_tokens(keys, &ids)?, gather_tokens(values, &ids)?);
            *token_importance = token_importance.gather(&ids, 1)?;
        }

        *head_importance = (&*head_importance + o.abs()?.sum(D::Minus1)?.squeeze(2)?)?;
        let count = kept(self.keep_heads, self.projections.n_heads);
        if count == self.projections.n_heads {
            return Ok(o);
        }
        let ids = most_important(head_importance, count)?;
        let ones = ids.ones_like()?.to_dtype(o.dtype())?;
        let mask = head_importance.detach().zeros_like()?; // (batch, heads)
        let mask = mask.scatter_add(&ids, &ones, 1)?;
        o.broadcast_mul(&mask.unsqueeze(2)?.unsqueeze(3)?)
    }
}

/// [`top_k`] of each row of scores `(batch, width)`, `(batch, count)`. It runs on the host, since the order of equal
/// numbers in a sort on a GPU is unspecified.
fn most_important(scores: &Tensor, count: usize) -> Result<Tensor> {
    let rows = scores.detach().to_dtype(DType::F64)?.to_vec2::<f64>()?;
    let ids: Vec<u32> = rows.iter().flat_map(|row| top_k(row, count)).collect();
    Tensor::from_vec(ids, (rows.len(), count), scores.device())
}

/// Tokens `ids` `(batch, count)` of x `(batch, heads, tokens, width)`.
fn gather_tokens(x: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let (batch, heads, _, width) = x.dims4()?;
    let count = ids.dim(1)?;
    let ids = ids.unsqueeze(1)?.unsqueeze(3)?;
    let ids = ids.broadcast_as((batch, heads, count, width))?;
    x.gather(&ids.contiguous()?, 2)
}

impl Mixer for SpAtten {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        if cx.is_training() {
            let [q, k, v] = self.projections.qkv(x, &RotaryPositions::Sequence(cx))?;
            let o = self.projections.attend([&q, &k, &v], Weights::Softmax, cx)?;
            return self.projections.output(&o);
        }
        let all_positions = Cx::eval();
        let qkv = self.projections.heads(x, &RotaryPositions::Sequence(&all_positions))?;
        let mut state = self.start(x.dim(0)?, x)?;
        let outputs = (0..x.dim(1)?).map(|at| {
            let [q, k, v] = qkv.each_ref().map(|x| x.narrow(2, at, 1)?.contiguous());
            self.attend([&q?, &k?, &v?], at, &mut state)
        });
        let o = Tensor::cat(&outputs.collect::<Result<Vec<_>>>()?, 2)?;
        self.projections.output(&cx.select(&self.projections.merge(&o)?)?)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        let heads = self.projections.n_heads;
        let each = heads * (self.projections.head_features + self.projections.head_dim);
        kept(self.keep_tokens, seq_len) * (each + 1) + heads
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        WITHOUT_SYSTEM
    }
}

impl SpAtten {
    /// Initial state, of the dtype and on the device of `like`.
    fn start(&self, batch: usize, like: &Tensor) -> Result<State> {
        let Projections { n_heads, head_features, head_dim, .. } = self.projections;
        let none = |width| {
            let shape = (batch, n_heads, 0, width);
            Tensor::zeros(shape, like.dtype(), like.device())
        };
        let zeros = |width| Tensor::zeros((batch, width), like.dtype(), like.device());
        Ok(State::new(vec![none(head_features)?, none(head_dim)?, zeros(0)?, zeros(n_heads)?]))
    }
}

impl Recurrent for SpAtten {
    fn init(&self, batch: usize) -> Result<State> {
        self.start(batch, self.projections.like())
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let [q, k, v] = self.projections.heads(&x_t.unsqueeze(1)?, &RotaryPositions::Token(at))?;
        let o = self.attend([&q, &k, &v], at, state)?;
        self.projections.output_step(&o)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn the_largest_are_taken_in_their_order_and_the_first_of_equals() {
        let scores = [[0.5, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]];
        let scores = Tensor::new(&scores, &Device::Cpu).unwrap();
        let ids = |count| most_important(&scores, count).unwrap().to_vec2::<u32>().unwrap();
        assert_eq!(ids(2), [[1, 2], [0, 1]]);
        assert_eq!(ids(3), [[1, 2, 3], [0, 1, 2]]);
        assert_eq!([kept(0.5, 1), kept(0.5, 3), kept(0.75, 4), kept(1.0, 7)], [1, 2, 3, 7]);
    }
}
