//! Causal sums with separable scores, chunk by chunk, in time linear in L:
//! y_t\[c\] = Σ_{s <= t} (c_t · b_s) e^{P_t\[c\] - P_s\[c\]} v_s\[c\].
//!
//! Inside a chunk the scores c_t · b_s are a matrix that all channels share; steps before the chunk
//! act through a state H of (n, d). A pair of steps s < t meets at the one boundary m that
//! separates its two sides: its decay is the product of the decays from s to m and of those from m
//! to t, so that a block of pairs is a plain matrix product between rows scaled by decays. Only
//! products of decays occur, never their inverses: nothing overflows, whatever the decay, and the
//! gradient of a decay is a sum of the terms that it multiplied, without cancellation.

mod chunk;
pub(crate) mod cuda;
mod gradient;
mod leaf;
mod output;
mod state;
mod work;

use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use chunk::Chunk;
use gradient::GradientOutput;
use std::ops::Range;
use work::ChunkWork;

/// Steps per chunk.
const CHUNK: usize = 64;

/// The maximum of numbers of states stored at one time, so that they stay in cache. Sequences are
/// processed in slabs of as many as fit, at least one.
const KEPT: usize = 1 << 20;

/// The sizes of the sum.
pub(crate) struct Chunked {
    pub(crate) sequences: usize,
    pub(crate) len: usize,
    pub(crate) channels: usize,
    pub(crate) states: usize,
    pub(crate) times: Times,
}

/// The times of the rows, ascending.
#[derive(Clone)]
pub(crate) struct Times {
    list: Vec<usize>,
    /// Rows of a sequence.
    pub(crate) rows: usize,
    /// The number of consecutive sequences that share a list.
    shared: usize,
}

impl Times {
    /// A row at every step.
    pub(crate) fn all(len: usize) -> Self {
        Self { list: (0..len).collect(), rows: len, shared: usize::MAX }
    }

    /// Lists of `rows` ascending times, each for `shared` consecutive sequences.
    pub(crate) fn lists(list: Vec<usize>, rows: usize, shared: usize) -> Self {
        Self { list, rows, shared }
    }

    /// The times of a sequence.
    pub(crate) fn of(&self, sequence: usize) -> &[usize] {
        &self.list[sequence / self.shared * self.rows..][..self.rows]
    }
}

/// The inputs of the sum.
pub(crate) struct Inputs<'a, F> {
    /// (sequences, L, n).
    pub(crate) b: &'a [F],
    /// (sequences, R, n).
    pub(crate) c: &'a [F],
    /// (sequences, L, d).
    pub(crate) x: &'a [F],
    pub(crate) decay: Option<Decay<'a, F>>,
}

/// Decays: v = step · x, and P is the running sum of step · rate. Without decays v = x and P = 0.
pub(crate) struct Decay<'a, F> {
    /// (sequences, L, d).
    pub(crate) step: &'a [F],
    /// (d), negative.
    pub(crate) rate: &'a [F],
}

/// The gradients, with the shapes of the inputs.
pub(crate) struct ChunkedGrads<F> {
    pub(crate) b: Vec<F>,
    pub(crate) c: Vec<F>,
    /// The gradient of v.
    pub(crate) v: Vec<F>,
    /// The gradient of step · rate; empty without decays.
    pub(crate) exponent: Vec<F>,
}

impl Chunked {
    /// The approximate number of multiplications per sequence.
    pub(crate) fn products(&self) -> usize {
        let (n, d) = (self.states, self.channels);
        self.len * n * d + self.times.rows * (n * d + CHUNK / 2 * (n + d))
    }

    /// y, (sequences, R, d).
    pub(crate) fn forward<F: Float>(&self, ins: &Inputs<F>) -> Vec<F> {
        let size = self.times.rows * self.channels;
        let mut y = zeros(self.sequences * size);
        let slabs = y.chunks_mut(self.slab() * size);
        for (slab, y) in self.slabs().zip(slabs) {
            let chunks = self.chunks(ins, slab);
            let before = state::before(self, &chunks);
            let parts = split(y, &chunks, |chunk| chunk.times.len() * self.channels);
            let most = most_rows(&chunks);
            chunks.iter().zip(before).zip(parts).in_parallel_with(
                || ChunkWork::new(self, most),
                |work, ((chunk, before), y)| output::output(chunk, &before, work, y),
            );
        }
        y
    }

