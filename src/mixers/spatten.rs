//! SpAtten (Wang, Zhang & Han 2021): softmax attention that forgets what is attended to least, once it is trained. A token's importance
//! is the attention paid to it so far, over all heads; that of a head, the size of its outputs. Of both, a share is kept. As
//! published, importance passes from layer to layer; here it passes from token to token, so that no output knows a later token.

use super::attention::{self, Projections};
use super::rotary::Positions;
use super::{
    Core, Entry, Family, Gradient, Growth, Mixer, MixerOption, MixerSpec, Recurrent, ReleasedBlock,
    State,
};
use crate::nn::{Cx, Params};
use crate::ops::Weights;
use candle_core::{bail, DType, Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "spatten",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m) v_j, once trained of the most attended to j",
    cite: "Wang et al. 2021",
    variants: &["reference"],
    dsf: "no (keys are dropped)",
    heads: true,
    expands: true,
    rotary: true,
    released: ReleasedBlock::ATTENTION,
    options: &[
        MixerOption {
            name: "keep_tokens",
            help: "share of the tokens so far that evaluation keeps: `0.5`, or any number above 0 and up to 1",
            default: |_| "0.5",
            accepts: is_share,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "keep_heads",
            help: "share of the heads that evaluation keeps: `0.75`, or any number above 0 and up to 1",
            default: |_| "0.75",
            accepts: is_share,
            ..MixerOption::DEFAULT
        },
    ],
    growth: Growth::Exact {
        zeroed: &["wq", "wk", "bq", "bk"],
        scaled: &["wq", "bq"],
    },
    stem: "spatten",
    gradient: &[("bk", Gradient::Cancels)],
    work: |spec| Some(attention::work(spec, Core::SoftmaxAttention)),
    build: |spec, params| Ok(Box::new(SpAtten::new(spec, params)?)),
    ..Entry::of(Family::Attention)
};

/// Whether an option is a number above 0 and up to 1.
fn is_share(value: &str) -> bool {
    value
        .parse()
        .is_ok_and(|share: f64| share > 0.0 && share <= 1.0)
}

struct SpAtten {
    maps: Projections,
    keep_tokens: f64,
    keep_heads: f64,
}

/// How many of `count` are kept.
fn kept(share: f64, count: usize) -> usize {
    (share * count as f64).ceil() as usize
}

impl SpAtten {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let share = |name, default| {
            let given = spec.option(name).and_then(|share| share.parse().ok());
            given.unwrap_or(default)
        };
        Ok(Self {
            maps: Projections::new(spec, params)?,
            keep_tokens: share("keep_tokens", 0.5),
            keep_heads: share("keep_heads", 0.75),
        })
    }

    /// o `(batch, heads, 1, e)` of token `at` for its query, key and value, `(batch, heads, 1, width)`. The state: keys, values and
    /// importance of the tokens that are kept, and importance of all heads.
    fn attend(&self, [q, k, v]: [&Tensor; 3], at: usize, state: &mut State) -> Result<Tensor> {
        let [keys, values, tokens, heads] = &mut state.0[..] else {
            bail!(
                "spatten: a state of {} tensors, and not of 4",
                state.0.len()
            );
        };
        (*keys, *values) = (
            Tensor::cat(&[&*keys, k], 2)?,
            Tensor::cat(&[&*values, v], 2)?,
        );
        let scale = (k.dim(D::Minus1)? as f64).powf(-0.5);
        let scores = (q.matmul(&keys.t()?.contiguous()?)? * scale)?;
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        let o = weights.matmul(values)?;

        let attended = weights.squeeze(2)?.sum(1)?;
        *tokens = (tokens.pad_with_zeros(1, 0, 1)? + attended)?;
        let count = kept(self.keep_tokens, at + 1);
        if count < tokens.dim(1)? {
            let most = most(tokens, count)?;
            (*keys, *values) = (only(keys, &most)?, only(values, &most)?);
            *tokens = tokens.gather(&most, 1)?;
        }

        *heads = (&*heads + o.abs()?.sum(D::Minus1)?.squeeze(2)?)?;
        let count = kept(self.keep_heads, self.maps.n_heads);
        if count == self.maps.n_heads {
            return Ok(o);
        }
        let most = most(heads, count)?;
        let ones = most.ones_like()?.to_dtype(o.dtype())?;
        let used = heads.detach().zeros_like()?.scatter_add(&most, &ones, 1)?;
        o.broadcast_mul(&used.unsqueeze(2)?.unsqueeze(3)?)
    }
}

