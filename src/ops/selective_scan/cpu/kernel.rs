//! The innermost loops: a block of states of one group of channels through one chunk of time. States,
//! carried gradients and the gradient of `a` stay in registers along time.

use super::steps::{each_of, LaneBlock, Rates, Stepping, BLOCK};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, Lanes};

/// Steps per chunk.
pub(super) const CHUNK: usize = 64;

/// One number for each channel of a group, aligned to cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Vector<F>(pub(super) Lanes<F>);

/// One vector per step of a chunk.
pub(super) type Column<F> = [Vector<F>; CHUNK];

/// One vector per step of a chunk and state of a block.
pub(super) type Sheet<F> = [[Vector<F>; BLOCK]; CHUNK];

/// One number per step of a chunk and state of a block.
pub(super) type Numbers<F> = [[F; BLOCK]; CHUNK];

/// The inputs of the recurrence of a block of states of a group: the rates of each state, and δ, b and
/// [`Stepping::drive`] at each step.
pub(super) struct ScanInputs<'a, F> {
    pub(super) rates: Rates<F>,
    pub(super) delta: &'a [Vector<F>],
    pub(super) drive: &'a [Vector<F>],
    pub(super) b: &'a [[F; BLOCK]],
}

/// A visitor of the steps of [`walk`]. A trait, since closures cannot be forced to be inlined.
pub(super) trait Visit<F> {
    /// Called for step `j` with the states before it, the decays, and the states after it.
    fn visit(&mut self, j: usize, before: &LaneBlock<F>, decay: &LaneBlock<F>, h: &LaneBlock<F>);
}

/// Runs the recurrence over the steps from `h` and returns the last state.
#[inline(always)]
pub(super) fn walk<R: Stepping, F: Float>(
    by: &ScanInputs<F>,
    mut h: LaneBlock<F>,
    mut visitor: impl Visit<F>,
) -> LaneBlock<F> {
    let steps = by.delta.iter().zip(by.drive).zip(by.b);
    for (j, ((Vector(delta), Vector(drive)), b)) in steps.enumerate() {
        let before = h;
        let mut decay = [splat(F::zero()); BLOCK];
        for k in 0..BLOCK {
            let [by_decay, scale] = each_of(|i| R::discretise(delta[i], by.rates.at(k, i)));
            decay[k] = by_decay;
            h[k] = match R::SCALES_BY_STATE {
                true => each(|i| decay[k][i].fma(before[k][i], drive[i] * scale[i] * b[k])),
                false => each(|i| decay[k][i].fma(before[k][i], drive[i] * b[k])),
            };
        }
        visitor.visit(j, &before, &decay, &h);
    }
    h
}

/// Adds the read-out y_t += Σ_k h_t\[k\] c_t\[k\] at the steps that have a row.
pub(super) struct ReadOut<'a, F> {
    pub(super) read: &'a [bool],
    pub(super) c: &'a [[F; BLOCK]],
    pub(super) y: &'a mut [Vector<F>],
}

impl<F: Float> Visit<F> for ReadOut<'_, F> {
    #[inline(always)]
    fn visit(&mut self, j: usize, _: &LaneBlock<F>, _: &LaneBlock<F>, h: &LaneBlock<F>) {
        if self.read[j] {
            let mut sum: Lanes<F> = splat(F::zero());
            for (h, &c) in h.iter().zip(&self.c[j]) {
                sum = each(|i| h[i].fma(c, sum[i]));
            }
            let y = &mut self.y[j].0;
            *y = each(|i| y[i] + sum[i]);
        }
    }
}

/// The values of a chunk and block that the forward pass records for the backward pass.
pub(super) struct Tape<F> {
    pub(super) decay: Sheet<F>,
    /// The states before each step.
    pub(super) before: Sheet<F>,
}

impl<F: Float> Visit<F> for &mut Tape<F> {
    #[inline(always)]
    fn visit(&mut self, j: usize, before: &LaneBlock<F>, decay: &LaneBlock<F>, _: &LaneBlock<F>) {
        for k in 0..BLOCK {
            self.before[j][k].0 = before[k];
            self.decay[j][k].0 = decay[k];
        }
    }
}

/// The inputs of the backward pass at each step, besides [`ScanInputs`].
pub(super) struct Read<'a, F> {
    /// True for steps with a row; at other steps `c` and `gy` are undefined.
    pub(super) read: &'a [bool],
    pub(super) c: &'a [[F; BLOCK]],
    pub(super) gy: &'a [Vector<F>],
}

