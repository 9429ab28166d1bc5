//! The pairs of steps inside a leaf. Each row goes back step by step, with the product of the
//! decays in between in a register.

use super::chunk::Chunk;
use super::work::ChunkWork;
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, sum, Lanes};
use std::ops::Range;

/// Adds the contributions of the steps of a leaf to its rows.
#[inline(always)]
pub(super) fn read<F: Float>(chunk: &Chunk<F>, steps: Range<usize>, work: &mut ChunkWork<F>) {
    for row in chunk.rows_at(&steps) {
        let visible = steps.start..chunk.time(row) + 1;
        let scores = &work.scores.row(row)[..visible.end];
        for g in 0..work.value.groups() {
            let mut y = *work.y.at(row, g);
            let mut product: Lanes<F> = splat(F::one());
            for s in visible.clone().rev() {
                let (value, decay) = (work.value.at(s, g), work.decay.at(s, g));
                y = each(|i| scores[s].fma(product[i] * value[i], y[i]));
                product = each(|i| product[i] * decay[i]);
            }
            *work.y.at_mut(row, g) = y;
        }
    }
}

/// Adds the contributions of the pairs of a leaf to the gradients of scores, values and exponents.
#[inline(always)]
pub(super) fn read_back<F: Float>(chunk: &Chunk<F>, steps: Range<usize>, work: &mut ChunkWork<F>) {
    for row in chunk.rows_at(&steps) {
        let visible = steps.start..chunk.time(row) + 1;
        work.dots[..visible.len()].fill(splat(F::zero()));
        for g in 0..work.value.groups() {
            row_back(row, &visible, g, work);
        }
        let scores = &mut work.g_scores.row_mut(row)[visible];
        for (score, dots) in scores.iter_mut().zip(&work.dots) {
            *score += sum(dots);
        }
    }
}

/// The gradients of one row and group; adds to `dots` lanes whose sums are the gradients of the
/// row's scores.
#[inline(always)]
fn row_back<F: Float>(row: usize, visible: &Range<usize>, g: usize, work: &mut ChunkWork<F>) {
    let scores = &work.scores.row(row)[..visible.end];
    let reached = &mut work.reached[..visible.len()];
    let mut now: Lanes<F> = *work.y.at(row, g);
    for (s, reached) in visible.clone().zip(&mut *reached).rev() {
        *reached = now;
        let decay = work.decay.at(s, g);
        now = each(|i| now[i] * decay[i]);
    }
    let mut passed: Lanes<F> = splat(F::zero());
    for (s, (reached, dot)) in visible.clone().zip(reached.iter().zip(&mut work.dots)) {
        let value = work.value.at(s, g);
        let product: Lanes<F> = each(|i| reached[i] * value[i]);
        *dot = each(|i| dot[i] + product[i]);
        let g_value = work.g_value.at_mut(s, g);
        *g_value = each(|i| scores[s].fma(reached[i], g_value[i]));
        let exponent = work.g_exponent.at_mut(s, g);
        *exponent = each(|i| exponent[i] + passed[i]);
        passed = each(|i| scores[s].fma(product[i], passed[i]));
    }
}
