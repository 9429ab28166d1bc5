//! Sparse Sinkhorn attention (Tay et al. 2020): tokens attend to their own block and to a soft permutation of the
//! blocks before it, a matrix that Sinkhorn normalisation brings close to a permutation. In the causal form, column
//! sums end at the row that they normalise, so that no block depends on a later one.
//!
//! The scores of blocks are bilinear, or with `sorting=network` those of the published sorting network, relu(W_B relu(W_P
//! x + b_P) + b_B) of the mean x of all tokens up to the first one of a block, with a score for each of `max_blocks`
//! blocks. They are divided by the temperature τ, with `gumbel=true` after Gumbel noise is added in training (Tay et al.
//! 2020, equations (3) to (6)).
//!
//! Over whole documents (`--bidirectional true`), all rows and columns are normalised, scores depend on the means of
//! blocks, and tokens attend to their own block and to the mixture of all blocks in its place; with `sortcut`, to the
//! first mixtures alone, which takes time linear in the length.

use super::attention::{self, Projections};
use super::rotary::RotaryPositions;
use super::{
    in_range, Core, Entry, Family, Gradient, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent,
    ReleasedBlock, State, StateNormPlace, FALSE_OR_TRUE,
};
use crate::error::{self, refuse};
use crate::nn::{linear, Cx, Params};
use crate::ops::{self, Weights};
use candle_core::{bail, Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "sinkhorn",
    equation: "o_i = Σ_j softmax_j(q_i·k_j/√m) v_j, j in its block or a mix of earlier ones",
    cite: "Tay et al. 2020",
    variants: &["reference"],
    dsf: "no (keys are mixed anew)",
    heads: true,
    multi_head: true,
    expands: true,
    bidirectional: true,
    check,
    released: ReleasedBlock::ATTENTION,
    options: &[
        MixerOption {
            name: "block",
            help: "tokens of a block: `16`, or any number from 1 on",
            default: |_| "16",
            accepts: |v| in_range(v, 1..=1 << 30),
            short: Some("3"),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "rounds",
            help: "iterations of Sinkhorn normalisation: `5`, from 0 to 100",
            default: |_| "5",
            accepts: |v| in_range(v, 0..=100),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "sorting",
            help: "scores of blocks: `bilinear`, or `network`, two layers with a score for each block, as published",
            default: |_| "bilinear",
            accepts: |v| v == "bilinear" || v == "network",
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "max_blocks",
            help: "blocks that a sorting network can sort: `64`, from 1 to 65536",
            default: |_| "64",
            accepts: |v| in_range(v, 1..=1 << 16),
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "temperature",
            help: "τ, which divides the scores of blocks: `1`, or another positive number; published models have 0.75",
            default: |_| "1",
            accepts: |v| v.parse().is_ok_and(|t: f64| t > 0.0 && t.is_finite()),
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "gumbel",
            help: "whether the scores of blocks have Gumbel noise in training, as published: `false` or `true`",
            ..FALSE_OR_TRUE
        },
        MixerOption {
            name: SORTCUT,
            help:
                "SortCut, with --bidirectional true: `0` (none), or the number of mixtures of blocks that all tokens \
                   attend to, from 1 on",
            default: |_| "0",
            accepts: |v| in_range(v, 0..=1 << 16),
            implied: true,
            ..MixerOption::DEFAULT
        },
    ],
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Exact { zeroed: &["wq", "wk", "bq", "bk", "wsq", "wsk"], scaled: &["wq", "bq", "wsq"] },
    stem: "sinkhorn",
    uncounted: &["wsb", "wsk", "wsp", "wsq"],
    gradient: &[
        ("bk", Gradient::Cancels),
        ("bsb", Gradient::Partial),
        ("bsp", Gradient::Partial),
        ("wsb", Gradient::Partial),
        ("wsp", Gradient::Partial),
    ],
    work: |spec| {
        let [block, rounds] = [("block", 16), ("rounds", 5)].map(|(name, of)| option(spec, name, of));
        let work = attention::work(spec, Core::SparseAttention(block.saturating_mul(2)));
        let matrices = spec.n_heads as f64 / (block as f64).powi(2);
        Some(MixerWork {
            pairs: [matrices * MATRICES_ALIVE, matrices * MATRICES_PER_ROUND * (rounds + 1) as f64],
            ..work
        })
    },
    build: |spec, params| Ok(Box::new(Sinkhorn::new(spec, params)?)),
    ..Entry::of(Family::Attention)
};

