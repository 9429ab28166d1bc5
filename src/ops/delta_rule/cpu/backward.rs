//! The backward pass of one task, span by span from the last one.
//!
//! With G_t = dL/dS_t, P_t = b_tᵀ S_{t-1} and R_t = a_tᵀ G_t, which are rows of e numbers:
//! G_t = q_t dL/do_tᵀ + diag(e^{g_{t+1}}) G_{t+1} + b_{t+1} R_{t+1}, and dL/dq_t = S_t dL/do_t,
//! dL/dk_t = G_t v_t, dL/dv_t = G_tᵀ k_t, dL/da_t = G_t P_tᵀ, dL/db_t = S_{t-1} R_tᵀ; dL/dg_t is
//! e^{g_t} times the sums of the rows of G_t ⊙ S_{t-1}.
//!
//! P, R and dL/dv sum over rows, the other gradients over columns. So a walk by columns over the
//! whole sequence finds P and keeps the state before each span; then, in each span, a walk back by
//! columns finds R and dL/dv; and with P and R known, walks by rows find the rest.

use super::columns::{walk, walk_back};
use super::rows::{add, ColumnSums, OfColumns};
use super::span::DeltaRuleSpan;
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, Lanes};
use crate::runtime::matrix_state::{
    gradients, write_decays, write_features, SpanSteps, StateBlock, StateSizes, Task, BLOCK, SPAN,
};
use crate::runtime::strips::StripRows;
use dsf_simd::simd;

/// The gradients of q, k, v, g, a and b, given that of the result.
pub(super) fn backward<F: Float>(op: &StateSizes, ins: &[&[F]], go: &[F]) -> Vec<Vec<F>> {
    gradients::<F, 6>(op, ins, |task, [q, k, v, g, a, b]| {
        backward_task(task, go, DeltaRuleGrads { q, k, v, g, a, b });
    })
}

/// The gradients that a task writes, zero on entry.
struct DeltaRuleGrads<'a, F> {
    q: StripRows<'a, F>,
    k: StripRows<'a, F>,
    v: StripRows<'a, F>,
    g: StripRows<'a, F>,
    a: StripRows<'a, F>,
    b: StripRows<'a, F>,
}

/// The buffers of a task.
struct DeltaRuleScratch<F> {
    span: DeltaRuleSpan<F>,
    /// The states before each span, in the layout of the walks by columns.
    kept: Vec<Lanes<F>>,
    /// The projections P of every step.
    projections: Vec<Lanes<F>>,
    /// The gradient of the state that flows back from later spans.
    carry: Vec<Lanes<F>>,
    /// The same at the end of the span.
    after: Vec<Lanes<F>>,
    /// R and the gradients of values, for each event of the span.
    of_columns: [Vec<Lanes<F>>; 2],
    /// The states before each event of the span, for one block.
    before: Vec<StateBlock<F>>,
    sums: ColumnSums<F>,
}

impl<F: Float> DeltaRuleScratch<F> {
    fn new(task: &Task<F>) -> Self {
        let span = DeltaRuleSpan::new(task);
        let size = span.rows * span.steps.along_values;
        let zero = splat(F::zero());
        Self {
            kept: vec![zero; SpanSteps::spans(task).count() * size],
            projections: Vec::new(),
            carry: vec![zero; size],
            after: vec![zero; size],
            of_columns: [Vec::new(), Vec::new()],
            before: Vec::new(),
            sums: ColumnSums::default(),
            span,
        }
    }
}

#[simd]
fn backward_task<F: Float>(task: &Task<F>, go: &[F], mut grads: DeltaRuleGrads<F>) {
    let mut scratch = DeltaRuleScratch::new(task);
    keep_states(task, &mut scratch);
    for times in SpanSteps::spans(task).rev() {
        let index = times.start / SPAN;
        scratch.span.load_with_queries(task, times, Some(go));
        back_by_columns(&mut scratch, &mut grads);
        back_by_rows(task, &mut scratch, index);
        write(&scratch, &mut grads);
    }
}

/// Stores the state before each span, and the projections.
#[inline(always)]
fn keep_states<F: Float>(task: &Task<F>, scratch: &mut DeltaRuleScratch<F>) {
    let DeltaRuleScratch { span, kept, projections, carry: state, .. } = scratch;
    let groups = span.steps.along_values;
    for (times, kept) in SpanSteps::spans(task).zip(kept.chunks_exact_mut(state.len())) {
        kept.copy_from_slice(state);
        span.load(task, times.clone());
        projections.resize(times.end * groups, splat(F::zero()));
        let projections = &mut projections[times.start * groups..];
        for (group, state) in state.chunks_exact_mut(span.rows).enumerate() {
            walk(span, group, state, [projections, &mut []]);
        }
    }
    state.fill(splat(F::zero()));
}

/// The walk back by columns; writes the gradients of values.
#[inline(always)]
fn back_by_columns<F: Float>(scratch: &mut DeltaRuleScratch<F>, grads: &mut DeltaRuleGrads<F>) {
    let DeltaRuleScratch { span, carry, after, of_columns, .. } = scratch;
    after.copy_from_slice(carry);
    let groups = span.steps.along_values;
    for of_columns in of_columns.iter_mut() {
        of_columns.resize(span.len() * groups, splat(F::zero()));
    }
    let [of_projections, of_values] = of_columns;
    for (group, grad) in carry.chunks_exact_mut(span.rows).enumerate() {
        walk_back(span, group, grad, [of_projections, of_values]);
    }
    for (event, of_values) in span.steps.events.iter().zip(of_values.chunks_exact(groups)) {
        if event.moves {
            write_features(of_values, grads.v[event.time]);
        }
    }
}

/// The walks by rows, which sum over columns.
#[inline(always)]
fn back_by_rows<F: Float>(task: &Task<F>, scratch: &mut DeltaRuleScratch<F>, index: usize) {
    let DeltaRuleScratch { span, kept, projections, after, of_columns: [of_projections, _], before, sums, .. } =
        scratch;
    let (events, groups, size) = (span.len(), span.steps.along_keys, after.len());
    let of = OfColumns { projections, of_projections, states: [&kept[index * size..][..size], after] };
    before.resize(events, [splat(F::zero()); BLOCK]);
    sums.clear(events * groups);
    for group in 0..groups {
        for column in 0..task.columns.len().div_ceil(BLOCK) {
            add(span, (column, group), &of, &mut before[..events], sums);
        }
    }
    for (sum, decay) in sums.decays.iter_mut().zip(&span.steps.decays) {
        *sum = each(|i| decay[i] * sum[i]);
    }
}

/// Writes the sums of the walks by rows.
#[inline(always)]
fn write<F: Float>(scratch: &DeltaRuleScratch<F>, grads: &mut DeltaRuleGrads<F>) {
    let (sums, groups) = (&scratch.sums, scratch.span.steps.along_keys);
    for (j, event) in scratch.span.steps.events.iter().enumerate() {
        let at = j * groups..(j + 1) * groups;
        if let Some(row) = event.row {
            write_features(&sums.queries[at.clone()], grads.q[row]);
        }
        if event.moves {
            write_features(&sums.keys[at.clone()], grads.k[event.time]);
            write_decays(&sums.decays[at.clone()], grads.g[event.time]);
            write_features(&sums.a[at.clone()], grads.a[event.time]);
            write_features(&sums.b[at], grads.b[event.time]);
        }
    }
}
