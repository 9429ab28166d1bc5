//! Forward pass for queries at one time after a cache. A key meets so few queries that copying it into tiles would
//! take longer than using it, so keys and values are read where they are, by parts of the past, whose results are
//! combined in their order.

use super::super::CausalAttention;
use super::tiles::{exponentials, Item};
use crate::runtime::float::Float;
use crate::runtime::lanes::{dot, largest, splat, total, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;
use std::ops::Range;

/// Steps of a part. It does not depend on the number of threads, so that the bits do not either.
const STEPS: usize = 512;

/// Results of the rows of an item over some steps.
struct PartialResult<F> {
    steps: Range<usize>,
    /// Scores, then their weights, in whole groups of lanes for each row; those after the steps are hidden.
    p: Vec<Lanes<F>>,
    /// Weighted sum of the values, `(rows, value_width)`, not normalised.
    o: Vec<F>,
    /// Largest score of each row.
    tops: Vec<F>,
    /// Sum of the weights of each row.
    sums: Vec<F>,
}

/// Same results as those of [`forward`](super::forward::forward).
pub(super) fn forward<F: Float>(op: &CausalAttention, ins: &[&[F]]) -> Vec<Vec<F>> {
    let items: Vec<Item<F>> = (0..op.batch * op.heads).map(|i| Item::of(op, ins, i)).collect();
    let past = items[0].past();
    let parts = past.clone().step_by(STEPS).map(|first| first..(first + STEPS).min(past.end));
    let jobs = items.iter().flat_map(|item| parts.clone().map(move |steps| (item, steps)));
    let found = jobs.map_in_parallel(|(item, steps)| {
        let mut part = PartialResult::new(op, steps);
        attend(item, &mut part);
        part
    });
    let zeros = |width: usize| zeros(op.batch * op.heads * op.rows * width);
    let mut outs = [zeros(op.value_width), zeros(1), zeros(1)];
    let [o, reciprocals, tops] = &mut outs;
    let rows = op.rows_by_item(o, op.rows, op.value_width).into_iter();
    let numbers = reciprocals.chunks_mut(op.rows).zip(tops.chunks_mut(op.rows));
    for (parts, (o, (reciprocals, tops))) in found.chunks(parts.count()).zip(rows.zip(numbers)) {
        for (i, o) in o.into_iter().enumerate() {
            (reciprocals[i], tops[i]) = combine(parts, i, o);
        }
    }
    outs.into()
}

impl<F: Float> PartialResult<F> {
    fn new(op: &CausalAttention, steps: Range<usize>) -> Self {
        let zeros = |width: usize| vec![F::zero(); op.rows * width];
        let p = vec![splat(F::of(f64::NEG_INFINITY)); op.rows * steps.len().div_ceil(LANES)];
        Self { p, o: zeros(op.value_width), tops: zeros(1), sums: zeros(1), steps }
    }
}

/// Computes a part.
#[simd]
fn attend<F: Float>(item: &Item<F>, part: &mut PartialResult<F>) {
    let PartialResult { steps, p, o, tops, sums } = part;
    let (op, groups) = (item.op, steps.len().div_ceil(LANES));
    let (queries, scale): (Vec<&[F]>, F) = (item.queries().collect(), op.scale());
    let scores = p.as_flattened_mut();
    for (j, k) in item.keys(steps).each().enumerate() {
        for (i, q) in queries.iter().enumerate() {
            scores[i * groups * LANES + j] = dot(q, k) * scale;
        }
    }
    for (i, row) in p.chunks_exact_mut(groups).enumerate() {
        item.restrict(item.past().end - 1, steps.clone(), &mut row.as_flattened_mut()[..steps.len()]);
        let top = largest(row.as_flattened());
        for x in row.iter_mut() {
            *x = exponentials(x, top);
        }
        (tops[i], sums[i]) = (top, total([row.as_flattened()], |[p]| p));
    }
    let weights = p.as_flattened();
    for (j, v) in item.values(steps).each().enumerate() {
        for (i, o) in o.chunks_exact_mut(op.value_width).enumerate() {
            let p = weights[i * groups * LANES + j];
            for (o, &v) in o.iter_mut().zip(v) {
                *o = p.fma(v, *o);
            }
        }
    }
}

/// Sets `o` to the result of row `i`, and returns the reciprocal of the sum of its weights, and its largest score.
fn combine<F: Float>(parts: &[PartialResult<F>], i: usize, o: &mut [F]) -> (F, F) {
    let top = parts.iter().map(|part| part.tops[i]).fold(F::of(f64::NEG_INFINITY), F::at_least);
    let mut sum = F::zero();
    for part in parts {
        if part.tops[i] == F::of(f64::NEG_INFINITY) {
            // The pattern hides every step of the part.
            continue;
        }
        let share = (part.tops[i] - top).exp();
        sum += share * part.sums[i];
        let width = o.len();
        for (o, &of_part) in o.iter_mut().zip(&part.o[i * width..]) {
            *o = share.fma(of_part, *o);
        }
    }
    let reciprocal = F::one() / sum;
    for o in o {
        *o *= reciprocal;
    }
    (reciprocal, top)
}