/// Option for the number of mixtures that SortCut keeps.
const SORTCUT: &str = "sortcut";

/// Error where a causal model has SortCut.
fn check(spec: &MixerSpec) -> error::Result<()> {
    match option(spec, SORTCUT, 0) {
        0 => Ok(()),
        _ if spec.bidirectional => Ok(()),
        kept => {
            refuse!(flag "--option" = format!("{SORTCUT}={kept}"), "needs --bidirectional true, which `dsf lra` has: the first sorted blocks are mixtures of a whole sequence")
        }
    }
}

fn option(spec: &MixerSpec, name: &str, default: usize) -> usize {
    spec.parsed(name).unwrap_or(default)
}

/// Matrices over pairs of blocks that are alive at once in a forward pass.
const MATRICES_ALIVE: f64 = 6.0;
/// Matrices over pairs of blocks that one iteration keeps for the backward pass.
const MATRICES_PER_ROUND: f64 = 12.0;

/// Finite stand-in for -ln 0, which masks weights.
const MASKED: f64 = 1e30;

struct Sinkhorn {
    projections: Projections,
    sorting: Sorting,
    /// τ.
    temperature: f64,
    /// Whether scores have noise in training.
    gumbel: bool,
    block: usize,
    rounds: usize,
    /// Number of mixtures that all tokens attend to in place of two blocks, over whole documents.
    sortcut: Option<usize>,
    d: usize,
}

/// Parameters of the scores of blocks.
enum Sorting {
    /// Projections to the queries and keys of blocks, `(n, d)` each.
    Bilinear { wsq: Tensor, wsk: Tensor },
    /// W_P `(d, d)` and W_B `(heads · max_blocks, d)`, each with its bias.
    Network([[Tensor; 2]; 2]),
}

impl Sorting {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        if spec.option("sorting") == Some("network") {
            let layer = |name: &str, rows: usize| -> Result<[Tensor; 2]> {
                let weight = params.weight(&format!("w{name}"), (rows, d), spec.input_std)?;
                Ok([weight, params.bias(&format!("b{name}"), rows, d)?])
            };
            let scores = spec.n_heads * option(spec, "max_blocks", 64);
            return Ok(Self::Network([layer("sp", d)?, layer("sb", scores)?]));
        }
        let weight = |name| params.weight(name, (spec.d_state, d), spec.input_std);
        Ok(Self::Bilinear { wsq: weight("wsq")?, wsk: weight("wsk")? })
    }

    /// Scores `(batch, heads, blocks, blocks)` of each of the first blocks for each of the blocks that look back, by
    /// the means `read` of all tokens that those have seen and the means `own` of the tokens of the first blocks,
    /// `(batch, blocks, d)` each.
    fn scores(&self, read: &Tensor, own: &Tensor, projections: &Projections) -> Result<Tensor> {
        match self {
            Self::Bilinear { wsq, wsk } => {
                let q = projections.split(&linear(read, wsq, None)?)?;
                let k = projections.split(&linear(own, wsk, None)?)?;
                let scale = (projections.head_features as f64).powf(-0.5);
                ops::matmul(&q, &k.t()?)? * scale
            }
            Self::Network([[wp, bp], [wb, bb]]) => {
                let (batch, blocks, _) = read.dims3()?;
                let most = bb.elem_count() / projections.n_heads;
                if blocks > most {
                    bail!(
                        "sinkhorn: the sorting network sorts {most} blocks, and not the {blocks} of this sequence; set a \
                         larger --option max_blocks, or a larger block"
                    );
                }
                let hidden = linear(read, wp, Some(bp))?.relu()?;
                let scores = linear(&hidden, wb, Some(bb))?.relu()?;
                let scores = scores.reshape((batch, blocks, projections.n_heads, most))?;
                scores.narrow(3, 0, blocks)?.transpose(1, 2)?.contiguous()
            }
        }
    }
}

