//! The backward pass of one panel of channel groups and one tile of states, through all chunks.

use super::super::SelectiveScan;
use super::kernel::{
    walk, walk_back, Carried, Column, Numbers, Read, ScanInputs, Sheet, StateSums, Tape, Vector, CHUNK,
};
use super::layout::{at, blank, gather, of_group, put, take, GroupSteps, Sequence, StepChunk};
use super::steps::{LaneBlock, Rates, Stepping, BLOCK};
use crate::runtime::float::Float;
use crate::runtime::lanes::{self, each, load, splat, store, sum, Lanes, LANES};
use std::hint::black_box;
use std::ops::Range;

/// States in a tile.
pub(super) const TILE: usize = 64;

/// The gradients of one span of channels of one sequence. Those of b and c are sums over the channels
/// of the span alone.
pub(super) struct SpanGrads<'a, F> {
    pub(super) u: Vec<&'a mut [F]>,
    pub(super) delta: Vec<&'a mut [F]>,
    pub(super) b: &'a mut [F],
    pub(super) c: &'a mut [F],
}

/// All gradients; that of `a` is packed, and shared by the sequences of a task.
pub(super) struct PanelGrads<'a, 'b, F> {
    pub(super) span: &'a mut SpanGrads<'b, F>,
    pub(super) a: &'a mut [Vector<F>],
}

/// Buffers that one task reuses for all its panels.
pub(super) struct PanelScratch<F> {
    steps: Vec<GroupSteps<F>>,
    /// Gradients carried back in time for the states of a panel and tile, see [`at`].
    carry: Vec<Vector<F>>,
    tape: Tape<F>,
    gb: Sheet<F>,
    gc: Sheet<F>,
    b: Numbers<F>,
    c: Numbers<F>,
}

impl<F: Float> PanelScratch<F> {
    pub(super) fn new(scan: &SelectiveScan) -> Self {
        let groups = scan.panel();
        let tile = groups * scan.filled().min(TILE);
        let sheet = [[blank(); BLOCK]; CHUNK];
        Self {
            steps: vec![GroupSteps::blank(); groups],
            carry: vec![blank(); tile],
            tape: Tape { decay: sheet, before: sheet },
            gb: sheet,
            gc: sheet,
            b: [[lanes::blank(); BLOCK]; CHUNK],
            c: [[lanes::blank(); BLOCK]; CHUNK],
        }
    }
}

/// A panel of groups and a tile of states of one sequence.
pub(super) struct Panel<'a, F> {
    pub(super) scan: &'a SelectiveScan,
    pub(super) seq: &'a Sequence<'a, F>,
    pub(super) gy: &'a [F],
    /// The states of the sequence before each chunk but the first, as the forward pass saved them.
    pub(super) saved: &'a [F],
    pub(super) groups: Range<usize>,
    /// The first group of the span.
    pub(super) first: usize,
    pub(super) states: Range<usize>,
}

