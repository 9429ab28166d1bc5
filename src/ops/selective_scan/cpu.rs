//! The forward pass, one task per sequence and span of channels.

use super::kernel::{walk, Driven, ReadOut, Vector, BLOCK, CHUNK};
use super::layout::{blank, columns, gather, of_group, put, take, Chunk, Sequence, Steps};
use super::SelectiveScan;
use crate::float::Float;
use crate::lanes::{splat, store, LANES};
use crate::parallel::InParallel;
use crate::zeros::zeros;
use dsf_simd::simd;
use std::ops::Range;

/// Buffers that one task of the forward pass reuses.
struct Scratch<F> {
    steps: Vec<Steps<F>>,
    b: [F; CHUNK * BLOCK],
    c: [F; CHUNK * BLOCK],
    /// The states: (groups, n).
    h: Vec<Vector<F>>,
}

impl<F: Float> Scratch<F> {
    fn new(scan: &SelectiveScan) -> Self {
        let groups = scan.panel();
        Self {
            steps: vec![Steps::blank(); groups],
            b: [blank().0[0]; CHUNK * BLOCK],
            c: [blank().0[0]; CHUNK * BLOCK],
            h: vec![blank(); groups * scan.states],
        }
    }
}

pub(super) fn forward<F: Float>(scan: &SelectiveScan, ins: &[&[F]]) -> Vec<F> {
    let a = scan.pack(ins[2]);
    let mut y = zeros(scan.batch * scan.rows * scan.channels);
    columns(&mut y, (scan.rows, scan.channels), scan.span() * LANES)
        .into_iter()
        .enumerate()
        .in_parallel_with(
            || Scratch::new(scan),
            |scratch, (i, mut y)| {
                let seq = Sequence::of(scan, ins, &a, i / scan.spans());
                forward_span(
                    scan,
                    &seq,
                    scan.groups_of(i % scan.spans()),
                    scratch,
                    &mut y,
                );
            },
        );
    y
}

#[simd]
fn forward_span<F: Float>(
    scan: &SelectiveScan,
    seq: &Sequence<F>,
    span: Range<usize>,
    scratch: &mut Scratch<F>,
    y: &mut [&mut [F]],
) {
    for first in span.clone().step_by(scan.panel()) {
        let groups = first..(first + scan.panel()).min(span.end);
        scratch.h.fill(Vector(splat(F::zero())));
        for index in 0..seq.chunks() {
            let chunk = seq.chunk(index);
            for (group, steps) in groups.clone().zip(&mut scratch.steps) {
                steps.load(scan, seq, group, chunk.steps.clone());
                steps.y.fill(Vector(splat(F::zero())));
            }
            let whole = scan.states / BLOCK * BLOCK;
            for k in (0..whole).step_by(BLOCK) {
                forward_block::<F, BLOCK>(scan, seq, &chunk, (groups.clone(), k), scratch);
            }
            for k in whole..scan.states {
                forward_block::<F, 1>(scan, seq, &chunk, (groups.clone(), k), scratch);
            }
            for (group, steps) in groups.clone().zip(&scratch.steps) {
                for (row, j) in chunk.rows() {
                    store(&steps.y[j].0, of_group(y[row], group - span.start));
                }
            }
        }
    }
}

/// Runs `K` states from `k` on of each group through one chunk.
#[inline(always)]
fn forward_block<F: Float, const K: usize>(
    scan: &SelectiveScan,
    seq: &Sequence<F>,
    chunk: &Chunk,
    (groups, k): (Range<usize>, usize),
    scratch: &mut Scratch<F>,
) {
    let (n, len) = (scan.states, chunk.steps.len());
    gather::<F, K>(seq.b, (n, k), chunk.steps.clone().zip(0..), &mut scratch.b);
    gather::<F, K>(seq.c, (n, k), chunk.rows(), &mut scratch.c);
    let (reads, c) = (chunk.reads(), scratch.c.as_chunks::<K>().0);
    for (g, (group, steps)) in groups.zip(&mut scratch.steps).enumerate() {
        let by = Driven {
            a: take(seq.a, group * n + k),
            delta: &steps.delta[..len],
            drive: &steps.drive[..len],
            b: &scratch.b.as_chunks::<K>().0[..len],
        };
        let read_out = ReadOut {
            read: &reads[..len],
            c: &c[..len],
            y: &mut steps.y[..len],
        };
        let h = walk(&by, take(&scratch.h, g * n + k), read_out);
        put(&h, &mut scratch.h, g * n + k);
    }
}
