//! Measures a system in one pass from its last token to its first: rows of the block kernel (12), and statistics of Λ,
//! B and C. The pass stores E m numbers per row and step, and no N by N matrix or L by L blocks.

use super::products::{median, Products, AT_ONE, LEAST};
use super::room::ROWS;
use super::spectrum::{beside_rank_one, effective_rank};
use super::subject::Seen;
use crate::ltv::OffDiagonal;
use candle_core::{DType, Device, IndexOp, Result, Tensor};

/// Share of a row's norms within its effective horizon.
const HELD: f64 = 0.9;

/// Measures of one system along its input.
#[derive(Clone, Debug)]
pub struct Measures {
    /// L.
    pub seq_len: usize,
    /// N = E m.
    pub width: usize,
    /// The tokens i whose rows of Φ are computed, ascending; they include the last token.
    pub rows: Vec<usize>,
    /// Frobenius norms of Φ_ij without D_i for each row, j = 0 to i. D is excluded because it would hide the
    /// contribution of the state.
    pub norms: Vec<Vec<f64>>,
    /// y_i by the kernel (12), for each row.
    pub outputs: Vec<Vec<f64>>,
    /// Effective rank of the rows without D, each as a vector of all its blocks.
    pub rank: f64,
    /// Effective horizon of the rows; `None` if all are 0.
    pub horizon: Option<Horizon>,
    /// The same of the part of Φ that passes through each head; empty for a single head.
    pub horizons_of_heads: Vec<Option<Horizon>>,
    /// Smallest, median and largest |λ|, for each token but the first.
    pub spectrum: Vec<[f64; 3]>,
    /// Frobenius norms ‖B_i‖ and ‖C_i‖, for each token.
    pub gains: Vec<[f64; 2]>,
    /// Half-life of (Π_{k=j+1..L-1} Λ_k) g_j in tokens for each state, ascending; infinite if it does not decay. Empty
    /// for a single token, and if the eigenvalues of a product are not the products of eigenvalues.
    pub half_lives: Vec<f64>,
    /// Median half-life of the states of each head; empty without half-lives, and for a single head.
    pub half_lives_of_heads: Vec<f64>,
    /// Share of states in each of the [bins](super::products::bins); empty without half-lives.
    pub shares: Vec<f64>,
    /// Share of |λ| above 1; `None` for a single token.
    pub growing: Option<f64>,
    /// Largest number of distinct values in one Λ_i; `None` for a single token.
    pub free: Option<usize>,
    /// Largest |λ| of a product of Λs up to the last token; `None` for a single token, and if the eigenvalues of a
    /// product are not the products of eigenvalues.
    pub largest_product: Option<f64>,
    /// Standard deviation of ln g_j over tokens j, averaged over channels; `None` without a gate, and for a single
    /// token.
    pub gate: Option<f64>,
    /// Standard deviation of ln |(Π_{k=j+1..L-1} Λ_k) g_j| over tokens j, averaged over states: 0 if the product
    /// cancels the gate. `None` without half-lives.
    pub product: Option<f64>,
}

/// Number of last tokens that hold nine tenths of a row's norms, averaged over rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Horizon {
    /// The number of tokens.
    pub tokens: f64,
    /// The number as a share of the tokens of the row.
    pub share: f64,
}

impl Measures {
    /// Measures a system along its input.
    pub fn of(seen: &Seen) -> Result<Self> {
        Self::of_rows(seen, 1, chosen(seen.input.dim(0)?))
    }

    /// Same as [`Self::of`] for a system of `heads` heads, with the rows of Φ of these tokens, the last among them.
    pub fn of_rows(seen: &Seen, heads: usize, rows: Vec<usize>) -> Result<Self> {
        MeasurePass::new(seen, heads)?.run(heads, rows)
    }

    /// Smallest and largest |λ| over all tokens, and between them the median of the tokens' medians; `None` for a
    /// single token.
    pub fn moduli(&self) -> Option<[f64; 3]> {
        let of = |which: usize| self.spectrum.iter().map(move |row| row[which]);
        let mut medians: Vec<f64> = of(1).collect();
        medians.sort_by(f64::total_cmp);
        let [low, high] = [of(0).reduce(f64::min)?, of(2).reduce(f64::max)?];
        Some([low, median(&medians)?, high])
    }

    /// The median half-life of the states.
    pub fn half_life(&self) -> Option<f64> {
        median(&self.half_lives)
    }
}

/// The tokens whose rows are computed.
pub fn chosen(seq_len: usize) -> Vec<usize> {
    evenly(seq_len, ROWS)
}