impl Sinkhorn {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(spec, params)?,
            sorting: Sorting::new(spec, params)?,
            temperature: spec.parsed("temperature").unwrap_or(1.0),
            gumbel: spec.has("gumbel"),
            d: spec.d_model,
            block: option(spec, "block", 16),
            rounds: option(spec, "rounds", 5),
            sortcut: Some(option(spec, SORTCUT, 0)).filter(|kept| *kept > 0),
        })
    }

    /// o `(batch, heads, seq_len, e)`.
    fn attend(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let all_positions = Cx::eval();
        let qkv = self.projections.heads(x, &RotaryPositions::Sequence(&all_positions))?;
        let [q, k, v] = &qkv; // (batch, heads, seq_len, m or e)
        let len = x.dim(1)?;
        let first_len = len.min(self.block);
        let first = |x: &Tensor| x.narrow(2, 0, first_len)?.contiguous();
        let mask = cx.mask("attention", self.projections.dropout());
        let weights = Weights::Softmax;
        let heads = self.projections.n_heads;
        let o = ops::causal_attention([&first(q)?, &first(k)?, &first(v)?], heads, None, weights, mask)?;
        if first_len == len {
            return Ok(o);
        }
        let permutation = self.permutation(x, cx)?; // (batch, heads, blocks, blocks)
        let blocks = Blocks { size: self.block, count: len.div_ceil(self.block) - 1 };
        let both = |x| Tensor::cat(&[mixed(&permutation, &blocks.before_last(x, 2)?)?, blocks.after_first(x, 2)?], 3);
        let [q, k, v] = [blocks.after_first(q, 2)?, both(k)?, both(v)?].map(|x| fold(&x));
        let q = q?; // (batch · blocks, heads, size, m)
        let sequences = q.dim(0)?;
        let size = self.block as u32;
        let at = Tensor::arange(size, 2 * size, x.device())?.broadcast_left(sequences)?;
        let at = at.contiguous()?;
        let mask = cx.mask("attention of later blocks", self.projections.dropout());
        let later = ops::causal_attention([&q, &k?, &v?], heads, Some(&at), weights, mask)?;
        let later = unfold(&later, blocks.count)?.narrow(2, 0, len - first_len)?;
        Tensor::cat(&[&o, &later], 2)
    }

    /// Soft permutation `(batch, heads, blocks, blocks)`: weights of blocks 0, 1, .. in the mixtures that blocks 1,
    /// 2, .. attend to. The score of a block depends on the mean of all tokens up to the first one of the block that looks
    /// back and, if it is bilinear, on the mean of its own tokens.
    fn permutation(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, len, _) = x.dims3()?;
        let (size, later) = (self.block, len.div_ceil(self.block) - 1);
        let blocks = Blocks { size, count: later };
        let sums = blocks.before_last(x, 1)?.sum(2)?;
        let firsts = blocks.after_first(x, 1)?.narrow(2, 0, 1)?.squeeze(2)?;
        let triangle = Tensor::tril2(later, x.dtype(), x.device())?;
        let sums_so_far = (ops::matmul(&triangle.broadcast_left(batch)?, &sums)? + firsts)?;
        let counts: Vec<f64> = (1..=later).map(|b| (b * size + 1) as f64).collect();
        let counts = Tensor::from_vec(counts, (later, 1), x.device())?.to_dtype(x.dtype())?;
        let (read, own) = (sums_so_far.broadcast_div(&counts)?, (sums / size as f64)?);
        sinkhorn_normalise(&self.scores(&read, &own, cx)?, self.rounds)
    }

    /// Scores of blocks as they are normalised, for the means of [`Sorting::scores`].
    fn scores(&self, read: &Tensor, own: &Tensor, cx: &Cx) -> Result<Tensor> {
        let mut scores = self.sorting.scores(read, own, &self.projections)?;
        if self.gumbel {
            scores = cx.with_gumbel(scores, "sorting")?;
        }
        match self.temperature {
            1.0 => Ok(scores),
            temperature => scores / temperature,
        }
    }

    /// o `(batch, heads, seq_len, e)` over whole documents, whose last tokens are at `last` `(batch)`.
    fn attend_to_all(&self, x: &Tensor, last: &Tensor, cx: &Cx) -> Result<Tensor> {
        let len = x.dim(1)?;
        let blocks = Blocks { size: self.block, count: len.div_ceil(self.block) };
        let seen = blocks.seen(last, x)?; // (batch, blocks, size)
        let x_of_blocks = blocks.padded(x, 1)?.broadcast_mul(&seen.unsqueeze(3)?)?;
        let means = x_of_blocks.sum(2)?.broadcast_div(&seen.sum_keepdim(2)?.maximum(1.0)?)?;
        let occupied = seen.narrow(2, 0, 1)?.squeeze(2)?; // (batch, blocks)
        let sorted = normalise_all(&self.scores(&means, &means, cx)?, &occupied, self.rounds)?;

        let all_positions = Cx::eval();
        let [q, k, v] = self.projections.heads(x, &RotaryPositions::Sequence(&all_positions))?;
        let of_tokens = seen.unsqueeze(1)?.unsqueeze(4)?; // (batch, 1, blocks, size, 1)
        let own = |x: &Tensor| blocks.padded(x, 2)?.broadcast_mul(&of_tokens);
        let [own_k, own_v] = [own(&k)?, own(&v)?];
        // A mixture has the places that its document has in any block, which are those of the first.
        let places = seen.narrow(1, 0, 1)?; // (batch, 1, size)
        if let Some(kept) = self.sortcut {
            let kept = kept.min(blocks.count);
            let occupied = occupied.narrow(1, 0, kept)?.unsqueeze(2)?;
            let seen = places.broadcast_mul(&occupied)?.flatten_from(1)?; // (batch, kept · size)
            let sorted = sorted.narrow(2, 0, kept)?.contiguous()?;
            let [k, v] = [mixed(&sorted, &own_k)?, mixed(&sorted, &own_v)?].map(|x| x.flatten(2, 3));
            return self.weighted([&q, &k?, &v?], &seen, cx);
        }
        let both = |own: &Tensor| Tensor::cat(&[&mixed(&sorted, own)?, own], 3);
        let seen = Tensor::cat(&[places.broadcast_as(seen.shape())?.contiguous()?, seen], 2)?;
        let qkv = [fold(&own(&q)?)?, fold(&both(&own_k)?)?, fold(&both(&own_v)?)?];
        let o = self.weighted(qkv.each_ref(), &seen.flatten_to(1)?, cx)?;
        unfold(&o, blocks.count)?.narrow(2, 0, len)
    }

    /// Attention `(sequences, heads, rows, e)` of all queries to the keys that are `seen`, 1 or 0 in `(sequences, keys)`.
    fn weighted(&self, [q, k, v]: [&Tensor; 3], seen: &Tensor, cx: &Cx) -> Result<Tensor> {
        let scale = (self.projections.head_features as f64).powf(-0.5);
        let mask = seen.affine(MASKED, -MASKED)?.unsqueeze(1)?.unsqueeze(2)?;
        let scores = (ops::matmul(q, &k.t()?)? * scale)?.broadcast_add(&mask)?;
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        ops::matmul(&cx.dropout(&weights, "attention", self.projections.dropout())?, v)
    }
}

