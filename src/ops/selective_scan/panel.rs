//! The backward pass of one panel of channel groups and one tile of states, through all chunks.

use super::kernel::{
    blocks, walk, walk_back, Carried, Column, Driven, Read, Sheet, Sums, Tape, Vector, BLOCK, CHUNK,
};
use super::layout::{at, blank, gather, of_group, put, take, Chunk, Sequence, Steps};
use super::SelectiveScan;
use crate::float::Float;
use crate::lanes::{each, load, splat, store, sum, Lanes, LANES};
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
pub(super) struct Grads<'a, 'b, F> {
    pub(super) span: &'a mut SpanGrads<'b, F>,
    pub(super) a: &'a mut [Vector<F>],
}

/// Buffers that one task reuses for all its panels.
pub(super) struct Scratch<F> {
    steps: Vec<Steps<F>>,
    /// What the states of a panel and tile carry, see [`at`].
    carry: Vec<Vector<F>>,
    tape: Tape<F>,
    gb: Sheet<F>,
    gc: Sheet<F>,
    b: [F; CHUNK * BLOCK],
    c: [F; CHUNK * BLOCK],
}

impl<F: Float> Scratch<F> {
    pub(super) fn new(scan: &SelectiveScan) -> Self {
        let groups = scan.panel();
        let tile = groups * scan.states.min(TILE);
        let sheet = [blank(); CHUNK * BLOCK];
        Self {
            steps: vec![Steps::blank(); groups],
            carry: vec![blank(); tile],
            tape: Tape {
                decay: sheet,
                before: sheet,
            },
            gb: sheet,
            gc: sheet,
            b: [blank().0[0]; CHUNK * BLOCK],
            c: [blank().0[0]; CHUNK * BLOCK],
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
    pub(super) fn backward(&self, grads: &mut Grads<F>, scratch: &mut Scratch<F>) {
        scratch.carry.fill(Vector(splat(F::zero())));
        for chunk in (0..self.seq.chunks()).rev() {
            self.chunk_back(chunk, grads, scratch);
        }
    }

    /// The states from `k` on of the `g`-th group before chunk `index`.
    #[inline(always)]
    fn before<const K: usize>(&self, index: usize, g: usize, k: usize) -> [Lanes<F>; K] {
        let mut before = [splat(F::zero()); K];
        if index > 0 {
            let state = &self.saved[(index - 1) * self.scan.state_len()..];
            let panel = &state[self.groups.start * self.scan.states * LANES..];
            let at = at::<K>(self.groups.len(), g, k) * LANES;
            for (before, saved) in before.iter_mut().zip(panel[at..].as_chunks().0) {
                *before = *saved;
            }
        }
        before
    }

    /// The end of the whole blocks of states; the remaining states are computed one by one.
    fn whole(&self) -> usize {
        self.states.start + self.states.len() / BLOCK * BLOCK
    }

    #[inline(always)]
    fn load(&self, chunk: &Chunk, scratch: &mut Scratch<F>) {
        for (group, steps) in self.groups.clone().zip(&mut scratch.steps) {
            steps.load(self.scan, self.seq, group, chunk.steps.clone());
        }
    }

    #[inline(always)]
    fn gather_b<'b, const K: usize>(
        &self,
        chunk: &Chunk,
        k: usize,
        b: &'b mut [F; CHUNK * BLOCK],
    ) -> &'b [[F; K]] {
        let shape = (self.scan.states, k);
        gather::<F, K>(self.seq.b, shape, chunk.steps.clone().zip(0..), b);
        &b.as_chunks().0[..chunk.steps.len()]
    }