/// The tokens whose rows are computed of a system in either direction: the same ones, counted from either end.
pub fn mirrored(seq_len: usize) -> Vec<usize> {
    if seq_len <= ROWS {
        return chosen(seq_len);
    }
    let half: Vec<usize> = (0..ROWS / 2).map(|c| c * (seq_len - 1) / (ROWS - 1)).collect();
    let others = half.iter().rev().map(|i| seq_len - 1 - i);
    half.iter().copied().chain(others).collect()
}

/// At most `most` of `count` indices, evenly spaced, including the last.
pub fn evenly(count: usize, most: usize) -> Vec<usize> {
    let kept = count.min(most);
    (1..=kept).map(|c| c * count / kept - 1).collect()
}

/// Mean horizon of rows of norms, each ending at its own token; rows of zeros are left out.
pub fn horizon(norms: &[Vec<f64>]) -> Option<Horizon> {
    let rows: Vec<(f64, f64)> = norms.iter().filter_map(|row| Some((count_held(row)?, row.len() as f64))).collect();
    let count = rows.len() as f64;
    (count > 0.0).then(|| Horizon {
        tokens: rows.iter().map(|(held, _)| held).sum::<f64>() / count,
        share: rows.iter().map(|(held, all)| held / all).sum::<f64>() / count,
    })
}

/// Number of last entries of a row that hold nine tenths of its sum; `None` for a row of zeros.
fn count_held(row: &[f64]) -> Option<f64> {
    let sum = row.iter().sum::<f64>();
    let mut held = 0.0;
    let short = row.iter().rev().take_while(|norm| {
        held += **norm;
        held < HELD * sum
    });
    let tokens = (short.count() + 1).min(row.len()) as f64;
    (sum > 0.0).then_some(tokens)
}

/// Horizon of rows that end at these tokens and have equal weights.
pub fn uniform_horizon(rows: &[usize]) -> Option<Horizon> {
    let norms: Vec<Vec<f64>> = rows.iter().map(|&i| vec![1.0; i + 1]).collect();
    horizon(&norms)
}

/// Λ at one token.
struct Transition {
    /// Its diagonal, `(E, m)`.
    decay: Vec<f64>,
    off: OffDiagonalAt,
}

/// The part of a [`Transition`] off its diagonal.
enum OffDiagonalAt {
    Zero,
    /// Imaginary parts, `(E/2, m)`.
    Complex(Vec<f64>),
    /// a and b, `(E, m)` each.
    RankOne([Vec<f64>; 2]),
}

impl Transition {
    fn of(decays: &Tensor, off_diagonal: &OffDiagonal, j: usize) -> Result<Self> {
        Ok(Self {
            decay: step(decays, j)?,
            off: match off_diagonal {
                OffDiagonal::Zero => OffDiagonalAt::Zero,
                OffDiagonal::Complex(im) => OffDiagonalAt::Complex(step(im, j)?),
                OffDiagonal::RankOne { a, b } => OffDiagonalAt::RankOne([step(a, j)?, step(b, j)?]),
            },
        })
    }

    /// Carries rows of C back by one token, as Λᵀ x for each. The layout of `carried` is that of [`PhiRow::carried`].
    fn pull(&self, carried: &mut [f64], states: usize) {
        match &self.off {
            OffDiagonalAt::Zero => {
                for (x, lambda) in carried.iter_mut().zip(&self.decay) {
                    *x *= lambda;
                }
            }
            OffDiagonalAt::Complex(im) => {
                let (own, other) = carried.split_at_mut(self.decay.len());
                let im = im.iter().copied().chain(im.iter().map(|x| -x));
                let each = own.iter_mut().zip(other).zip(&self.decay).zip(im);
                for (((own, other), re), im) in each {
                    let before = (*own, *other);
                    *own = re * before.0 + im * before.1;
                    *other = re * before.1 - im * before.0;
                }
            }
            OffDiagonalAt::RankOne([a, b]) => {
                let factors = a.chunks(states).zip(b.chunks(states));
                let factors = self.decay.chunks(states).zip(factors);
                for (x, (decay, (a, b))) in carried.chunks_mut(states).zip(factors) {
                    let found = dot(a, x);
                    x.iter_mut().zip(decay).zip(b).for_each(|((x, lambda), b)| *x = lambda * *x + found * b);
                }
            }
        }
        carried.iter_mut().for_each(|x| *x = flush_to_zero(*x));
    }

