//! The rows of one chunk.

use super::chunk::Chunk;
use super::leaf;
use super::work::{clear, ChunkWork};
use crate::runtime::float::Float;
use crate::runtime::matrix::Matrix;
use dsf_simd::simd;

#[simd]
pub(super) fn output<F: Float>(chunk: &Chunk<F>, before: &[Matrix<F>], work: &mut ChunkWork<F>, y: &mut [F]) {
    if chunk.rows() == 0 {
        return;
    }
    work.load(chunk);
    for (i, part) in chunk.op.parts().enumerate() {
        chunk.drive(&part, &mut work.value, &mut work.decay);
        read_state(chunk, before.get(i), work);
        if chunk.decay.is_some() {
            read_chunk(chunk, work);
        } else {
            let width = chunk.op.width();
            work.y.add_product(0..chunk.rows(), &work.scores, &work.value, |top| (0..chunk.reach(top), 0..width));
        }
        work.y.copy_into(y, chunk.op.channels, part);
    }
}

/// Adds the read-out of the state before the chunk to each row.
#[inline(always)]
fn read_state<F: Float>(chunk: &Chunk<F>, state: Option<&Matrix<F>>, work: &mut ChunkWork<F>) {
    let Some(state) = state else {
        clear(&mut work.y, chunk.rows());
        return;
    };
    let (n, width) = (chunk.op.states, chunk.op.width());
    work.product.set_product(0..chunk.rows(), &work.c, state, |_| (0..n, 0..width));
    let all = 0..chunk.steps();
    chunk.decay_rows::<false>(&work.decay, &all, &work.product, &mut work.y);
}

/// Adds the contributions of the chunk's own steps to each row.
#[inline(always)]
fn read_chunk<F: Float>(chunk: &Chunk<F>, work: &mut ChunkWork<F>) {
    let width = chunk.op.width();
    for span in chunk.spans() {
        let rows = chunk.rows_at(&span.right);
        if rows.is_empty() {
            continue;
        }
        chunk.decay_steps::<false>(&work.decay, &span.left, &work.value, &mut work.left);
        let bounds = |_| (span.left.clone(), 0..width);
        work.product.set_product(rows, &work.scores, &work.left, bounds);
        chunk.decay_rows::<true>(&work.decay, &span.right, &work.product, &mut work.y);
    }
    for steps in chunk.leaves() {
        leaf::read(chunk, steps, work);
    }
}
