//! Sparse Sinkhorn attention (Tay et al. 2020): tokens attend to their own block and to one more, which is mixed from all blocks before
//! it by a matrix that Sinkhorn's rounds bring close to a permutation. In the causal form, sums over a column end at the row whose
//! weights they scale: later blocks would otherwise be known to earlier ones.

use super::attention::{self, Projections};
use super::rotary::Positions;
use super::{
    Core, Entry, Family, Gradient, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent,
    ReleasedBlock, State,
};
use crate::nn::{linear, Cx, Params};
use crate::ops::{self, Weights};
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "sinkhorn",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m) v_j, j of its block and of earlier ones mixed",
    cite: "Tay et al. 2020",
    variants: &["reference"],
    dsf: "no (keys are mixed anew)",
    heads: true,
    expands: true,
    released: ReleasedBlock::ATTENTION,
    options: &[
        MixerOption {
            name: "block",
            help: "tokens of a block: `16`, or any number from 1 on",
            default: |_| "16",
            accepts: |v| is_count(v, 1, 1 << 30),
            short: Some("3"),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "rounds",
            help: "times that columns and rows are normalised: `5`, from 0 to 100",
            default: |_| "5",
            accepts: |v| is_count(v, 0, 100),
            ..MixerOption::DEFAULT
        },
    ],
    growth: Growth::Exact {
        zeroed: &["wq", "wk", "bq", "bk", "wsq", "wsk"],
        scaled: &["wq", "bq", "wsq"],
    },
    stem: "sinkhorn",
    uncounted: &["wsk", "wsq"],
    gradient: &[("bk", Gradient::Cancels)],
    work: |spec| {
        let [block, rounds] =
            [("block", 16), ("rounds", 5)].map(|(name, of)| option(spec, name, of));
        let work = attention::work(spec, Core::SparseAttention(block.saturating_mul(2)));
        let matrices = spec.n_heads as f64 / (block as f64).powi(2);
        Some(MixerWork {
            pairs: [
                matrices * AT_ONCE,
                matrices * KEPT_IN_A_ROUND * (rounds + 1) as f64,
            ],
            ..work
        })
    },
    build: |spec, params| Ok(Box::new(Sinkhorn::new(spec, params)?)),
    ..Entry::of(Family::Attention)
};

fn is_count(value: &str, least: usize, most: usize) -> bool {
    value
        .parse::<usize>()
        .is_ok_and(|count| (least..=most).contains(&count))
}

fn option(spec: &MixerSpec, name: &str, default: usize) -> usize {
    let given = spec.option(name).and_then(|count| count.parse().ok());
    given.unwrap_or(default)
}

/// Matrices over pairs of blocks that exist at one time, and those that the backward pass keeps of a round.
const AT_ONCE: f64 = 6.0;
const KEPT_IN_A_ROUND: f64 = 12.0;

/// Subtracted from the logarithms of weights that are none.
const FAR: f64 = 1e30;

struct Sinkhorn {
    maps: Projections,
    /// What a block asks for, and what a block offers, `(n, d)` each.
    wsq: Tensor,
    wsk: Tensor,
    block: usize,
    rounds: usize,
}