    /// |λ| of every eigenvalue.
    fn moduli(&self, states: usize) -> Vec<f64> {
        match &self.off {
            OffDiagonalAt::Zero => self.decay.iter().map(|x| x.abs()).collect(),
            OffDiagonalAt::Complex(im) => im.iter().chain(im).zip(&self.decay).map(|(im, re)| re.hypot(*im)).collect(),
            OffDiagonalAt::RankOne([a, b]) => {
                let of = |c: usize| {
                    let range = c * states..(c + 1) * states;
                    [&self.decay[range.clone()], &a[range.clone()], &b[range]]
                };
                let mut all: Vec<f64> = Vec::with_capacity(self.decay.len());
                for c in 0..self.decay.len() / states {
                    // The channels of a head have one transition.
                    if c > 0 && of(c) == of(c - 1) {
                        all.extend_from_within((c - 1) * states..);
                        continue;
                    }
                    let [decay, a, b] = of(c);
                    all.extend(beside_rank_one(decay, a, b).iter().map(|value| value.abs()));
                }
                all
            }
        }
    }

    /// Number of distinct values in the transition.
    fn different(&self) -> usize {
        let parts: Vec<&Vec<f64>> = match &self.off {
            OffDiagonalAt::Zero => vec![&self.decay],
            OffDiagonalAt::Complex(im) => vec![&self.decay, im],
            OffDiagonalAt::RankOne([a, b]) => vec![&self.decay, a, b],
        };
        let count = |part: &Vec<f64>| {
            let mut values = part.clone();
            values.sort_by(f64::total_cmp);
            values.dedup();
            values.len()
        };
        parts.into_iter().map(count).sum()
    }
}

/// The numbers of a factor at token `i`, flattened, in f64.
fn step(factor: &Tensor, i: usize) -> Result<Vec<f64>> {
    factor.i(i)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

fn matrix(x: &Tensor) -> Result<Vec<Vec<f64>>> {
    x.to_dtype(DType::F64)?.to_vec2()
}

/// A row of Φ during the pass.
struct PhiRow {
    at: usize,
    /// C_i Π Λ without the output map: the weights with which each channel reads its own states, `(distinct, m)`. For
    /// complex states they are followed by the weights on the states of the other channel of its pair, in the same
    /// layout.
    carried: Vec<f64>,
    /// Σ_j of the contributions to each channel, `(E)`.
    outputs: Vec<f64>,
    /// Norms from the diagonal backwards.
    norms: Vec<f64>,
    /// The same of the part of each head.
    norms_of_heads: Vec<Vec<f64>>,
}

struct MeasurePass<'a> {
    seen: &'a Seen,
    sizes: [usize; 3],
    /// Number of channels whose factors differ: one if all channels share them, as in attention with one head,
    /// otherwise all.
    distinct: usize,
    values: Vec<Vec<f64>>,
    /// The reading channel and the channel that is read, for each entry of a kernel.
    links: Vec<(usize, usize)>,
    /// Matrix G of ⟨Φ_ij, Φ_lj⟩ = kᵀ G l for the kernels k and l, with a row and a column for each of `links`.
    inner: Tensor,
    /// Blocks of G of the channels of each head; empty for a single head.
    heads: Vec<Tensor>,
    /// Squared norms of the rows of the value map and of the columns of the output map, summed over the channels that
    /// share factors.
    maps: [Vec<f64>; 2],
}

