//! Forward pass, one task per sequence and span of channels. A tracked pass saves the state before every chunk, from
//! which the backward pass recomputes the states inside it.

mod backward;
mod kernel;
mod layout;
mod panel;
mod steps;

use super::{SelectiveScan, StepRule};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{self, splat, store, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
pub(super) use backward::TASKS;
use dsf_simd::simd;
use kernel::{walk, Numbers, ReadOut, ScanInputs, Vector, CHUNK};
use layout::{at, blank, columns, gather, of_group, put, take, GroupSteps, Sequence, StepChunk};
use std::ops::Range;
use steps::{BilinearSteps, EulerSteps, HoldSteps, Rates, Stepping, BLOCK};

/// Buffers that one task of the forward pass reuses.
struct TaskScratch<F> {
    steps: Vec<GroupSteps<F>>,
    b: Numbers<F>,
    c: Numbers<F>,
    /// The states of a panel, see [`at`].
    h: Vec<Vector<F>>,
}

impl<F: Float> TaskScratch<F> {
    fn new(scan: &SelectiveScan) -> Self {
        let groups = scan.panel();
        Self {
            steps: vec![GroupSteps::blank(); groups],
            b: [[lanes::blank(); BLOCK]; CHUNK],
            c: [[lanes::blank(); BLOCK]; CHUNK],
            h: vec![blank(); groups * scan.filled()],
        }
    }
}

/// Outputs of a task: the rows of its span of channels.
struct TaskOutput<'a, F> {
    y: Vec<&'a mut [F]>,
    /// The states before each chunk but the first; empty if they are not saved.
    saved: Vec<&'a mut [F]>,
}

impl CpuOp for SelectiveScan {
    /// y; then, if tracked, the saved states, (B, chunks - 1, panels, n, groups, lanes).
    fn forward<F: Float>(&self, call: Forward<F>) -> Vec<Vec<F>> {
        match self.rule {
            StepRule::Euler => self.forward_by::<EulerSteps, F>(call),
            StepRule::Hold => self.forward_by::<HoldSteps, F>(call),
            StepRule::Bilinear => self.forward_by::<BilinearSteps, F>(call),
        }
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        match self.rule {
            StepRule::Euler => backward::backward::<EulerSteps, F>(self, call),
            StepRule::Hold => backward::backward::<HoldSteps, F>(self, call),
            StepRule::Bilinear => backward::backward::<BilinearSteps, F>(self, call),
        }
    }
}

impl SelectiveScan {
    fn forward_by<R: Stepping, F: Float>(&self, Forward { ins, tracked }: Forward<F>) -> Vec<Vec<F>> {
        let a = self.pack(ins[2]);
        let saves = if tracked { self.saves() } else { 0 };
        let mut y = zeros(self.batch * self.rows * self.channels);
        let mut saved = zeros(self.batch * saves * self.state_len());
        let span = self.span() * LANES;
        let mut outs: Vec<_> = columns(&mut y, (self.rows, self.channels), span)
            .into_iter()
            .map(|y| TaskOutput { y, saved: Vec::new() })
            .collect();
        if saves > 0 {
            let shape = (saves, self.state_len());
            let parts = columns(&mut saved, shape, span * self.filled());
            for (out, saved) in outs.iter_mut().zip(parts) {
                out.saved = saved;
            }
        }
        outs.into_iter().enumerate().in_parallel_with(
            || TaskScratch::new(self),
            |scratch, (i, mut out)| {
                let seq = Sequence::of(self, ins, &a, i / self.spans());
                let span = self.groups_of(i % self.spans());
                forward_span::<R, F>(self, &seq, span, scratch, &mut out);
            },
        );
        vec![y, saved]
    }
}

#[simd]
fn forward_span<R: Stepping, F: Float>(
    scan: &SelectiveScan,
    seq: &Sequence<F>,
    span: Range<usize>,
    scratch: &mut TaskScratch<F>,
    out: &mut TaskOutput<F>,
) {
    for first in span.clone().step_by(scan.panel()) {
        let groups = first..(first + scan.panel()).min(span.end);
        scratch.h.fill(Vector(splat(F::zero())));
        for index in 0..seq.chunks() {
            if let Some(saved) = index.checked_sub(1).and_then(|i| out.saved.get_mut(i)) {
                let panel = &mut saved[(first - span.start) * scan.filled() * LANES..];
                for (to, Vector(h)) in panel.chunks_exact_mut(LANES).zip(&scratch.h) {
                    to.copy_from_slice(h);
                }
            }
            let chunk = seq.chunk(index);
            for (group, steps) in groups.clone().zip(&mut scratch.steps) {
                steps.load::<R>(scan, seq, group, chunk.steps.clone());
                steps.y.fill(Vector(splat(F::zero())));
            }
            for k in (0..scan.states).step_by(BLOCK) {
                forward_block::<R, F>(scan, seq, &chunk, (groups.clone(), k), scratch);
            }
            for (group, steps) in groups.clone().zip(&scratch.steps) {
                for (row, j) in chunk.rows() {
                    store(&steps.y[j].0, of_group(out.y[row], group - span.start));
                }
            }
        }
    }
}

/// Runs the block of states from `k` on of each group through one chunk.
#[inline(always)]
fn forward_block<R: Stepping, F: Float>(
    scan: &SelectiveScan,
    seq: &Sequence<F>,
    chunk: &StepChunk,
    (groups, k): (Range<usize>, usize),
    scratch: &mut TaskScratch<F>,
) {
    let (n, len) = (scan.states, chunk.steps.len());
    gather(seq.b, (n, k), chunk.steps.clone().zip(0..), &mut scratch.b);
    gather(seq.c, (n, k), chunk.rows(), &mut scratch.c);
    let reads = chunk.reads();
    let width = groups.len();
    for (g, (group, steps)) in groups.zip(&mut scratch.steps).enumerate() {
        let by = ScanInputs {
            rates: Rates::of::<R>(take(seq.a, group * scan.filled() + k)),
            delta: &steps.delta[..len],
            drive: &steps.drive[..len],
            b: &scratch.b[..len],
        };
        let read_out = ReadOut { read: &reads[..len], c: &scratch.c[..len], y: &mut steps.y[..len] };
        let at = at(width, g, k);
        let h = walk::<R, F>(&by, take(&scratch.h, at), read_out);
        put(&h, &mut scratch.h, at);
    }
}
