//! The gradients of one chunk, given those of its rows and of the state after it.

use super::chunk::{BoundarySpan, Chunk};
use super::leaf;
use super::work::{clear, hide, ChunkWork};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, Lanes};
use crate::runtime::matrix::Matrix;
use dsf_simd::simd;
use std::ops::Range;

/// The gradients to write; zero on entry.
pub(super) struct GradientOutput<'a, F> {
    pub(super) b: &'a mut [F],
    pub(super) c: &'a mut [F],
    pub(super) v: &'a mut [F],
    pub(super) exponent: &'a mut [F],
}

/// Computes the gradients of a chunk. `states` are the state before the chunk and the gradient of
/// the state after it.
#[simd]
pub(super) fn gradient<F: Float>(
    chunk: &Chunk<F>,
    states: [&[Matrix<F>]; 2],
    gy: &[F],
    work: &mut ChunkWork<F>,
    out: GradientOutput<F>,
) {
    let (op, rows, steps) = (chunk.op, chunk.rows(), chunk.steps());
    if rows == 0 && states[1].is_empty() {
        return;
    }
    work.load(chunk);
    clear(&mut work.g_scores, rows);
    clear(&mut work.g_c, rows);
    clear(&mut work.g_b, steps);
    for (i, part) in op.parts().enumerate() {
        chunk.drive(&part, &mut work.value, &mut work.decay);
        work.y.set_rows(gy, op.channels, part.clone());
        clear(&mut work.g_value, steps);
        clear(&mut work.g_exponent, steps);
        let [before, after] = states.map(|state| state.get(i));
        if let Some(before) = before {
            state_read(chunk, before, after, work);
        }
        if let Some(after) = after {
            state_written(chunk, after, work);
        }
        chunk_read(chunk, work);
        work.g_value.copy_into(out.v, op.channels, part.clone());
        if chunk.decay.is_some() {
            work.g_exponent.copy_into(out.exponent, op.channels, part);
        }
    }
    scores_back(chunk, work);
    work.g_b.copy_to(out.b, op.states);
    work.g_c.copy_to(out.c, op.states);
}

/// The gradients through the state before the chunk, which rows read and which passes to the state
/// after it.
#[inline(always)]
fn state_read<F: Float>(chunk: &Chunk<F>, before: &Matrix<F>, after: Option<&Matrix<F>>, work: &mut ChunkWork<F>) {
    let (op, rows, all) = (chunk.op, 0..chunk.rows(), 0..chunk.steps());
    if !rows.is_empty() {
        work.set_right(chunk, &all);
        work.set_state_t(op.states, before);
        let width = 0..op.width();
        let bounds = |_| (0..op.states, width.clone());
        work.product.set_product(rows.clone(), &work.c, before, bounds);
        let bounds = |_| (width.clone(), 0..op.states);
        work.g_c.add_product(rows, &work.right, &work.state_t, bounds);
    }
    if chunk.decay.is_some() {
        work.passed_to_rows(chunk, &all, after.map(|after| [before, after]));
    }
}

/// The gradients of the steps through the state after the chunk.
#[inline(always)]
fn state_written<F: Float>(chunk: &Chunk<F>, after: &Matrix<F>, work: &mut ChunkWork<F>) {
    let (op, all) = (chunk.op, 0..chunk.steps());
    work.set_left(chunk, &all);
    work.set_state_t(op.states, after);
    let width = 0..op.width();
    work.product.set_product(all.clone(), &work.b, after, |_| (0..op.states, width.clone()));
    work.g_b.add_product(all.clone(), &work.left, &work.state_t, |_| (width.clone(), 0..op.states));
    work.left_back(chunk, &all);
}

/// The gradients of the pairs of rows and steps inside the chunk.
#[inline(always)]
fn chunk_read<F: Float>(chunk: &Chunk<F>, work: &mut ChunkWork<F>) {
    if chunk.rows() == 0 {
        return;
    }
    if chunk.decay.is_none() {
        undecayed(chunk, work);
        return;
    }
    for span in chunk.spans() {
        span_read(chunk, &span, work);
    }
    for steps in chunk.leaves() {
        leaf::read_back(chunk, steps, work);
    }
}

#[inline(always)]
fn undecayed<F: Float>(chunk: &Chunk<F>, work: &mut ChunkWork<F>) {
    let (rows, steps, width) = (chunk.rows(), chunk.steps(), 0..chunk.op.width());
    let value = &work.value;
    work.left_t.set_transposed(0..steps, value.groups(), |s, g| *value.at(s, g));
    work.g_scores.add_product(0..rows, &work.y, &work.left_t, |top| (width.clone(), 0..chunk.reach(top)));
    work.g_value.add_transposed_product(0..steps, &work.scores, &work.y, |first| chunk.rows_at(&(first..steps)));
}