impl<'a> MeasurePass<'a> {
    fn new(seen: &'a Seen, heads: usize) -> Result<Self> {
        let system = &seen.system;
        let (seq_len, channels, states) = system.sizes()?;
        let square = |x: Option<Tensor>| -> Result<Vec<Vec<f64>>> {
            match x {
                Some(x) => {
                    let x = x.to_dtype(DType::F64)?;
                    matrix(&x.matmul(&x.t()?.contiguous()?)?)
                }
                None => {
                    let one = |i: usize, j: usize| if i == j { 1.0 } else { 0.0 };
                    Ok((0..channels).map(|i| (0..channels).map(|j| one(i, j)).collect()).collect())
                }
            }
        };
        // The column of the constant input is not part of Φ.
        let width = seen.input.dim(1)?;
        let value = system.value.as_ref().map(|v| v.narrow(1, 0, width)?.contiguous());
        let output = system.output.as_ref().map(|w| w.t()?.contiguous());
        let (value, output) = (square(value.transpose()?)?, square(output.transpose()?)?);
        let mut links: Vec<(usize, usize)> = (0..channels).map(|c| (c, c)).collect();
        if matches!(system.off_diagonal, OffDiagonal::Complex(_)) {
            links.extend((0..channels).map(|c| (c, (c + channels / 2) % channels)));
        }
        let pairs = links.iter().flat_map(|&(o, v)| links.iter().map(move |&(p, w)| ((o, p), (v, w))));
        let inner: Vec<f64> = pairs.map(|((o, p), (v, w))| output[o][p] * value[v][w]).collect();
        let same = |factor: &&Tensor| factor.stride()[1] == 0;
        let factors = [&system.decay, &system.write, &system.read];
        let same =
            factors.iter().chain(&system.gate.as_ref()).all(same) && matches!(system.off_diagonal, OffDiagonal::Zero);
        let distinct = if same { 1 } else { channels };
        let diagonal = |x: &[Vec<f64>]| -> Vec<f64> {
            let diagonal: Vec<f64> = x.iter().enumerate().map(|(i, row)| row[i]).collect();
            diagonal.chunks(channels / distinct).map(|norms| norms.iter().sum()).collect()
        };
        let inner = Tensor::from_vec(inner, (links.len(), links.len()), &Device::Cpu)?;
        // The channels of a head are neighbours, which a pair of complex states would not be.
        let parted = heads > 1 && links.len() == channels && channels.is_multiple_of(heads);
        let block = |head: usize| {
            let width = channels / heads;
            inner.narrow(0, head * width, width)?.narrow(1, head * width, width)?.contiguous()
        };
        let of_heads: Vec<Tensor> = (0..if parted { heads } else { 0 }).map(block).collect::<Result<_>>()?;
        Ok(Self {
            seen,
            sizes: [seq_len, channels, states],
            distinct,
            values: matrix(&system.values(&seen.input)?)?,
            inner,
            heads: of_heads,
            links,
            maps: [diagonal(&value), diagonal(&output)],
        })
    }

    fn run(self, heads: usize, rows: Vec<usize>) -> Result<Measures> {
        let [seq_len, channels, states] = self.sizes;
        let distinct = self.distinct;
        let system = &self.seen.system;
        let of_distinct = |factor: &Tensor| factor.narrow(1, 0, distinct);
        let factors = [&system.decay, &system.write, &system.read].map(of_distinct);
        let [decays, writes, reads] = factors;
        let (decays, writes, reads) = (decays?, writes?, reads?);
        let gates = system.gate.as_ref().map(of_distinct).transpose()?;
        let mut waiting = rows.clone();
        let mut active: Vec<PhiRow> = Vec::new();
        let mut gram = vec![vec![0.0; rows.len()]; rows.len()];
        let (mut spectrum, mut gains) = (Vec::new(), Vec::new());
        let (mut growing, mut free) = (0.0, None);
        let mut products = Products::new(system, distinct)?;
        for j in (0..seq_len).rev() {
            let (write, read) = (step(&writes, j)?, step(&reads, j)?);
            let transition = Transition::of(&decays, &system.off_diagonal, j)?;
            let skip = match &system.skip {
                Some(skip) => step(skip, j)?,
                None => vec![0.0; channels],
            };
            products.add_token(j, gates.as_ref().map(|gate| step(gate, j)).transpose()?);
            gains.push([gain(&write, &self.maps[0], states), gain(&read, &self.maps[1], states)]);
            if waiting.last() == Some(&j) {
                waiting.pop();
                let mut carried = read;
                carried.resize(self.links.len() / channels * distinct * states, 0.0);
                active.push(PhiRow {
                    at: j,
                    carried,
                    outputs: vec![0.0; channels],
                    norms: Vec::new(),
                    norms_of_heads: vec![Vec::new(); self.heads.len()],
                });
            }
            self.receive(j, &write, &skip, &mut active, &mut gram)?;
            if j == 0 {
                continue; // Λ_0 multiplies the state before the first token, which is 0
            }
            for row in &mut active {
                transition.pull(&mut row.carried, states);
            }
            let moduli = transition.moduli(states);
            products.add_transition(&moduli);
            growing += share_above_one(&moduli) / (seq_len - 1) as f64;
            spectrum.push(sorted(moduli));
            free = free.max(Some(transition.different()));
        }
        spectrum.reverse();
        gains.reverse();
        active.reverse();
        gram.reverse();
        gram.iter_mut().for_each(|row| row.reverse());
        let outputs = active.iter().map(|row| self.output(row)).collect::<Result<_>>()?;
        let forwards = |norms: &[f64]| -> Vec<f64> { norms.iter().rev().copied().collect() };
        let horizons_of_heads = (0..self.heads.len())
            .map(|head| horizon(&active.iter().map(|row| forwards(&row.norms_of_heads[head])).collect::<Vec<_>>()))
            .collect();
        let norms: Vec<Vec<f64>> = active.iter().map(|row| forwards(&row.norms)).collect();
        Ok(Measures {
            seq_len,
            width: channels * states,
            horizon: horizon(&norms),
            horizons_of_heads,
            rows,
            norms,
            outputs,
            rank: effective_rank(gram),
            spectrum,
            gains,
            shares: products.shares(),
            half_lives: products.half_lives(),
            half_lives_of_heads: products.half_lives_of_heads(heads),
            growing: (seq_len > 1).then_some(growing),
            free,
            largest_product: products.largest(),
            gate: products.gate(),
            product: products.product(),
        })
    }