impl Sinkhorn {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let shape = (spec.d_state, spec.d_model);
        Ok(Self {
            maps: Projections::new(spec, params)?,
            wsq: params.weight("wsq", shape, spec.input_std)?,
            wsk: params.weight("wsk", shape, spec.input_std)?,
            block: option(spec, "block", 16),
            rounds: option(spec, "rounds", 5),
        })
    }

    /// o `(batch, heads, seq_len, e)`.
    fn attend(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let everywhere = Cx::eval();
        let maps = self.maps.heads(x, &Positions::Sequence(&everywhere))?;
        let [q, k, v] = &maps;
        let len = x.dim(1)?;
        let own = len.min(self.block);
        let first = |x: &Tensor| x.narrow(2, 0, own)?.contiguous();
        let mask = cx.mask("attention", self.maps.dropout());
        let weights = Weights::Softmax;
        let heads = self.maps.n_heads;
        let o = ops::causal_attention(
            [&first(q)?, &first(k)?, &first(v)?],
            heads,
            None,
            weights,
            mask,
        )?;
        if own == len {
            return Ok(o);
        }
        let order = self.order(x)?;
        let blocks = Blocks {
            size: self.block,
            later: len.div_ceil(self.block) - 1,
        };
        let both = |x| Tensor::cat(&[blocks.mixed(x, &order)?, blocks.own(x)?], 3);
        let [asked, keys, values] = [blocks.own(q)?, both(k)?, both(v)?].map(|x| blocks.fold(&x));
        let asked = asked?;
        let sequences = asked.dim(0)?;
        let size = self.block as u32;
        let at = Tensor::arange(size, 2 * size, x.device())?.broadcast_left(sequences)?;
        let at = at.contiguous()?;
        let mask = cx.mask("attention of later blocks", self.maps.dropout());
        let later =
            ops::causal_attention([&asked, &keys?, &values?], heads, Some(&at), weights, mask)?;
        let later = blocks.unfold(&later)?.narrow(2, 0, len - own)?;
        Tensor::cat(&[&o, &later], 2)
    }

    /// The weights with which blocks 1, 2 and so on mix blocks 0, 1 and so on, `(batch, heads, blocks, blocks)`. A block asks by the
    /// mean of all tokens up to its own first, and offers the mean of its tokens.
    fn order(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, len, d) = x.dims3()?;
        let (size, later) = (self.block, len.div_ceil(self.block) - 1);
        let past = x.narrow(1, 0, later * size)?.contiguous()?;
        let sums = past.reshape((batch, later, size, d))?.sum(2)?;
        let firsts = x
            .narrow(1, size, len - size)?
            .pad_with_zeros(1, 0, (later + 1) * size - len)?
            .contiguous()?
            .reshape((batch, later, size, d))?
            .narrow(2, 0, 1)?
            .squeeze(2)?;
        let triangle = Tensor::tril2(later, x.dtype(), x.device())?;
        let so_far = (ops::matmul(&triangle.broadcast_left(batch)?, &sums)? + firsts)?;
        let counts: Vec<f64> = (1..=later).map(|b| (b * size + 1) as f64).collect();
        let counts = Tensor::from_vec(counts, (later, 1), x.device())?.to_dtype(x.dtype())?;
        let asked = linear(&so_far.broadcast_div(&counts)?, &self.wsq, None)?;
        let offered = linear(&(sums / size as f64)?, &self.wsk, None)?;
        let [asked, offered] = [self.maps.split(&asked)?, self.maps.split(&offered)?];
        let scale = (self.maps.head_features as f64).powf(-0.5);
        let scores = (ops::matmul(&asked, &offered.t()?)? * scale)?;
        balanced(&scores, self.rounds)
    }
}

/// Rows of weights that sum to 1, from scores `(.., blocks, blocks)` of which row i may use columns up to i: in every round, a
/// weight is divided by the sum of its column so far, and then by the sum of its row.
fn balanced(scores: &Tensor, rounds: usize) -> Result<Tensor> {
    let blocks = scores.dim(D::Minus1)?;
    let allowed = Tensor::tril2(blocks, scores.dtype(), scores.device())?;
    let hidden = allowed.affine(FAR, -FAR)?;
    let by_row =
        |logs: &Tensor| candle_nn::ops::log_softmax(&logs.broadcast_add(&hidden)?, D::Minus1);
    let mut logs = by_row(scores)?;
    for _ in 0..rounds {
        logs = by_row(&(&logs - sums_so_far(&logs)?)?)?;
    }
    logs.exp()
}

/// ln Σ e^x over the rows up to each row of x `(batch, heads, rows, columns)`.
fn sums_so_far(x: &Tensor) -> Result<Tensor> {
    let mut sums: Vec<Tensor> = Vec::with_capacity(x.dim(2)?);
    for row in 0..x.dim(2)? {
        let row = x.narrow(2, row, 1)?;
        sums.push(match sums.last() {
            Some(sum) => {
                let smaller = (sum - &row)?.abs()?.neg()?.exp()?;
                (sum.maximum(&row)? + (smaller + 1.0)?.log()?)?
            }
            None => row,
        });
    }
    Tensor::cat(&sums, 2)
}

