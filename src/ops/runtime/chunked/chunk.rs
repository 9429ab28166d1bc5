//! A chunk of a sequence: its steps, its inputs, and the decays along it.

use super::{Chunked, Decay, Inputs, CHUNK};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, load, splat, Lanes, LANES};
use crate::runtime::matrix::{Matrix, PANEL};
use std::ops::Range;

/// The maximum of groups of lanes computed together: more would not fit in cache beside their
/// scores.
const GROUPS: usize = 5;

/// Steps of a leaf, within which decays are applied step by step.
pub(super) const LEAF: usize = LANES;

/// A boundary and the steps on both sides of it: the pairs (s, t) that meet at this boundary.
pub(super) struct BoundarySpan {
    pub(super) left: Range<usize>,
    pub(super) right: Range<usize>,
}

pub(super) struct Chunk<'a, F> {
    pub(super) op: &'a Chunked,
    /// The first step of the chunk.
    pub(super) start: usize,
    steps: usize,
    /// The times of its rows, as steps of the sequence.
    pub(super) times: &'a [usize],
    /// The index of its first row among those of all sequences.
    first_row: usize,
    /// True if a later chunk has rows.
    pub(super) read_later: bool,
    pub(super) b: &'a [F],
    pub(super) c: &'a [F],
    x: &'a [F],
    pub(super) decay: Option<Decay<'a, F>>,
}

impl<'a, F> Chunk<'a, F> {
    pub(super) fn new(op: &'a Chunked, ins: &Inputs<'a, F>, sequence: usize, start: usize) -> Self {
        let steps = CHUNK.min(op.len - start);
        let times = op.times.of(sequence);
        let row = |time: usize| times.partition_point(|&t| t < time);
        let rows = row(start)..row(start + steps);
        let first_row = sequence * op.times.rows + rows.start;
        let first_step = sequence * op.len + start;
        let part = |x: &'a [F], width: usize| &x[first_step * width..][..steps * width];
        Self {
            op,
            start,
            steps,
            times: &times[rows.clone()],
            first_row,
            read_later: rows.end < times.len(),
            b: part(ins.b, op.states),
            c: &ins.c[first_row * op.states..][..rows.len() * op.states],
            x: part(ins.x, op.channels),
            decay: ins.decay.as_ref().map(|decay| Decay { step: part(decay.step, op.channels), rate: decay.rate }),
        }
    }

    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    pub(super) fn rows(&self) -> usize {
        self.times.len()
    }

    /// The chunk's rows of an array with the shape of y.
    pub(super) fn of_rows<'b>(&self, y: &'b [F]) -> &'b [F] {
        &y[self.first_row * self.op.channels..][..self.rows() * self.op.channels]
    }

    /// The step of row `r`.
    #[inline(always)]
    pub(super) fn time(&self, r: usize) -> usize {
        self.times[r] - self.start
    }

    /// The rows whose times are among some steps.
    #[inline(always)]
    pub(super) fn rows_at(&self, steps: &Range<usize>) -> Range<usize> {
        let row = |step: usize| self.times.partition_point(|&t| t < self.start + step);
        row(steps.start)..row(steps.end)
    }

    /// The number of steps that the last row of the panel from `top` on attends to.
    #[inline(always)]
    pub(super) fn reach(&self, top: usize) -> usize {
        self.time((top + PANEL).min(self.rows()) - 1) + 1
    }

    /// The boundaries inside the chunk; every pair of steps of different leaves meets at exactly
    /// one of them.
    pub(super) fn spans(&self) -> impl Iterator<Item = BoundarySpan> {
        let steps = self.steps;
        let halves = (0..).map(|level| LEAF << level);
        halves.take_while(move |&half| half < steps).flat_map(move |half| {
            let span = move |middle: usize| BoundarySpan {
                left: middle - half..middle,
                right: middle..(middle + half).min(steps),
            };
            (half..steps).step_by(2 * half).map(span)
        })
    }

    /// The steps of each leaf.
    pub(super) fn leaves(&self) -> impl Iterator<Item = Range<usize>> {
        let steps = self.steps;
        (0..steps).step_by(LEAF).map(move |start| start..(start + LEAF).min(steps))
    }
}

