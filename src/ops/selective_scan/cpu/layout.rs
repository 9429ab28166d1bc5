//! The division of the work: spans of channels for tasks; panels of groups, tiles of states and
//! chunks of time for caches; and conversions between rows and vectors.

use super::super::SelectiveScan;
use super::kernel::{Column, Numbers, Vector, CHUNK};
use super::steps::{LaneBlock, Stepping, BLOCK};
use crate::runtime::float::Float;
use crate::runtime::lanes::{self, each, load, splat, LANES};
use std::ops::Range;

/// The maximum of groups of channels in a panel: its inputs of one chunk must stay in cache.
const PANEL: usize = 8;
/// Number of sequences below which panels are smaller, so that two threads have work even with few channels.
const FEW: usize = 2;

/// A vector that is written before it is read.
pub(super) fn blank<F: Float>() -> Vector<F> {
    Vector(splat(lanes::blank()))
}

/// The inputs of one sequence. `times` are the times of its rows of `c`; `a` is packed.
pub(super) struct Sequence<'a, F> {
    pub(super) u: &'a [F],
    pub(super) delta: &'a [F],
    pub(super) a: &'a [Vector<F>],
    pub(super) b: &'a [F],
    pub(super) c: &'a [F],
    pub(super) times: &'a [usize],
}

impl<'a, F: Float> Sequence<'a, F> {
    pub(super) fn of(scan: &'a SelectiveScan, ins: &[&'a [F]], a: &'a [Vector<F>], index: usize) -> Self {
        let [u, delta, _, b, c] = ins else { unreachable!("five inputs") };
        let part = |x: &'a [F], count: usize| &x[index * count..][..count];
        Self {
            u: part(u, scan.len * scan.channels),
            delta: part(delta, scan.len * scan.channels),
            a,
            b: part(b, scan.len * scan.states),
            c: part(c, scan.rows * scan.states),
            times: scan.times_of(index),
        }
    }

    /// The number of chunks up to the last row; later steps have no effect.
    pub(super) fn chunks(&self) -> usize {
        self.steps().div_ceil(CHUNK)
    }

    fn steps(&self) -> usize {
        self.times.last().map_or(0, |last| last + 1)
    }

    /// A chunk: its steps and the rows among them.
    pub(super) fn chunk(&self, index: usize) -> StepChunk<'a> {
        let steps = index * CHUNK..((index + 1) * CHUNK).min(self.steps());
        let before = |step: usize| self.times.partition_point(|&time| time < step);
        let rows = before(steps.start)..before(steps.end);
        let times = &self.times[rows.clone()];
        StepChunk { steps, rows, times }
    }
}

/// Some steps, and the rows at these steps.
pub(super) struct StepChunk<'a> {
    pub(super) steps: Range<usize>,
    rows: Range<usize>,
    times: &'a [usize],
}

impl StepChunk<'_> {
    /// Each row with the index of its step inside the chunk.
    #[inline(always)]
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let start = self.steps.start;
        let inside = self.times.iter().map(move |time| time - start);
        self.rows.clone().zip(inside)
    }

    /// True for each step that has a row.
    pub(super) fn reads(&self) -> [bool; CHUNK] {
        let mut reads = [false; CHUNK];
        for (_, j) in self.rows() {
            reads[j] = true;
        }
        reads
    }
}

/// Copies a block of states beginning at `k` from the rows of `x` for each step of the chunk; missing entries are zero.
#[inline(always)]
pub(super) fn gather<F: Float>(
    x: &[F],
    (width, k): (usize, usize),
    rows: impl Iterator<Item = (usize, usize)>,
    to: &mut Numbers<F>,
) {
    for (row, j) in rows {
        to[j] = load(&x[row * width + k..(row + 1) * width]);
    }
}

/// Index, among all states of a panel, of the block of states beginning at `k` of the panel's `g`-th group. Blocks are
/// in the order of use, so that states stream through the cache.
pub(super) fn at(groups: usize, g: usize, k: usize) -> usize {
    k * groups + g * BLOCK
}

/// The inputs of one group, and its sums, at the steps of a chunk.
#[derive(Clone)]
pub(super) struct GroupSteps<F> {
    pub(super) u: Column<F>,
    pub(super) delta: Column<F>,
    /// See [`Stepping::drive`].
    pub(super) drive: Column<F>,
    /// The read-out, or its gradient.
    pub(super) y: Column<F>,
    pub(super) along_a: Column<F>,
    pub(super) along_b: Column<F>,
}

impl<F: Float> GroupSteps<F> {
    pub(super) fn blank() -> Self {
        let column = [blank(); CHUNK];
        Self { u: column, delta: column, drive: column, y: column, along_a: column, along_b: column }
    }