/// The blocks of a sequence behind its first.
struct Blocks {
    size: usize,
    later: usize,
}

impl Blocks {
    /// x `(batch, heads, seq_len, width)` without its first block as `(batch, heads, blocks, size, width)`, the last one with zeros at
    /// its end.
    fn own(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, heads, len, width) = x.dims4()?;
        x.narrow(2, self.size, len - self.size)?
            .pad_with_zeros(2, 0, (self.later + 1) * self.size - len)?
            .contiguous()?
            .reshape((batch, heads, self.later, self.size, width))
    }

    /// The blocks before them, mixed by weights `(batch, heads, blocks, blocks)`, in the same shape.
    fn mixed(&self, x: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let (batch, heads, _, width) = x.dims4()?;
        let before = x.narrow(2, 0, self.later * self.size)?.contiguous()?;
        let before = before.reshape((batch, heads, self.later, self.size * width))?;
        let shape = (batch, heads, self.later, self.size, width);
        ops::matmul(weights, &before)?.reshape(shape)
    }

    /// Blocks as sequences of their own, `(batch · blocks, heads, rows, width)`.
    fn fold(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, heads, blocks, rows, width) = x.dims5()?;
        let by_block = x.transpose(1, 2)?.contiguous()?;
        by_block.reshape((batch * blocks, heads, rows, width))
    }

    /// Such sequences one after the other, `(batch, heads, blocks · rows, width)`.
    fn unfold(&self, x: &Tensor) -> Result<Tensor> {
        let (sequences, heads, rows, width) = x.dims4()?;
        let batch = sequences / self.later;
        let by_block = x.reshape((batch, self.later, heads, rows, width))?;
        let by_head = by_block.transpose(1, 2)?.contiguous()?;
        by_head.reshape((batch, heads, self.later * rows, width))
    }
}

impl Mixer for Sinkhorn {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let o = self.maps.merge(&self.attend(x, cx)?)?;
        self.maps.output(&cx.select(&o)?)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        seq_len * self.wsq.dims()[1]
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "what a block attends to is mixed anew from all blocks before it, and a softmax weighs it"
    }
}

/// The state: all tokens so far.
impl Recurrent for Sinkhorn {
    fn init(&self, _batch: usize) -> Result<State> {
        Ok(State::default())
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let x = x_t.unsqueeze(1)?;
        let all = match state.0.pop() {
            Some(before) => Tensor::cat(&[before, x], 1)?,
            None => x,
        };
        let last = self.attend(&all, &Cx::eval())?;
        let last = last.narrow(2, all.dim(1)? - 1, 1)?;
        state.0.push(all);
        self.maps.output_step(&last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    /// The first row has one choice; the second divides by sums of columns that end with it.
    #[test]
    fn weights_are_balanced_as_by_hand() {
        let scores = [[0.3f64, 9.0], [-0.4, 0.7]];
        let scores = Tensor::new(&[[scores]], &Device::Cpu).unwrap();
        let weights = |rounds| {
            let found = balanced(&scores, rounds).unwrap();
            found.flatten_all().unwrap().to_vec1::<f64>().unwrap()
        };
        let near = |found: Vec<f64>, expected: [f64; 4]| {
            let apart = found.iter().zip(expected).map(|(x, y)| (x - y).abs());
            assert!(apart.fold(0.0, f64::max) < 1e-12, "{found:?}");
        };
        let share = 1.0 / (1.0 + (0.7f64 + 0.4).exp());
        near(weights(0), [1.0, 0.0, share, 1.0 - share]);
        let column = share / (1.0 + share);
        near(
            weights(1),
            [1.0, 0.0, column / (column + 1.0), 1.0 / (column + 1.0)],
        );
    }
}