/// Sinkhorn normalisation of scores `(batch, heads, blocks, blocks)` over the blocks that are `occupied`, 1 or 0 in
/// `(batch, blocks)`: each iteration divides a weight by the sum of its column, then by that of its row. Weights of other
/// blocks are 0.
fn normalise_all(scores: &Tensor, occupied: &Tensor, rounds: usize) -> Result<Tensor> {
    let pairs = occupied.unsqueeze(2)?.broadcast_mul(&occupied.unsqueeze(1)?)?.unsqueeze(1)?;
    let mask = pairs.affine(MASKED, -MASKED)?;
    let along = |logs: &Tensor, axis: D| candle_nn::ops::log_softmax(&logs.broadcast_add(&mask)?, axis);
    let mut logs = along(scores, D::Minus1)?;
    for _ in 0..rounds {
        logs = along(&along(&logs, D::Minus2)?, D::Minus1)?;
    }
    logs.exp()?.broadcast_mul(&pairs)
}

/// Causal Sinkhorn normalisation of scores `(.., blocks, blocks)`, lower triangular: each iteration divides a weight by
/// the sum of its column up to its row, then by the sum of its row.
fn sinkhorn_normalise(scores: &Tensor, rounds: usize) -> Result<Tensor> {
    let blocks = scores.dim(D::Minus1)?;
    let allowed = Tensor::tril2(blocks, scores.dtype(), scores.device())?;
    let mask = allowed.affine(MASKED, -MASKED)?;
    let by_row = |logs: &Tensor| candle_nn::ops::log_softmax(&logs.broadcast_add(&mask)?, D::Minus1);
    let mut logs = by_row(scores)?;
    for _ in 0..rounds {
        logs = by_row(&(&logs - cumulative_logsumexp(&logs)?)?)?;
    }
    logs.exp()
}