    /// Adds the contributions of token j to the rows.
    fn receive(
        &self,
        j: usize,
        write: &[f64],
        skip: &[f64],
        active: &mut [PhiRow],
        gram: &mut [Vec<f64>],
    ) -> Result<()> {
        let [_, channels, states] = self.sizes;
        let mut kernels: Vec<f64> = Vec::with_capacity(active.len() * self.links.len());
        for row in active.iter_mut() {
            let written = |link: usize| {
                let channel = self.links[link].1;
                &write[channel * states..(channel + 1) * states]
            };
            let read = row.carried.chunks(states).enumerate();
            let mut kernel: Vec<f64> = read.map(|(link, c)| dot(c, written(link))).collect();
            if self.distinct < channels {
                kernel = vec![kernel[0]; channels];
            }
            for (&(o, v), k) in self.links.iter().zip(&kernel) {
                row.outputs[o] += k * self.values[j][v];
            }
            if row.at == j {
                row.outputs.iter_mut().zip(skip).zip(&self.values[j]).for_each(|((o, d), v)| *o += d * v);
            }
            kernels.extend(kernel);
        }
        let kernels = Tensor::from_vec(kernels, (active.len(), self.links.len()), &Device::Cpu)?;
        let products = matrix(&kernels.matmul(&self.inner)?.matmul(&kernels.t()?)?)?;
        for (i, row) in products.iter().enumerate() {
            gram[i].iter_mut().zip(row).for_each(|(sum, product)| *sum += product);
            active[i].norms.push(row[i].max(0.0).sqrt());
        }
        for (head, inner) in self.heads.iter().enumerate() {
            let width = inner.dim(0)?;
            let part = kernels.narrow(1, head * width, width)?.contiguous()?;
            let squares: Vec<f64> = (part.matmul(inner)? * part)?.sum(1)?.to_vec1()?;
            for (row, square) in active.iter_mut().zip(squares) {
                row.norms_of_heads[head].push(square.max(0.0).sqrt());
            }
        }
        Ok(())
    }

    /// y at the token of a row, from the contributions to its channels.
    fn output(&self, row: &PhiRow) -> Result<Vec<f64>> {
        let system = &self.seen.system;
        let mut y: Vec<f64> = match &system.output {
            Some(w) => { matrix(w)?.iter() }.map(|map| dot(map, &row.outputs)).collect(),
            None => row.outputs.clone(),
        };
        if let Some(direct) = &system.direct {
            let mut u = step(&self.seen.input, row.at)?;
            u.resize(direct.dim(1)?, 1.0); // the constant input of an affine mixer
            let passed = matrix(direct)?;
            y.iter_mut().zip(&passed).for_each(|(y, map)| *y += dot(map, &u));
        }
        if let Some(offset) = system.offset_at(row.at)? {
            let offset: Vec<f64> = offset.to_dtype(DType::F64)?.to_vec1()?;
            y.iter_mut().zip(&offset).for_each(|(y, b)| *y += b);
        }
        Ok(y)
    }
}

/// Smallest, median and largest |λ| of one token.
fn sorted(mut sizes: Vec<f64>) -> [f64; 3] {
    sizes.sort_by(f64::total_cmp);
    let middle = median(&sizes).unwrap_or(f64::NAN);
    [sizes[0], middle, sizes[sizes.len() - 1]]
}

fn share_above_one(sizes: &[f64]) -> f64 {
    let above = sizes.iter().filter(|size| **size > 1.0 + AT_ONE).count();
    above as f64 / sizes.len() as f64
}

/// Frobenius norm of a factor `(E, m)` times a map whose rows have these squared norms.
fn gain(factor: &[f64], map: &[f64], states: usize) -> f64 {
    let squares: f64 = factor.chunks(states).zip(map).map(|(row, norm)| dot(row, row) * norm).sum();
    squares.sqrt()
}

/// Replaces negligible numbers by 0, since arithmetic on subnormal numbers is about a hundred times slower.
fn flush_to_zero(x: f64) -> f64 {
    if x.abs() < LEAST {
        0.0
    } else {
        x
    }
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