/// The gradients that the backward pass accumulates.
pub(super) struct StateSums<'a, F> {
    /// At each step, the sums over states from which [`Stepping::add_to_u`] and [`Stepping::of_delta`] make gradients.
    pub(super) along_b: &'a mut [Vector<F>],
    pub(super) along_a: &'a mut [Vector<F>],
    /// The gradients of b and c at each step and state, per lane, summed over groups.
    pub(super) b: &'a mut Sheet<F>,
    pub(super) c: &'a mut Sheet<F>,
}

/// The values that the backward pass carries from one chunk to the previous one.
#[derive(Clone, Copy)]
pub(super) struct Carried<F> {
    /// ā_{t+1} dL/dh_{t+1}.
    pub(super) carry: LaneBlock<F>,
    /// The gradient of `a` so far.
    pub(super) ga: LaneBlock<F>,
}

/// The backward pass over the steps on `tape`; `after` is the state after the last step.
#[inline(always)]
pub(super) fn walk_back<R: Stepping, F: Float>(
    by: &ScanInputs<F>,
    read: &Read<F>,
    tape: &Tape<F>,
    mut after: LaneBlock<F>,
    carried: &mut Carried<F>,
    sums: &mut StateSums<F>,
) {
    let Carried { mut carry, mut ga } = *carried;
    let len = by.delta.len();
    let tapes = (&tape.decay[..len], &tape.before[..len]);
    let (gb, gc) = (&mut sums.b[..len], &mut sums.c[..len]);
    let steps = (by.delta.iter().zip(by.drive).zip(by.b))
        .zip(read.read.iter().zip(read.c).zip(read.gy))
        .zip(tapes.0.iter().zip(tapes.1))
        .zip(sums.along_b.iter_mut().zip(sums.along_a.iter_mut()))
        .zip(gb.iter_mut().zip(gc));
    for ((((drive, read), tape), along), sums) in steps.rev() {
        let ((Vector(delta), Vector(drive)), b) = drive;
        let ((&read, c), Vector(gy)) = read;
        let (decay, before): (&[Vector<F>; BLOCK], &[Vector<F>; BLOCK]) = tape;
        let (gb, gc): (&mut [Vector<F>; BLOCK], &mut [Vector<F>; BLOCK]) = sums;
        let mut gh = carry;
        if read {
            for k in 0..BLOCK {
                gh[k] = each(|i| gy[i].fma(c[k], gh[k][i]));
                gc[k].0 = each(|i| gy[i].fma(after[k][i], gc[k].0[i]));
            }
        }
        let (mut along_b, mut along_a): (Lanes<F>, Lanes<F>) = (splat(F::zero()), splat(F::zero()));
        for k in 0..BLOCK {
            let (decay, before) = (&decay[k].0, &before[k].0);
            carry[k] = each(|i| gh[k][i] * decay[i]);
            if R::SCALES_BY_STATE {
                let [scale, slope, bend] = each_of(|i| R::slopes(delta[i], by.rates.at(k, i), decay[i]));
                let scaled: Lanes<F> = each(|i| gh[k][i] * scale[i]);
                gb[k].0 = each(|i| scaled[i].fma(drive[i], gb[k].0[i]));
                along_b = each(|i| scaled[i].fma(b[k], along_b[i]));
                // dL/dā and dL/db̄ have the factor dā/d(δ a) = db̄/dδ in common.
                let slope: Lanes<F> = each(|i| gh[k][i] * slope[i]);
                let written: Lanes<F> = each(|i| drive[i] * b[k]);
                along_a = each(|i| slope[i].fma(before[i].fma(by.rates.a[k][i], written[i]), along_a[i]));
                ga[k] = each(|i| (slope[i] * before[i]).fma(delta[i], ga[k][i]));
                ga[k] = each(|i| (gh[k][i] * written[i]).fma(bend[i], ga[k][i]));
            } else {
                gb[k].0 = each(|i| gh[k][i].fma(drive[i], gb[k].0[i]));
                along_b = each(|i| gh[k][i].fma(b[k], along_b[i]));
                let exponent: Lanes<F> = each(|i| carry[k][i] * before[i]); // dL/d(δ a)
                along_a = each(|i| exponent[i].fma(by.rates.log2[k][i], along_a[i]));
                ga[k] = each(|i| exponent[i].fma(delta[i], ga[k][i]));
            }
            after[k] = *before;
        }
        along.0 .0 = each(|i| along.0 .0[i] + along_b[i]);
        along.1 .0 = each(|i| along.1 .0[i] + along_a[i]);
    }
    *carried = Carried { carry, ga };
}