/// Which `count` numbers of each row of scores `(batch, width)` are largest, the first ones of equals: `(batch, count)` of u32, in
/// their order. It is decided on the host, since a sort on a GPU does not say what it does with equals.
fn most(scores: &Tensor, count: usize) -> Result<Tensor> {
    let rows = scores.detach().to_dtype(DType::F64)?.to_vec2::<f64>()?;
    let of_row = |row: &Vec<f64>| {
        let mut ids: Vec<u32> = (0..row.len() as u32).collect();
        ids.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]));
        ids.truncate(count);
        ids.sort_unstable();
        ids
    };
    let ids: Vec<u32> = rows.iter().flat_map(of_row).collect();
    Tensor::from_vec(ids, (rows.len(), count), scores.device())
}

/// The tokens `(batch, count)` of x `(batch, heads, tokens, width)`.
fn only(x: &Tensor, tokens: &Tensor) -> Result<Tensor> {
    let (batch, heads, _, width) = x.dims4()?;
    let ids = tokens.unsqueeze(1)?.unsqueeze(3)?;
    let ids = ids.broadcast_as((batch, heads, tokens.dim(1)?, width))?;
    x.gather(&ids.contiguous()?, 2)
}

impl Mixer for SpAtten {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        if cx.is_training() {
            let [q, k, v] = self.maps.maps(x, &Positions::Sequence(cx))?;
            let o = self.maps.attend([&q, &k, &v], Weights::Softmax, cx)?;
            return self.maps.output(&o);
        }
        let everywhere = Cx::eval();
        let maps = self.maps.heads(x, &Positions::Sequence(&everywhere))?;
        let mut state = self.start(x.dim(0)?, x)?;
        let attended = (0..x.dim(1)?).map(|at| {
            let [q, k, v] = maps.each_ref().map(|x| x.narrow(2, at, 1)?.contiguous());
            self.attend([&q?, &k?, &v?], at, &mut state)
        });
        let o = Tensor::cat(&attended.collect::<Result<Vec<_>>>()?, 2)?;
        self.maps.output(&cx.select(&self.maps.merge(&o)?)?)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        let heads = self.maps.n_heads;
        let each = heads * (self.maps.head_features + self.maps.head_dim);
        kept(self.keep_tokens, seq_len) * (each + 1) + heads
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "a softmax weighs its keys (Lemma 1), and which of them it keeps is a choice that no product of matrices makes"
    }
}

impl SpAtten {
    /// The state before the first token, for activations like `like`.
    fn start(&self, batch: usize, like: &Tensor) -> Result<State> {
        let Projections {
            n_heads,
            head_features,
            head_dim,
            ..
        } = self.maps;
        let none = |width| {
            let shape = (batch, n_heads, 0, width);
            Tensor::zeros(shape, like.dtype(), like.device())
        };
        let zeros = |width| Tensor::zeros((batch, width), like.dtype(), like.device());
        Ok(State(vec![
            none(head_features)?,
            none(head_dim)?,
            zeros(0)?,
            zeros(n_heads)?,
        ]))
    }
}

impl Recurrent for SpAtten {
    fn init(&self, batch: usize) -> Result<State> {
        self.start(batch, self.maps.like())
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let [q, k, v] = self.maps.heads(&x_t.unsqueeze(1)?, &Positions::Token(at))?;
        let o = self.attend([&q, &k, &v], at, state)?;
        self.maps.output_step(&o)
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
        let ids = |count| most(&scores, count).unwrap().to_vec2::<u32>().unwrap();
        assert_eq!(ids(2), [[1, 2], [0, 1]]);
        assert_eq!(ids(3), [[1, 2, 3], [0, 1, 2]]);
        assert_eq!(
            [kept(0.5, 1), kept(0.5, 3), kept(0.75, 4), kept(1.0, 7)],
            [1, 2, 3, 7]
        );
    }
}
