//! The forward pass of one task.

use super::columns::walk;
use super::span::DeltaRuleSpan;
use crate::runtime::float::Float;
use crate::runtime::lanes::{splat, Lanes};
use crate::runtime::matrix_state::{result, write_features, SpanSteps, StateSizes, Task};
use crate::runtime::strips::StripRows;
use dsf_simd::simd;

pub(super) fn forward<F: Float>(op: &StateSizes, ins: &[&[F]]) -> Vec<F> {
    result(op, ins, forward_task)
}

#[simd]
fn forward_task<F: Float>(task: &Task<F>, mut o: StripRows<F>) {
    let mut span = DeltaRuleSpan::new(task);
    let groups = span.steps.along_values;
    let mut state: Vec<Lanes<F>> = vec![splat(F::zero()); span.rows * groups];
    let mut sums: [Vec<Lanes<F>>; 2] = [Vec::new(), Vec::new()];
    for times in SpanSteps::spans(task) {
        span.load_with_queries(task, times, None);
        for sums in &mut sums {
            sums.resize(span.len() * groups, splat(F::zero()));
        }
        let [projections, reads] = &mut sums;
        for (group, state) in state.chunks_exact_mut(span.rows).enumerate() {
            walk(&span, group, state, [projections, reads]);
        }
        for (event, reads) in span.steps.events.iter().zip(reads.chunks_exact(groups)) {
            if let Some(row) = event.row {
                write_features(reads, o[row]);
            }
        }
    }
}
