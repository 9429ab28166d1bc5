//! The division of a recurrence over (B, L, N) into tasks, one for each sequence and strip of
//! channels, so that a single long sequence occupies every thread. Channels of a diagonal
//! recurrence are independent, so the division changes no bit.

use crate::runtime::float::Float;
use crate::runtime::lanes::{splat, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use std::array;

/// Channels per strip for a single sequence. Each further sequence widens the strips, since short
/// rows are slow.
const NARROW: usize = 64;

/// The maximum of channels per strip: the buffers of a task must fit into the L2 cache.
const WIDE: usize = 256;

/// The sizes of a recurrence, and the channels of a task.
#[derive(Clone, Copy)]
pub(crate) struct Strips {
    batch: usize,
    width: usize,
    strip: usize,
}

/// The channels of one sequence that one task computes.
#[derive(Clone, Copy)]
pub(crate) struct Strip {
    pub(crate) sequence: usize,
    first: usize,
    pub(crate) channels: usize,
    width: usize,
}

/// The output rows of a strip.
pub(crate) type StripRows<'a, F> = Vec<&'a mut [F]>;

impl Strips {
    pub(crate) fn new(batch: usize, width: usize) -> Self {
        Self { batch, width, strip: (NARROW * batch).min(WIDE).min(width) }
    }

    /// Calls `f` for every strip with its rows of each of `outs`, arrays (B, rows, N) with possibly
    /// different numbers of rows.
    pub(crate) fn run<F: Float, const OUTS: usize>(
        &self,
        outs: [&mut [F]; OUTS],
        f: impl Fn(Strip, [StripRows<F>; OUTS]) + Sync,
    ) {
        let mut outs = outs.map(|out| {
            let sequence = out.len() / self.batch;
            out.chunks_exact_mut(sequence)
        });
        let sequences: Vec<[&mut [F]; OUTS]> =
            (0..self.batch).map(|_| array::from_fn(|k| outs[k].next().expect("a part for every sequence"))).collect();
        let sequences = sequences.into_iter().enumerate();
        sequences.in_parallel(|(sequence, outs)| {
            let tasks = self.cut(outs).into_iter().enumerate();
            tasks.in_parallel(|(index, rows)| f(self.strip(sequence, index), rows));
        });
    }

    fn strip(&self, sequence: usize, index: usize) -> Strip {
        let first = index * self.strip;
        Strip { sequence, first, channels: self.strip.min(self.width - first), width: self.width }
    }

    /// The output rows of one sequence, by strip.
    fn cut<'a, F, const OUTS: usize>(&self, outs: [&'a mut [F]; OUTS]) -> Vec<[StripRows<'a, F>; OUTS]> {
        let rows = outs.each_ref().map(|out| out.len() / self.width);
        let strips = self.width.div_ceil(self.strip);
        let empty = |_| array::from_fn(|k| Vec::with_capacity(rows[k]));
        let mut tasks: Vec<[StripRows<F>; OUTS]> = (0..strips).map(empty).collect();
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

    /// The strip's slice of an array with one number per channel.
    pub(crate) fn of<'a, F>(&self, x: &'a [F]) -> &'a [F] {
        &x[self.first..][..self.channels]
    }

    /// Zeros in groups of lanes: `rows` rows with one number for each channel of the strip.
    pub(crate) fn lanes<F: Float>(&self, rows: usize) -> Vec<Lanes<F>> {
        vec![splat(F::zero()); rows * self.channels.div_ceil(LANES)]
    }
}
