//! Backward pass. Chunks are processed in reverse: forward through a chunk, from the state that the forward pass saved,
//! recording every state and decay on a tape, and then back. A task needs some hundred kilobytes of scratch memory, for
//! any B, d and n.

use super::super::SelectiveScan;
use super::kernel::Vector;
use super::layout::{columns, Sequence};
use super::panel::{Panel, PanelGrads, PanelScratch, SpanGrads, TILE};
use super::steps::Stepping;
use crate::runtime::autograd::Backward;
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, sum_parts, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;
use std::ops::Range;

/// The maximum of tasks among which sequences are divided: each has a gradient of `a` of its own.
pub(in super::super) const TASKS: usize = 64;

pub(super) fn backward<R: Stepping, F: Float>(scan: &SelectiveScan, call: Backward<F>) -> Vec<Vec<F>> {
    let (ins, gy) = (call.ins, call.only().grad);
    let packed = scan.pack(ins[2]);
    let (spans, span) = (scan.spans(), scan.span());
    let (mut u, mut delta) = (zeros(ins[0].len()), zeros(ins[1].len()));
    let (mut b, mut c) = (zeros(ins[3].len() * spans), zeros(ins[4].len() * spans));
    // A task has one span of one sequence, or several sequences with one span each.
    let per_task = scan.batch.div_ceil(TASKS);
    let tasks = (scan.batch * spans).div_ceil(per_task);
    let mut a = vec![Vector(splat(F::zero())); tasks * span * scan.filled()];
    let shape = (scan.len, scan.channels);
    let mut span_grads: Vec<SpanGrads<F>> = columns(&mut u, shape, span * LANES)
        .into_iter()
        .zip(columns(&mut delta, shape, span * LANES))
        .zip(b.chunks_mut(scan.len * scan.states))
        .zip(c.chunks_mut(scan.rows * scan.states))
        .map(|(((u, delta), b), c)| SpanGrads { u, delta, b, c })
        .collect();
    (span_grads.chunks_mut(per_task)).zip(a.chunks_mut(span * scan.filled())).enumerate().in_parallel_with(
        || PanelScratch::new(scan),
        |scratch, (task, (grads, a))| {
            for (i, span) in (task * per_task..).zip(grads) {
                let seq = &Sequence::of(scan, ins, &packed, i / spans);
                let gy = &gy[i / spans * scan.rows * scan.channels..];
                let saved = &call.saved[0][i / spans * scan.saves() * scan.state_len()..];
                let groups = scan.groups_of(i % spans);
                backward_span::<R, F>(scan, (seq, gy, saved), groups, &mut PanelGrads { span, a }, scratch);
            }
        },
    );
    drop(span_grads);
    let (b, c) = (add_spans(b, spans, scan.batch), add_spans(c, spans, scan.batch));
    vec![u, delta, scan.unpack_sum(&a), b, c]
}

/// The sum over the spans of each sequence, in their order.
fn add_spans<F: Float>(parts: Vec<F>, spans: usize, batch: usize) -> Vec<F> {
    if spans == 1 {
        return parts;
    }
    let len = parts.len() / spans / batch;
    let sequences = parts.chunks_exact(len * spans);
    sequences.flat_map(|parts| sum_parts(parts, len)).collect()
}

#[simd]
fn backward_span<R: Stepping, F: Float>(
    scan: &SelectiveScan,
    (seq, gy, saved): (&Sequence<F>, &[F], &[F]),
    span: Range<usize>,
    grads: &mut PanelGrads<F>,
    scratch: &mut PanelScratch<F>,
) {
    for group in span.clone().step_by(scan.panel()) {
        for state in (0..scan.filled()).step_by(TILE) {
            Panel {
                scan,
                seq,
                gy,
                saved,
                groups: group..(group + scan.panel()).min(span.end),
                first: span.start,
                states: state..(state + TILE).min(scan.filled()),
            }
            .backward::<R>(grads, scratch);
        }
    }
}

impl SelectiveScan {
    /// The inverse of `pack`, applied to the sum over tasks in their order; `parts` holds, for each
    /// task, the gradient of its span.
    fn unpack_sum<F: Float>(&self, parts: &[Vector<F>]) -> Vec<F> {
        let (span, spans) = (self.span() * self.filled(), self.spans());
        let (first, rest) = parts.split_at(span * spans);
        let mut total = first.to_vec();
        for part in rest.chunks_exact(span * spans) {
            for (Vector(total), Vector(part)) in total.iter_mut().zip(part) {
                *total = each(|i| total[i] + part[i]);
            }
        }
        let entry = |i: usize| {
            let (channel, k) = (i / self.states, i % self.states);
            total[channel / LANES * self.filled() + k].0[channel % LANES]
        };
        (0..self.channels * self.states).map(entry).collect()
    }
}
