//! Division into tasks, one for each sequence, head and tile of columns (features of the values), and of the outputs
//! among them. Columns of a state are independent; sums over all columns are first taken per tile.

use super::{StateSizes, DECAYS, QUERIES, VALUES};
use crate::runtime::float::Float;
use crate::runtime::lanes::LANES;
use crate::runtime::parallel::InParallel;
use crate::runtime::strips::StripRows;
use std::array;
use std::ops::Range;

/// Number of sequences and heads below which columns are divided into tiles, so that several threads have work.
const FEW: usize = 8;

/// Divisor of the columns of a tile: every tile prepares keys, decays and queries again.
const NARROW: usize = 2 * LANES;

/// One head of one sequence, and the columns of one tile.
pub(crate) struct Task<'a, F> {
    pub(crate) sizes: &'a StateSizes,
    ins: &'a [&'a [F]],
    pub(crate) sequence: usize,
    head: usize,
    pub(crate) columns: Range<usize>,
}

/// An output whose rows of `row` numbers are parts of `width` numbers, cut at every `tile` of
/// them: the next task writes the next piece of every row of a sequence.
pub(crate) struct RowCut<'a, F> {
    pub(crate) out: &'a mut [F],
    pub(crate) row: usize,
    pub(crate) width: usize,
    pub(crate) tile: usize,
}

impl<'a, F> RowCut<'a, F> {
    /// The rows of each task of a sequence.
    fn tasks(self) -> Vec<StripRows<'a, F>> {
        let rows = self.out.len() / self.row;
        let count = self.row / self.width * self.width.div_ceil(self.tile);
        let mut tasks: Vec<StripRows<F>> = (0..count).map(|_| Vec::with_capacity(rows)).collect();
        for row in self.out.chunks_exact_mut(self.row) {
            let parts = row.chunks_exact_mut(self.width);
            let pieces = parts.flat_map(|part| part.chunks_mut(self.tile));
            for (task, piece) in tasks.iter_mut().zip(pieces) {
                task.push(piece);
            }
        }
        tasks
    }
}

impl StateSizes {
    /// Columns per tile: all, if sequences and heads are many.
    pub(crate) fn tile(&self) -> usize {
        let wanted = FEW.div_ceil(self.batch * self.heads);
        self.values.div_ceil(wanted).next_multiple_of(NARROW)
    }

    /// Tiles of a head.
    pub(crate) fn tiles(&self) -> usize {
        self.values.div_ceil(self.tile())
    }

    /// Calls `work` for every task with its rows of each output.
    pub(crate) fn run<F: Float, const OUTS: usize>(
        &self,
        ins: &[&[F]],
        outs: [RowCut<F>; OUTS],
        work: impl Fn(&Task<F>, [StripRows<F>; OUTS]) + Sync,
    ) {
        let mut outs = outs.map(|cut| {
            let sequence = cut.out.len() / self.batch;
            let sizes = [cut.row, cut.width, cut.tile];
            (cut.out.chunks_exact_mut(sequence), sizes)
        });
        let next = |_| {
            array::from_fn(|k| {
                let (sequences, [row, width, tile]) = &mut outs[k];
                RowCut {
                    out: sequences.next().expect("a part for every sequence"),
                    row: *row,
                    width: *width,
                    tile: *tile,
                }
            })
        };
        let sequences: Vec<[RowCut<F>; OUTS]> = (0..self.batch).map(next).collect();
        let sequences = sequences.into_iter().enumerate();
        sequences.in_parallel(|(sequence, outs)| {
            let mut parts = outs.map(|cut| cut.tasks().into_iter());
            let next = |_| array::from_fn(|k| parts[k].next().expect("rows for every task"));
            let tasks: Vec<[StripRows<F>; OUTS]> = (0..self.heads * self.tiles()).map(next).collect();
            let tasks = tasks.into_iter().enumerate();
            tasks.in_parallel(|(index, rows)| work(&self.task(ins, sequence, index), rows));
        });
    }

    fn task<'a, F>(&'a self, ins: &'a [&'a [F]], sequence: usize, index: usize) -> Task<'a, F> {
        let first = index % self.tiles() * self.tile();
        Task {
            sizes: self,
            ins,
            sequence,
            head: index / self.tiles(),
            columns: first..(first + self.tile()).min(self.values),
        }
    }
}

impl<'a, F> Task<'a, F> {
    /// The head's `width` numbers of row `row` of an array (B, rows, s, width).
    #[inline(always)]
    fn part(&self, x: &'a [F], rows: usize, row: usize, width: usize) -> &'a [F] {
        let start = ((self.sequence * rows + row) * self.sizes.heads + self.head) * width;
        &x[start..][..width]
    }

    #[inline(always)]
    pub(crate) fn query(&self, row: usize) -> &'a [F] {
        let queries = self.ins[QUERIES];
        self.part(queries, self.sizes.times.rows, row, self.sizes.keys)
    }

    /// Step t of an input of the shape of k.
    #[inline(always)]
    pub(crate) fn features(&self, input: usize, t: usize) -> &'a [F] {
        self.part(self.ins[input], self.sizes.len, t, self.sizes.keys)
    }

    /// The tile's columns of the value.
    #[inline(always)]
    pub(crate) fn value(&self, t: usize) -> &'a [F] {
        let value = self.part(self.ins[VALUES], self.sizes.len, t, self.sizes.values);
        &value[self.columns.clone()]
    }

    /// The logarithms of the decays.
    #[inline(always)]
    pub(crate) fn decay(&self, t: usize) -> &'a [F] {
        self.part(self.ins[DECAYS], self.sizes.len, t, self.sizes.decays)
    }

    /// The tile's columns of row `row` of the gradient of the result.
    #[inline(always)]
    pub(crate) fn grad(&self, go: &'a [F], row: usize) -> &'a [F] {
        let grad = self.part(go, self.sizes.times.rows, row, self.sizes.values);
        &grad[self.columns.clone()]
    }
}