    /// The gradients, given that of y.
    pub(crate) fn backward<F: Float>(&self, ins: &Inputs<F>, gy: &[F]) -> ChunkedGrads<F> {
        let exponents = ins.decay.as_ref().map_or(0, |_| ins.x.len());
        let mut grads = ChunkedGrads {
            b: zeros(ins.b.len()),
            c: zeros(ins.c.len()),
            v: zeros(ins.x.len()),
            exponent: zeros(exponents),
        };
        for slab in self.slabs() {
            let chunks = self.chunks(ins, slab.clone());
            let before = state::before(self, &chunks);
            let after = state::after(self, &chunks, gy);
            let outs = self.outs(&mut grads, slab, &chunks);
            let most = most_rows(&chunks);
            let states = before.into_iter().zip(after);
            chunks.iter().zip(states).zip(outs).in_parallel_with(
                || ChunkWork::new(self, most),
                |work, ((chunk, (before, after)), out)| {
                    gradient::gradient(chunk, [&before, &after], chunk.of_rows(gy), work, out);
                },
            );
        }
        grads
    }

    /// The slices of the gradients that each chunk of a slab writes.
    fn outs<'a, F>(
        &self,
        grads: &'a mut ChunkedGrads<F>,
        slab: Range<usize>,
        chunks: &[Chunk<F>],
    ) -> Vec<GradientOutput<'a, F>> {
        let (n, d) = (self.states, self.channels);
        let exponents = if grads.exponent.is_empty() { 0 } else { d };
        let part = |of_one: usize| slab.start * of_one..slab.end * of_one;
        let b = &mut grads.b[part(self.len * n)];
        let c = &mut grads.c[part(self.times.rows * n)];
        let v = &mut grads.v[part(self.len * d)];
        let exponent = &mut grads.exponent[part(self.len * exponents)];
        let b = split(b, chunks, |chunk| chunk.steps() * n);
        let c = split(c, chunks, |chunk| chunk.rows() * n);
        let v = split(v, chunks, |chunk| chunk.steps() * d);
        let exponent = split(exponent, chunks, |chunk| chunk.steps() * exponents);
        let parts = b.into_iter().zip(c).zip(v).zip(exponent);
        parts.map(|(((b, c), v), exponent)| GradientOutput { b, c, v, exponent }).collect()
    }

    /// The number of chunks of a sequence.
    fn pieces(&self) -> usize {
        self.len.div_ceil(CHUNK)
    }

    /// The number of sequences in a slab.
    fn slab(&self) -> usize {
        match self.pieces() {
            1 => self.sequences,
            pieces => (KEPT / (pieces * self.states * self.channels)).max(1),
        }
    }

    fn slabs(&self) -> impl Iterator<Item = Range<usize>> + use<'_> {
        let end = |start: usize| (start + self.slab()).min(self.sequences);
        let starts = (0..self.sequences).step_by(self.slab());
        starts.map(move |start| start..end(start))
    }

    fn chunks<'a, F>(&'a self, ins: &Inputs<'a, F>, slab: Range<usize>) -> Vec<Chunk<'a, F>> {
        let of = |sequence| {
            let pieces = (0..self.len).step_by(CHUNK);
            pieces.map(move |start| Chunk::new(self, ins, sequence, start))
        };
        slab.flat_map(of).collect()
    }
}

fn most_rows<F>(chunks: &[Chunk<F>]) -> usize {
    chunks.iter().map(Chunk::rows).max().unwrap_or(0)
}

/// Cuts `x` into slices, one for each chunk, of the lengths that `len` returns.
fn split<'a, F>(mut x: &'a mut [F], chunks: &[Chunk<F>], size: impl Fn(&Chunk<F>) -> usize) -> Vec<&'a mut [F]> {
    let cut = |chunk| {
        let (part, rest) = std::mem::take(&mut x).split_at_mut(size(chunk));
        x = rest;
        part
    };
    chunks.iter().map(cut).collect()
}
