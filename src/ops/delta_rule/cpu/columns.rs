//! Walks in which lanes are columns of the state, row after row, so that sums over rows need no sum over lanes. The
//! state of a group of columns stays in the L1 cache.

use super::span::DeltaRuleSpan;
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, Lanes};
use crate::runtime::matrix_state::without_trace;

/// Runs a group of columns through the span. Stores the projection b_tᵀ S_{t-1} of each event, and the read-out of its
/// query.
#[inline(always)]
pub(super) fn walk<F: Float>(
    span: &DeltaRuleSpan<F>,
    group: usize,
    state: &mut [Lanes<F>],
    [projections, reads]: [&mut [Lanes<F>]; 2],
) {
    let (steps, groups) = (&span.steps, span.steps.along_values);
    let mut projection = project(state, span.rows(&span.b, 0));
    for (j, event) in steps.events.iter().enumerate() {
        let at = j * groups + group;
        projections[at] = projection;
        let inputs =
            [span.rows(&steps.decays, j), span.rows(&span.a, j), span.rows(&steps.keys, j), span.rows(&span.b, j + 1)];
        let given = [&projection, &steps.values[at]];
        projection = match event.row {
            Some(_) => {
                let queries = span.rows(&steps.queries, j);
                let [next, read] = step::<F, true>(state, inputs, queries, given);
                reads[at] = read;
                next
            }
            None => step::<F, false>(state, inputs, &[], given)[0],
        };
    }
    for h in state {
        *h = each(|c| without_trace(h[c]));
    }
}

/// bᵀ S.
#[inline(always)]
fn project<F: Float>(state: &[Lanes<F>], b: &[F]) -> Lanes<F> {
    let mut sum = splat(F::zero());
    for (h, &b) in state.iter().zip(b) {
        sum = each(|c| b.fma(h[c], sum[c]));
    }
    sum
}

/// Computes one event, given the projection of the state before it and its value. Returns the projection for the next
/// event and, if it `READS`, the read-out of its query.
#[inline(always)]
fn step<F: Float, const READS: bool>(
    state: &mut [Lanes<F>],
    [decays, a, keys, b_next]: [&[F]; 4],
    queries: &[F],
    [projection, value]: [&Lanes<F>; 2],
) -> [Lanes<F>; 2] {
    let [mut next, mut read] = [splat(F::zero()); 2];
    for (i, h) in state.iter_mut().enumerate() {
        let (decay, a, key, b) = (decays[i], a[i], keys[i], b_next[i]);
        let moved = each(|c| key.fma(value[c], decay.fma(h[c], a * projection[c])));
        next = each(|c| b.fma(moved[c], next[c]));
        if READS {
            let query = queries[i];
            read = each(|c| query.fma(moved[c], read[c]));
        }
        *h = moved;
    }
    [next, read]
}

/// Runs the gradient G of the state of a group of columns back through the span, from after its last event to before
/// its first. Stores a_tᵀ G_t, the gradient of the projection, and G_tᵀ k_t, that of the value.
#[inline(always)]
pub(super) fn walk_back<F: Float>(
    span: &DeltaRuleSpan<F>,
    group: usize,
    grad: &mut [Lanes<F>],
    [of_projections, of_values]: [&mut [Lanes<F>]; 2],
) {
    let (steps, groups) = (&span.steps, span.steps.along_values);
    let mut later = splat(F::zero());
    for (j, event) in steps.events.iter().enumerate().rev() {
        let at = j * groups + group;
        let inputs = [
            span.rows(&steps.decays, j + 1),
            span.rows(&span.b, j + 1),
            span.rows(&span.a, j),
            span.rows(&steps.keys, j),
        ];
        let given = [&later, &steps.grads[at]];
        let sums = match event.row {
            Some(_) => step_back::<F, true>(grad, inputs, span.rows(&steps.queries, j), given),
            None => step_back::<F, false>(grad, inputs, &[], given),
        };
        [of_projections[at], of_values[at]] = sums;
        later = sums[0];
    }
    let (decays, b) = (span.rows(&steps.decays, 0), span.rows(&span.b, 0));
    for (i, of_state) in grad.iter_mut().enumerate() {
        *of_state = before(of_state, [decays[i], b[i]], &later);
    }
}

/// Computes one event in reverse, given the gradient of the projection of the next event, and that of its own result,
/// if it `READS`. Applies the transition of the next event first.
#[inline(always)]
fn step_back<F: Float, const READS: bool>(
    grad: &mut [Lanes<F>],
    [decays_next, b_next, a, keys]: [&[F]; 4],
    queries: &[F],
    [later, go]: [&Lanes<F>; 2],
) -> [Lanes<F>; 2] {
    let [mut of_projection, mut of_value] = [splat(F::zero()); 2];
    for (i, grad) in grad.iter_mut().enumerate() {
        let mut of_state = before(grad, [decays_next[i], b_next[i]], later);
        if READS {
            let query = queries[i];
            of_state = each(|c| query.fma(go[c], of_state[c]));
        }
        let (a, key) = (a[i], keys[i]);
        of_projection = each(|c| a.fma(of_state[c], of_projection[c]));
        of_value = each(|c| key.fma(of_state[c], of_value[c]));
        *grad = of_state;
    }
    [of_projection, of_value]
}

/// The gradient of a row of the state before a transition.
#[inline(always)]
fn before<F: Float>(after: &Lanes<F>, [decay, b]: [F; 2], of_projection: &Lanes<F>) -> Lanes<F> {
    each(|c| without_trace(decay.fma(after[c], b * of_projection[c])))
}