/// ln Σ e^x over the rows of x `(batch, heads, rows, columns)` up to each row.
fn cumulative_logsumexp(x: &Tensor) -> Result<Tensor> {
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

/// Some blocks of a sequence, the last one padded with zeros.
struct Blocks {
    size: usize,
    count: usize,
}

impl Blocks {
    /// x with the tokens of its axis `axis` in blocks, which are two axes.
    fn padded(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        let len = x.dim(axis)?;
        let mut shape = x.dims().to_vec();
        shape.splice(axis..=axis, [self.count, self.size]);
        x.pad_with_zeros(axis, 0, self.count * self.size - len)?.contiguous()?.reshape(shape)
    }

    /// The blocks from the start of a sequence that has further ones, as [`Self::padded`].
    fn before_last(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        self.padded(&x.narrow(axis, 0, self.count * self.size)?, axis)
    }

    /// The blocks after the first one of a sequence, as [`Self::padded`].
    fn after_first(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        self.padded(&x.narrow(axis, self.size, x.dim(axis)? - self.size)?, axis)
    }

    /// 1 for tokens up to the positions `last` `(batch)`, and else 0, `(batch, blocks, size)`, of the dtype of `like`.
    fn seen(&self, last: &Tensor, like: &Tensor) -> Result<Tensor> {
        let len = self.count * self.size;
        let at = Tensor::arange(0, len as u32, last.device())?.unsqueeze(0)?;
        let seen = at.broadcast_le(&last.unsqueeze(1)?)?;
        seen.to_dtype(like.dtype())?.reshape((last.dim(0)?, self.count, self.size))
    }
}

/// Mixtures `(batch, heads, rows, size, width)` of blocks x `(batch, heads, blocks, size, width)` by weights
/// `(batch, heads, rows, blocks)`.
fn mixed(weights: &Tensor, x: &Tensor) -> Result<Tensor> {
    let (batch, heads, _, size, width) = x.dims5()?;
    ops::matmul(weights, &x.flatten_from(3)?)?.reshape((batch, heads, weights.dim(2)?, size, width))
}

/// Blocks of x `(batch, heads, blocks, rows, width)` as separate sequences, `(batch · blocks, heads, rows, width)`.
fn fold(x: &Tensor) -> Result<Tensor> {
    x.transpose(1, 2)?.contiguous()?.flatten_to(1)
}

/// Inverse of [`fold`] for `count` blocks a sequence, concatenated: `(batch, heads, count · rows, width)`.
fn unfold(x: &Tensor, count: usize) -> Result<Tensor> {
    let (sequences, heads, rows, width) = x.dims4()?;
    let batch = sequences / count;
    let by_head = x.reshape((batch, count, heads, rows, width))?.transpose(1, 2)?.contiguous()?;
    by_head.reshape((batch, heads, count * rows, width))
}

impl Mixer for Sinkhorn {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let o = match cx.last_seen()? {
            Some(last) => self.attend_to_all(x, &last, cx)?,
            None => self.attend(x, cx)?,
        };
        let o = self.projections.merge(&o)?;
        self.projections.output(&cx.select(&o)?)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        seq_len * self.d
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "each block attends to a mixture of blocks of its own, by a softmax"
    }
}

/// State: all tokens so far, `(batch, tokens, d)`.
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
        self.projections.output_step(&last)
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
            let found = sinkhorn_normalise(&scores, rounds).unwrap();
            found.flatten_all().unwrap().to_vec1::<f64>().unwrap()
        };
        let near = |found: Vec<f64>, expected: [f64; 4]| {
            let apart = found.iter().zip(expected).map(|(x, y)| (x - y).abs());
            assert!(apart.fold(0.0, f64::max) < 1e-12, "{found:?}");
        };
        let share = 1.0 / (1.0 + (0.7f64 + 0.4).exp());
        near(weights(0), [1.0, 0.0, share, 1.0 - share]);
        let column = share / (1.0 + share);
        near(weights(1), [1.0, 0.0, column / (column + 1.0), 1.0 / (column + 1.0)]);
    }
}
