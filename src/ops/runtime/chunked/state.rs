//! The states between chunks: the contribution of every chunk in parallel, then a scan over chunks.

use super::chunk::Chunk;
use super::work::ChunkWork;
use super::{most_rows, Chunked};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, Lanes};
use crate::runtime::matrix::Matrix;
use crate::runtime::parallel::InParallel;
use dsf_simd::simd;

/// The state of each range of channels, (n, channels); empty for the zero state.
pub(super) type RangeState<F> = Vec<Matrix<F>>;

/// The affine map of a chunk on states: state ↦ decay · state + own.
struct Passage<F> {
    /// The decays of all groups of lanes, in the order of the ranges of channels.
    decay: Vec<Lanes<F>>,
    own: RangeState<F>,
}

/// The state before each chunk.
pub(super) fn before<F: Float>(op: &Chunked, chunks: &[Chunk<F>]) -> Vec<RangeState<F>> {
    let passage = |work: &mut ChunkWork<F>, chunk: &Chunk<F>| chunk.read_later.then(|| forth(chunk, work));
    let mut passages = passages(op, chunks, passage);
    let sequences = passages.chunks_mut(op.pieces());
    let states = sequences.map_in_parallel(|passages| pass(passages.iter_mut()));
    states.into_iter().flatten().collect()
}

/// The gradient of the state after each chunk.
pub(super) fn after<F: Float>(op: &Chunked, chunks: &[Chunk<F>], gy: &[F]) -> Vec<RangeState<F>> {
    let passage = |work: &mut ChunkWork<F>, chunk: &Chunk<F>| {
        let passes = chunk.start > 0 && (chunk.rows() > 0 || chunk.read_later);
        passes.then(|| back(chunk, chunk.of_rows(gy), work))
    };
    let mut passages = passages(op, chunks, passage);
    let sequences = passages.chunks_mut(op.pieces());
    let states = sequences.map_in_parallel(|passages| pass(passages.iter_mut().rev()));
    let states = states.into_iter().map(|states| states.into_iter().rev());
    states.flatten().collect()
}

fn passages<F: Float>(
    op: &Chunked,
    chunks: &[Chunk<F>],
    passage: impl Fn(&mut ChunkWork<F>, &Chunk<F>) -> Option<Passage<F>> + Sync + Send,
) -> Vec<Option<Passage<F>>> {
    if op.pieces() == 1 {
        return chunks.iter().map(|_| None).collect();
    }
    let most = most_rows(chunks);
    let chunks = chunks.iter();
    chunks.map_in_parallel_with(|| ChunkWork::new(op, most), passage)
}

/// The state that enters each chunk, in the order of the iterator.
fn pass<'a, F: Float>(passages: impl Iterator<Item = &'a mut Option<Passage<F>>>) -> Vec<RangeState<F>> {
    let mut state = RangeState::new();
    let enter = |passage: &mut Option<Passage<F>>| {
        let leaves = passage.take().map_or_else(RangeState::new, |mut passage| {
            add_decayed(&mut passage, &state);
            passage.own
        });
        std::mem::replace(&mut state, leaves)
    };
    passages.map(enter).collect()
}

#[simd]
fn add_decayed<F: Float>(passage: &mut Passage<F>, state: &[Matrix<F>]) {
    let mut decay = &passage.decay[..];
    for (own, state) in passage.own.iter_mut().zip(state) {
        let (now, rest) = decay.split_at(own.groups());
        for k in 0..state.count() {
            for (g, decay) in now.iter().enumerate() {
                let (own, state) = (own.at_mut(k, g), state.at(k, g));
                *own = each(|i| decay[i].fma(state[i], own[i]));
            }
        }
        decay = rest;
    }
}

#[simd]
fn forth<F: Float>(chunk: &Chunk<F>, work: &mut ChunkWork<F>) -> Passage<F> {
    let op = chunk.op;
    let (mut all, mut own) = (Vec::new(), RangeState::new());
    work.b.set_rows(chunk.b, op.states, 0..op.states);
    let steps = 0..chunk.steps();
    for part in op.parts() {
        let ChunkWork { value, decay, left, .. } = work;
        chunk.drive(&part, value, decay);
        chunk.decay_steps::<false>(decay, &steps, value, left);
        all.extend((0..decay.groups()).map(|g| chunk.whole(decay, g)));
        let mut state = Matrix::zeros(op.states, op.width());
        state.add_transposed_product(0..op.states, &work.b, left, |_| steps.clone());
        own.push(state);
    }
    Passage { decay: all, own }
}

#[simd]
fn back<F: Float>(chunk: &Chunk<F>, gy: &[F], work: &mut ChunkWork<F>) -> Passage<F> {
    let op = chunk.op;
    let (mut all, mut own) = (Vec::new(), RangeState::new());
    work.c.set_rows(chunk.c, op.states, 0..op.states);
    for part in op.parts() {
        let ChunkWork { value, decay, right, .. } = work;
        chunk.drive(&part, value, decay);
        work.y.set_rows(gy, op.channels, part);
        chunk.decay_rows::<false>(decay, &(0..chunk.steps()), &work.y, right);
        all.extend((0..decay.groups()).map(|g| chunk.whole(decay, g)));
        let mut state = Matrix::zeros(op.states, op.width());
        state.add_transposed_product(0..op.states, &work.c, right, |_| 0..chunk.rows());
        own.push(state);
    }
    Passage { decay: all, own }
}