    #[inline(always)]
    fn driven<'b, const K: usize>(
        &self,
        (group, k): (usize, usize),
        delta: &'b Column<F>,
        drive: &'b Column<F>,
        b: &'b [[F; K]],
    ) -> Driven<'b, F, K> {
        Driven {
            a: take(self.seq.a, group * self.scan.states + k),
            delta: &delta[..b.len()],
            drive: &drive[..b.len()],
            b,
        }
    }

    /// Runs back through one chunk and adds to all gradients.
    #[inline(always)]
    fn chunk_back(&self, index: usize, grads: &mut Grads<F>, scratch: &mut Scratch<F>) {
        let chunk = self.seq.chunk(index);
        self.load(&chunk, scratch);
        for (group, steps) in self.groups.clone().zip(&mut scratch.steps) {
            for (row, j) in chunk.rows() {
                let gy = &self.gy[row * self.scan.channels..(row + 1) * self.scan.channels];
                steps.y[j] = Vector(load(&gy[group * LANES..]));
            }
            steps.along_a.fill(Vector(splat(F::zero())));
            steps.along_b.fill(Vector(splat(F::zero())));
        }
        let whole = self.whole();
        for k in (self.states.start..whole).step_by(BLOCK) {
            self.block_back::<BLOCK>(index, &chunk, k, grads, scratch);
        }
        for k in whole..self.states.end {
            self.block_back::<1>(index, &chunk, k, grads, scratch);
        }
        self.add_along(&chunk, grads, &scratch.steps);
    }

    /// Runs `K` states from `k` on of all groups forward through the chunk and back.
    #[inline(always)]
    fn block_back<const K: usize>(
        &self,
        index: usize,
        chunk: &Chunk,
        k: usize,
        grads: &mut Grads<F>,
        scratch: &mut Scratch<F>,
    ) {
        let (n, len, reads) = (self.scan.states, chunk.steps.len(), chunk.reads());
        let b = self.gather_b::<K>(chunk, k, &mut scratch.b);
        gather::<F, K>(self.seq.c, (n, k), chunk.rows(), &mut scratch.c);
        scratch.gb[..len * K].fill(Vector(splat(F::zero())));
        scratch.gc[..len * K].fill(Vector(splat(F::zero())));
        for (g, group) in self.groups.clone().enumerate() {
            let at = at::<K>(self.groups.len(), g, k - self.states.start);
            let of_a = (group - self.first) * n + k;
            let steps = &mut scratch.steps[g];
            let by = self.driven((group, k), &steps.delta, &steps.drive, b);
            let tape = &mut scratch.tape;
            let last = walk(&by, self.before(index, g, k), &mut *tape);
            let read = Read {
                read: &reads[..len],
                c: &scratch.c.as_chunks().0[..len],
                gy: &steps.y[..len],
            };
            let mut sums = Sums {
                along_b: &mut steps.along_b[..len],
                along_a: &mut steps.along_a[..len],
                b: &mut scratch.gb,
                c: &mut scratch.gc,
            };
            let mut carried = Carried {
                carry: take(&scratch.carry, at),
                ga: take(grads.a, of_a),
            };
            walk_back(&by, &read, tape, last, &mut carried, &mut sums);
            put(&carried.carry, &mut scratch.carry, at);
            put(&carried.ga, grads.a, of_a);
        }
        add_sums::<F, K>(
            &scratch.gb,
            chunk.steps.clone().zip(0..),
            grads.span.b,
            (n, k),
        );
        add_sums::<F, K>(&scratch.gc, chunk.rows(), grads.span.c, (n, k));
    }

    /// Adds to the gradients of u and δ from the sums over states.
    #[inline(always)]
    fn add_along(&self, chunk: &Chunk, grads: &mut Grads<F>, steps: &[Steps<F>]) {
        let ln_2 = F::of(std::f64::consts::LN_2); // undoes the log2(e) in `a`
        for (group, steps) in self.groups.clone().zip(steps) {
            for (j, t) in chunk.steps.clone().enumerate() {
                let (Vector(u), Vector(delta)) = (&steps.u[j], &steps.delta[j]);
                let (Vector(along_a), Vector(along_b)) = (&steps.along_a[j], &steps.along_b[j]);
                let to = of_group(grads.span.u[t], group - self.first);
                let so_far: Lanes<F> = load(to);
                let sum: Lanes<F> = each(|i| delta[i].fma(along_b[i], so_far[i]));
                store(&sum, to);
                let to = of_group(grads.span.delta[t], group - self.first);
                let so_far: Lanes<F> = load(to);
                let both = |i: usize| along_a[i].fma(ln_2, u[i] * along_b[i]);
                let sum: Lanes<F> = each(|i| so_far[i] + both(i));
                store(&sum, to);
            }
        }
    }
}

/// Adds the lane sums of a sheet to the rows of `to`, `K` numbers from `k` on each.
#[inline(always)]
fn add_sums<F: Float, const K: usize>(
    sheet: &Sheet<F>,
    rows: impl Iterator<Item = (usize, usize)>,
    to: &mut [F],
    (width, k): (usize, usize),
) {
    let sheet = blocks::<F, K>(sheet);
    for (row, j) in rows {
        for (to, lanes) in to[row * width + k..][..K].iter_mut().zip(&sheet[j]) {
            // Opaque: otherwise the compiler merges several sums into one long shuffle, at half the
            // speed.
            *to += sum(black_box(&lanes.0));
        }
    }
}
