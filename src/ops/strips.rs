//! How a recurrence over (B, L, N) is shared out: a task for every sequence and strip of channels,
//! so that one long sequence occupies every thread. Channels do not meet in a diagonal
//! recurrence, so the cut changes no bit.

use super::float::Float;
use super::lanes::{splat, Lanes, LANES};
use rayon::prelude::*;
use std::array;

/// Channels of a strip of a single sequence. Each further one widens the strips, for short rows
/// cost time.
const NARROW: usize = 64;

/// The most channels of a strip: what a task keeps for them must fit into the second-level cache.
const WIDE: usize = 256;

/// Sequences of `width` channels, and the channels of a task.
#[derive(Clone, Copy)]
pub(crate) struct Strips {
    batch: usize,
    width: usize,
    strip: usize,
}

/// The part of one task: some channels of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct Strip {
    pub(crate) sequence: usize,
    first: usize,
    pub(crate) channels: usize,
    width: usize,
}

/// Rows of a strip, to be written.
pub(crate) type Rows<'a, F> = Vec<&'a mut [F]>;

impl Strips {
    pub(crate) fn new(batch: usize, width: usize) -> Self {
        Self {
            batch,
            width,
            strip: (NARROW * batch).min(WIDE).min(width),
        }
    }

    /// Calls `f` for every strip, with its rows of each of `outs`: arrays (B, rows, N) whose
    /// numbers of rows may differ.
    pub(crate) fn run<F: Float, const OUTS: usize>(
        &self,
        outs: [&mut [F]; OUTS],
        f: impl Fn(Strip, [Rows<F>; OUTS]) + Sync,
    ) {
        let mut outs = outs.map(|out| {
            let sequence = out.len() / self.batch;
            out.chunks_exact_mut(sequence)
        });
        let sequences: Vec<[&mut [F]; OUTS]> = (0..self.batch)
            .map(|_| array::from_fn(|k| outs[k].next().expect("a part for every sequence")))
            .collect();
        let sequences = sequences.into_par_iter().enumerate();
        sequences.for_each(|(sequence, outs)| {
            let tasks = self.cut(outs).into_par_iter().enumerate();
            tasks.for_each(|(index, rows)| f(self.strip(sequence, index), rows));
        });
    }

    fn strip(&self, sequence: usize, index: usize) -> Strip {
        let first = index * self.strip;
        Strip {
            sequence,
            first,
            channels: self.strip.min(self.width - first),
            width: self.width,
        }
    }

    /// The rows of one sequence, strip by strip.
    fn cut<'a, F, const OUTS: usize>(&self, outs: [&'a mut [F]; OUTS]) -> Vec<[Rows<'a, F>; OUTS]> {
        let rows = outs.each_ref().map(|out| out.len() / self.width);
        let strips = self.width.div_ceil(self.strip);
        let empty = |_| array::from_fn(|k| Vec::with_capacity(rows[k]));
        let mut tasks: Vec<[Rows<F>; OUTS]> = (0..strips).map(empty).collect();
        for (k, out) in outs.into_iter().enumerate() {
            for row in out.chunks_exact_mut(self.width) {
                for (task, piece) in tasks.iter_mut().zip(row.chunks_mut(self.strip)) {
                    task[k].push(piece);
                }
            }
        }
        tasks
    }
}

impl Strip {
    /// Row `row` of the strip in an array of (B, `rows`, N).
    #[inline(always)]
    pub(crate) fn row<'a, F>(&self, x: &'a [F], rows: usize, row: usize) -> &'a [F] {
        let start = (self.sequence * rows + row) * self.width + self.first;
        &x[start..][..self.channels]
    }

    /// The strip's part of one number per channel.
    pub(crate) fn of<'a, F>(&self, x: &'a [F]) -> &'a [F] {
        &x[self.first..][..self.channels]
    }

    /// One number for every channel, in lanes.
    pub(crate) fn lanes<F: Float>(&self, rows: usize) -> Vec<Lanes<F>> {
        vec![splat(F::zero()); rows * self.channels.div_ceil(LANES)]
    }
}