impl<F: Float> Panel<'_, F> {
    /// Adds to all gradients.
    #[inline(always)]
    pub(super) fn backward<R: Stepping>(&self, grads: &mut PanelGrads<F>, scratch: &mut PanelScratch<F>) {
        scratch.carry.fill(Vector(splat(F::zero())));
        for chunk in (0..self.seq.chunks()).rev() {
            self.chunk_back::<R>(chunk, grads, scratch);
        }
    }

    /// The block of states from `k` on of the `g`-th group before chunk `index`.
    #[inline(always)]
    fn before(&self, index: usize, g: usize, k: usize) -> LaneBlock<F> {
        let mut before = [splat(F::zero()); BLOCK];
        if index > 0 {
            let state = &self.saved[(index - 1) * self.scan.state_len()..];
            let panel = &state[self.groups.start * self.scan.filled() * LANES..];
            let at = at(self.groups.len(), g, k) * LANES;
            for (before, saved) in before.iter_mut().zip(panel[at..].as_chunks().0) {
                *before = *saved;
            }
        }
        before
    }

    #[inline(always)]
    fn load<R: Stepping>(&self, chunk: &StepChunk, scratch: &mut PanelScratch<F>) {
        for (group, steps) in self.groups.clone().zip(&mut scratch.steps) {
            steps.load::<R>(self.scan, self.seq, group, chunk.steps.clone());
        }
    }

    #[inline(always)]
    fn gather_b<'b>(&self, chunk: &StepChunk, k: usize, b: &'b mut Numbers<F>) -> &'b [[F; BLOCK]] {
        let shape = (self.scan.states, k);
        gather(self.seq.b, shape, chunk.steps.clone().zip(0..), b);
        &b[..chunk.steps.len()]
    }

    #[inline(always)]
    fn driven<'b, R: Stepping>(
        &self,
        (group, k): (usize, usize),
        delta: &'b Column<F>,
        drive: &'b Column<F>,
        b: &'b [[F; BLOCK]],
    ) -> ScanInputs<'b, F> {
        ScanInputs {
            rates: Rates::of::<R>(take(self.seq.a, group * self.scan.filled() + k)),
            delta: &delta[..b.len()],
            drive: &drive[..b.len()],
            b,
        }
    }

    /// Runs back through one chunk and adds to all gradients.
    #[inline(always)]
    fn chunk_back<R: Stepping>(&self, index: usize, grads: &mut PanelGrads<F>, scratch: &mut PanelScratch<F>) {
        let chunk = self.seq.chunk(index);
        self.load::<R>(&chunk, scratch);
        for (group, steps) in self.groups.clone().zip(&mut scratch.steps) {
            for (row, j) in chunk.rows() {
                let gy = &self.gy[row * self.scan.channels..(row + 1) * self.scan.channels];
                steps.y[j] = Vector(load(&gy[group * LANES..]));
            }
            steps.along_a.fill(Vector(splat(F::zero())));
            steps.along_b.fill(Vector(splat(F::zero())));
        }
        for k in self.states.clone().step_by(BLOCK) {
            self.block_back::<R>(index, &chunk, k, grads, scratch);
        }
        self.add_along::<R>(&chunk, grads, &scratch.steps);
    }

    /// Runs the block of states from `k` on of all groups forward through the chunk and back.
    #[inline(always)]
    fn block_back<R: Stepping>(
        &self,
        index: usize,
        chunk: &StepChunk,
        k: usize,
        grads: &mut PanelGrads<F>,
        scratch: &mut PanelScratch<F>,
    ) {
        let (n, len, reads) = (self.scan.states, chunk.steps.len(), chunk.reads());
        let b = self.gather_b(chunk, k, &mut scratch.b);
        gather(self.seq.c, (n, k), chunk.rows(), &mut scratch.c);
        scratch.gb[..len].fill([Vector(splat(F::zero())); BLOCK]);
        scratch.gc[..len].fill([Vector(splat(F::zero())); BLOCK]);
        for (g, group) in self.groups.clone().enumerate() {
            let at = at(self.groups.len(), g, k - self.states.start);
            let of_a = (group - self.first) * self.scan.filled() + k;
            let steps = &mut scratch.steps[g];
            let by = self.driven::<R>((group, k), &steps.delta, &steps.drive, b);
            let tape = &mut scratch.tape;
            let last = walk::<R, F>(&by, self.before(index, g, k), &mut *tape);
            let read = Read { read: &reads[..len], c: &scratch.c[..len], gy: &steps.y[..len] };
            let mut sums = StateSums {
                along_b: &mut steps.along_b[..len],
                along_a: &mut steps.along_a[..len],
                b: &mut scratch.gb,
                c: &mut scratch.gc,
            };
            let mut carried = Carried { carry: take(&scratch.carry, at), ga: take(grads.a, of_a) };
            walk_back::<R, F>(&by, &read, tape, last, &mut carried, &mut sums);
            put(&carried.carry, &mut scratch.carry, at);
            put(&carried.ga, grads.a, of_a);
        }
        add_sums(&scratch.gb, chunk.steps.clone().zip(0..), grads.span.b, (n, k));
        add_sums(&scratch.gc, chunk.rows(), grads.span.c, (n, k));
    }

    /// Adds to the gradients of u and δ from the sums over states.
    #[inline(always)]
    fn add_along<R: Stepping>(&self, chunk: &StepChunk, grads: &mut PanelGrads<F>, steps: &[GroupSteps<F>]) {
        for (group, steps) in self.groups.clone().zip(steps) {
            for (j, t) in chunk.steps.clone().enumerate() {
                let (Vector(u), Vector(delta)) = (&steps.u[j], &steps.delta[j]);
                let (Vector(along_a), Vector(along_b)) = (&steps.along_a[j], &steps.along_b[j]);
                let to = of_group(grads.span.u[t], group - self.first);
                let so_far: Lanes<F> = load(to);
                let sum: Lanes<F> = each(|i| R::add_to_u(so_far[i], along_b[i], delta[i]));
                store(&sum, to);
                let to = of_group(grads.span.delta[t], group - self.first);
                let so_far: Lanes<F> = load(to);
                let sum: Lanes<F> = each(|i| so_far[i] + R::of_delta([along_b[i], along_a[i]], u[i]));
                store(&sum, to);
            }
        }
    }
}

/// Adds the lane sums of a sheet to the rows of `to`, a block of numbers from `k` on each.
#[inline(always)]
fn add_sums<F: Float>(
    sheet: &Sheet<F>,
    rows: impl Iterator<Item = (usize, usize)>,
    to: &mut [F],
    (width, k): (usize, usize),
) {
    for (row, j) in rows {
        for (to, lanes) in to[row * width + k..(row + 1) * width].iter_mut().zip(&sheet[j]) {
            // Opaque: otherwise the compiler merges several sums into one long shuffle, at half the
            // speed.
            *to += sum(black_box(&lanes.0));
        }
    }
}