    /// Loads u and δ of the channels of `group`.
    #[inline(always)]
    pub(super) fn load<R: Stepping>(
        &mut self,
        scan: &SelectiveScan,
        seq: &Sequence<F>,
        group: usize,
        steps: Range<usize>,
    ) {
        for (j, t) in steps.enumerate() {
            let row = t * scan.channels..(t + 1) * scan.channels;
            let u = load(&seq.u[row.clone()][group * LANES..]);
            let delta = load(&seq.delta[row][group * LANES..]);
            self.drive[j] = Vector(each(|i| R::drive(u[i], delta[i])));
            self.u[j] = Vector(u);
            self.delta[j] = Vector(delta);
        }
    }
}

/// The slice of a row that belongs to a group.
#[inline(always)]
pub(super) fn of_group<F>(row: &mut [F], group: usize) -> &mut [F] {
    let end = ((group + 1) * LANES).min(row.len());
    &mut row[group * LANES..end]
}

/// Cuts an array of sequences of `rows` rows, each `width` long, into columns of `span`. The result
/// is ordered by sequence, then span; each entry has the rows of its span.
pub(super) fn columns<F>(x: &mut [F], (rows, width): (usize, usize), span: usize) -> Vec<Vec<&mut [F]>> {
    let cut = |sequence| {
        let empty = || Vec::with_capacity(rows);
        let mut spans: Vec<Vec<&mut [F]>> = Vec::new();
        spans.resize_with(width.div_ceil(span), empty);
        for row in <[F]>::chunks_mut(sequence, width) {
            for (span, part) in spans.iter_mut().zip(row.chunks_mut(span)) {
                span.push(part);
            }
        }
        spans
    };
    x.chunks_mut(rows * width).flat_map(cut).collect()
}

impl SelectiveScan {
    pub(super) fn groups(&self) -> usize {
        self.channels.div_ceil(LANES)
    }

    /// Groups in a panel. Sums over channels are taken inside a panel first, then over panels in
    /// their order, so this must depend on the shapes alone.
    pub(super) fn panel(&self) -> usize {
        let panels = (FEW / self.batch).max(1);
        self.groups().div_ceil(panels).min(PANEL)
    }

    /// Groups in a span, the channels of one task: a panel if there are more threads than
    /// sequences, otherwise all groups. Either way the same numbers are added in the same order.
    pub(super) fn span(&self) -> usize {
        match self.split {
            true => self.panel(),
            false => self.groups(),
        }
    }

    pub(super) fn spans(&self) -> usize {
        self.groups().div_ceil(self.span())
    }

    /// The groups of a span.
    pub(super) fn groups_of(&self, span: usize) -> Range<usize> {
        span * self.span()..((span + 1) * self.span()).min(self.groups())
    }

    /// The number of times at which a tracked forward pass saves the states of a sequence: before
    /// each chunk but the first.
    pub(super) fn saves(&self) -> usize {
        self.len.div_ceil(CHUNK).saturating_sub(1)
    }

    /// The numbers of the states of one sequence: (panels, states, groups, lanes), see [`at`].
    pub(super) fn state_len(&self) -> usize {
        self.groups() * self.filled() * LANES
    }

    /// The number of states of a channel, filled up to whole blocks.
    pub(super) fn filled(&self) -> usize {
        self.states.next_multiple_of(BLOCK)
    }

    /// Packs (d, n) as (groups, n, lanes), times log2(e), with zeros for lanes beyond the channels and
    /// in blocks beyond n.
    pub(super) fn pack<F: Float>(&self, a: &[F]) -> Vec<Vector<F>> {
        let mut packed = vec![Vector(splat(F::zero())); self.groups() * self.filled()];
        let log2_e = F::of(std::f64::consts::LOG2_E);
        for (channel, a) in a.chunks_exact(self.states).enumerate() {
            let group = &mut packed[channel / LANES * self.filled()..];
            for (packed, &a) in group.iter_mut().zip(a) {
                packed.0[channel % LANES] = a * log2_e;
            }
        }
        packed
    }
}

/// Loads a block of vectors from `at` on.
#[inline(always)]
pub(super) fn take<F: Float>(x: &[Vector<F>], at: usize) -> LaneBlock<F> {
    let mut taken = [splat(F::zero()); BLOCK];
    for (taken, x) in taken.iter_mut().zip(&x[at..][..BLOCK]) {
        *taken = x.0;
    }
    taken
}

/// Stores a block of vectors from `at` on.
#[inline(always)]
pub(super) fn put<F: Float>(from: &LaneBlock<F>, x: &mut [Vector<F>], at: usize) {
    for (x, from) in x[at..][..BLOCK].iter_mut().zip(from) {
        x.0 = *from;
    }
}