impl Chunked {
    /// The number of channels computed together.
    pub(super) fn width(&self) -> usize {
        let groups = self.channels.div_ceil(LANES);
        groups.div_ceil(groups.div_ceil(GROUPS)) * LANES
    }

    /// The ranges of channels that are computed together.
    pub(super) fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let (width, channels) = (self.width(), self.channels);
        (0..channels).step_by(width).map(move |start| start..(start + width).min(channels))
    }
}

impl<F: Float> Chunk<'_, F> {
    /// Fills `value` with v, and `decay` with e^{step · rate}, for a range of channels.
    #[inline(always)]
    pub(super) fn drive(&self, part: &Range<usize>, value: &mut Matrix<F>, decay: &mut Matrix<F>) {
        for t in 0..self.steps {
            for g in 0..value.groups() {
                let from = (part.start + g * LANES).min(part.end);
                let row = t * self.op.channels;
                let x: Lanes<F> = load(&self.x[row + from..row + part.end]);
                (*value.at_mut(t, g), *decay.at_mut(t, g)) = match &self.decay {
                    None => (x, splat(F::one())),
                    Some(decay) => {
                        let step: Lanes<F> = load(&decay.step[row + from..row + part.end]);
                        let rate: Lanes<F> = load(&decay.rate[from..part.end]);
                        let decay = each(|i| (step[i] * rate[i]).exp());
                        (each(|i| step[i] * x[i]), decay)
                    }
                };
            }
        }
    }

    /// Sets (or adds to, if `ADD`) the rows of `to` at `steps`: the rows of `from`, times the
    /// product of the decays from the first of these steps to the row's own.
    #[inline(always)]
    pub(super) fn decay_rows<const ADD: bool>(
        &self,
        decay: &Matrix<F>,
        steps: &Range<usize>,
        from: &Matrix<F>,
        to: &mut Matrix<F>,
    ) {
        let rows = self.rows_at(steps);
        for g in 0..decay.groups() {
            let (mut product, mut next) = (splat(F::one()), steps.start);
            for r in rows.clone() {
                while next <= self.time(r) {
                    let now = decay.at(next, g);
                    product = each(|i| product[i] * now[i]);
                    next += 1;
                }
                put::<F, ADD>(&product, from.at(r, g), to.at_mut(r, g));
            }
        }
    }

    /// Sets (or adds to, if `ADD`) the `steps` of `to`: those of `from`, times the product of the
    /// decays of the steps that follow among them.
    #[inline(always)]
    pub(super) fn decay_steps<const ADD: bool>(
        &self,
        decay: &Matrix<F>,
        steps: &Range<usize>,
        from: &Matrix<F>,
        to: &mut Matrix<F>,
    ) {
        for g in 0..decay.groups() {
            let mut product = splat(F::one());
            for s in steps.clone().rev() {
                put::<F, ADD>(&product, from.at(s, g), to.at_mut(s, g));
                let now = decay.at(s, g);
                product = each(|i| product[i] * now[i]);
            }
        }
    }

    /// The product of the decays of all steps.
    #[inline(always)]
    pub(super) fn whole(&self, decay: &Matrix<F>, g: usize) -> Lanes<F> {
        let mut product = splat(F::one());
        for s in 0..self.steps {
            let now = decay.at(s, g);
            product = each(|i| product[i] * now[i]);
        }
        product
    }
}

#[inline(always)]
fn put<F: Float, const ADD: bool>(factor: &Lanes<F>, from: &Lanes<F>, to: &mut Lanes<F>) {
    *to = match ADD {
        true => each(|i| factor[i].fma(from[i], to[i])),
        false => each(|i| factor[i] * from[i]),
    };
}