/// The gradients of the pairs of steps left of a boundary and rows right of it.
#[inline(always)]
fn span_read<F: Float>(chunk: &Chunk<F>, span: &BoundarySpan, work: &mut ChunkWork<F>) {
    let rows = chunk.rows_at(&span.right);
    if rows.is_empty() {
        return;
    }
    let width = 0..chunk.op.width();
    work.set_left(chunk, &span.left);
    work.set_right(chunk, &span.right);
    let bounds = |_| (span.left.clone(), width.clone());
    work.product.set_product(rows.clone(), &work.scores, &work.left, bounds);
    work.passed_to_rows(chunk, &span.right, None);
    let left = &work.left;
    work.left_t.set_transposed(span.left.clone(), left.groups(), |s, g| *left.at(s, g));
    let bounds = |_| (width.clone(), span.left.clone());
    work.g_scores.add_product(rows.clone(), &work.right, &work.left_t, bounds);
    work.product.rows_mut(span.left.clone()).fill(splat(F::zero()));
    work.product.add_transposed_product(span.left.clone(), &work.scores, &work.right, |_| rows.clone());
    work.left_back(chunk, &span.left);
}

/// Converts the gradient of the scores to those of b and c.
#[inline(always)]
fn scores_back<F: Float>(chunk: &Chunk<F>, work: &mut ChunkWork<F>) {
    let (rows, steps, n) = (chunk.rows(), chunk.steps(), chunk.op.states);
    hide(chunk, &mut work.g_scores);
    work.g_c.add_product(0..rows, &work.g_scores, &work.b, |top| (0..chunk.reach(top), 0..n));
    work.g_b.add_transposed_product(0..steps, &work.g_scores, &work.c, |first| chunk.rows_at(&(first..steps)));
}

impl<F: Float> ChunkWork<F> {
    /// Sets `left` to the values of `steps`, decayed to the end of these steps.
    #[inline(always)]
    fn set_left(&mut self, chunk: &Chunk<F>, steps: &Range<usize>) {
        chunk.decay_steps::<false>(&self.decay, steps, &self.value, &mut self.left);
    }

    /// Sets `right` to the gradients of the rows at `steps`, decayed to the start of these steps.
    #[inline(always)]
    fn set_right(&mut self, chunk: &Chunk<F>, steps: &Range<usize>) {
        chunk.decay_rows::<false>(&self.decay, steps, &self.y, &mut self.right);
    }

    #[inline(always)]
    fn set_state_t(&mut self, states: usize, state: &Matrix<F>) {
        self.state_t.set_transposed(0..states, state.groups(), |k, g| *state.at(k, g));
    }

    /// Given `product`, the read-outs of the rows at `steps` at the start of these steps, adds to
    /// the gradient of each decay what passed through it: on the way to a row or, from the state
    /// before the chunk, to the state after it.
    #[inline(always)]
    fn passed_to_rows(&mut self, chunk: &Chunk<F>, steps: &Range<usize>, states: Option<[&Matrix<F>; 2]>) {
        let rows = chunk.rows_at(steps);
        for g in 0..self.decay.groups() {
            let (mut passed, mut row): (Lanes<F>, _) = (splat(F::zero()), rows.end);
            if let Some([before, after]) = states {
                for k in 0..chunk.op.states {
                    let (before, after) = (before.at(k, g), after.at(k, g));
                    passed = each(|i| before[i].fma(after[i], passed[i]));
                }
                let whole = chunk.whole(&self.decay, g);
                passed = each(|i| whole[i] * passed[i]);
            }
            for t in steps.clone().rev() {
                while row > rows.start && chunk.time(row - 1) == t {
                    row -= 1;
                    let (right, read) = (self.right.at(row, g), self.product.at(row, g));
                    passed = each(|i| right[i].fma(read[i], passed[i]));
                }
                let exponent = self.g_exponent.at_mut(t, g);
                *exponent = each(|i| exponent[i] + passed[i]);
            }
        }
    }

    /// Given `product`, the gradient of `left`, adds to those of values and decays.
    #[inline(always)]
    fn left_back(&mut self, chunk: &Chunk<F>, steps: &Range<usize>) {
        chunk.decay_steps::<true>(&self.decay, steps, &self.product, &mut self.g_value);
        if chunk.decay.is_none() {
            return;
        }
        for g in 0..self.decay.groups() {
            let mut passed: Lanes<F> = splat(F::zero());
            for s in steps.clone() {
                let exponent = self.g_exponent.at_mut(s, g);
                *exponent = each(|i| exponent[i] + passed[i]);
                let (left, grad) = (self.left.at(s, g), self.product.at(s, g));
                passed = each(|i| left[i].fma(grad[i], passed[i]));
            }
        }
    }
}
