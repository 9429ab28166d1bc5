//! Pairs of steps inside a leaf: a walk in which every earlier value is a state of its own.

use super::chunk::{Chunk, LEAF};
use super::work::Work;
use crate::ops::float::Float;
use crate::ops::lanes::{each, splat, sum, Lanes};
use std::ops::Range;

/// Adds what the steps of a leaf give to its rows.
#[inline(always)]
pub(super) fn read<F: Float>(chunk: &Chunk<F>, steps: Range<usize>, work: &mut Work<F>) {
    let rows = chunk.rows_at(&steps);
    if rows.is_empty() {
        return;
    }
    for g in 0..work.value.groups() {
        let mut states: [Lanes<F>; LEAF] = [splat(F::zero()); LEAF];
        let mut row = rows.start;
        for (j, t) in steps.clone().enumerate() {
            let decay = work.decay.at(t, g);
            for state in &mut states[..j] {
                *state = each(|i| decay[i] * state[i]);
            }
            states[j] = *work.value.at(t, g);
            while row < rows.end && chunk.time(row) == t {
                let scores = &work.scores.row(row)[steps.start..][..=j];
                let mut y = *work.y.at(row, g);
                for (state, &score) in states.iter().zip(scores) {
                    y = each(|i| y[i] + score * state[i]);
                }
                *work.y.at_mut(row, g) = y;
                row += 1;
            }
        }
    }
}

/// Adds to the gradients of scores, values and exponents what the pairs of a leaf contribute.
#[inline(always)]
pub(super) fn read_back<F: Float>(chunk: &Chunk<F>, steps: Range<usize>, work: &mut Work<F>) {
    let rows = chunk.rows_at(&steps);
    if rows.is_empty() {
        return;
    }
    work.dots.clear();
    work.dots.resize(rows.len() * LEAF, splat(F::zero()));
    for g in 0..work.value.groups() {
        walk(&steps, g, work);
        walk_back(chunk, &steps, g, work);
    }
    for (r, dots) in rows.zip(work.dots.chunks_exact(LEAF)) {
        let seen = chunk.time(r) + 1 - steps.start;
        let scores = &mut work.g_scores.row_mut(r)[steps.start..][..seen];
        for (score, dots) in scores.iter_mut().zip(dots) {
            *score += sum(dots);
        }
    }
}

/// Keeps all states at all steps.
#[inline(always)]
fn walk<F: Float>(steps: &Range<usize>, g: usize, work: &mut Work<F>) {
    for (j, t) in steps.clone().enumerate() {
        let decay = work.decay.at(t, g);
        let (past, now) = work.walk.split_at_mut(j * LEAF);
        let past = &past[j.saturating_sub(1) * LEAF..];
        for (now, past) in now[..j].iter_mut().zip(past) {
            *now = each(|i| decay[i] * past[i]);
        }
        now[j] = *work.value.at(t, g);
    }
}

/// The same walk in reverse, with the gradient of each state.
#[inline(always)]
fn walk_back<F: Float>(chunk: &Chunk<F>, steps: &Range<usize>, g: usize, work: &mut Work<F>) {
    let rows = chunk.rows_at(steps);
    let mut grads: [Lanes<F>; LEAF] = [splat(F::zero()); LEAF];
    let mut row = rows.end;
    for (j, t) in steps.clone().enumerate().rev() {
        let states = &work.walk[j * LEAF..][..=j];
        while row > rows.start && chunk.time(row - 1) == t {
            row -= 1;
            let gy = work.y.at(row, g);
            let scores = &work.scores.row(row)[steps.start..][..=j];
            let dots = &mut work.dots[(row - rows.start) * LEAF..][..=j];
            for (((grad, state), &score), dot) in grads.iter_mut().zip(states).zip(scores).zip(dots)
            {
                *grad = each(|i| grad[i] + score * gy[i]);
                *dot = each(|i| dot[i] + gy[i] * state[i]);
            }
        }
        let decay = work.decay.at(t, g);
        let exponent = work.g_exponent.at_mut(t, g);
        let mut passed: Lanes<F> = *exponent;
        for (grad, state) in grads[..j].iter_mut().zip(states) {
            passed = each(|i| passed[i] + grad[i] * state[i]);
            *grad = each(|i| grad[i] * decay[i]);
        }
        *exponent = passed;
        let value = work.g_value.at_mut(t, g);
        *value = each(|i| value[i] + grads[j][i]);
    }
}
