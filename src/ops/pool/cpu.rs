//! Passes on the CPU.

use super::{Pool, Pooled};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::add_chunk;
use crate::runtime::strips::{Strip, Strips};
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

impl CpuOp for Pooled {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = zeros(self.batch * self.width);
        self.strips().run([&mut y], |strip, [mut y]| self.strip(strip, ins[0], y[0]));
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, gy) = (call.ins[0], call.only().grad);
        let mut gx = zeros(x.len());
        self.strips().run([&mut gx], |strip, [mut gx]| {
            self.strip_back(strip, x, gy, &mut gx);
        });
        vec![gx]
    }
}

impl Pooled {
    fn strips(&self) -> Strips {
        Strips::new(self.batch, self.width)
    }

    fn strip<F: Float>(&self, strip: Strip, x: &[F], y: &mut [F]) {
        if self.pool != Pool::Mean {
            for (channel, step) in self.chosen(strip, x).into_iter().enumerate() {
                y[channel] = strip.row(x, self.len, step)[channel];
            }
            return;
        }
        let steps = self.known[strip.sequence];
        for step in 0..steps {
            add_chunk(y, strip.row(x, self.len, step));
        }
        let count = F::of(steps as f64);
        y.iter_mut().for_each(|y| *y = *y / count);
    }

    /// Writes the gradient of x, which is zero on entry, given that of the result.
    fn strip_back<F: Float>(&self, strip: Strip, x: &[F], gy: &[F], gx: &mut [&mut [F]]) {
        let gy = strip.row(gy, 1, 0);
        if self.pool != Pool::Mean {
            for (channel, step) in self.chosen(strip, x).into_iter().enumerate() {
                gx[step][channel] = gy[channel];
            }
            return;
        }
        let steps = self.known[strip.sequence];
        let count = F::of(steps as f64);
        let share: Vec<F> = gy.iter().map(|&gy| gy / count).collect();
        for gx in &mut gx[..steps] {
            gx.copy_from_slice(&share);
        }
    }

    /// The step whose value is the result of each channel of a strip, for the last value and the
    /// maximum.
    fn chosen<F: Float>(&self, strip: Strip, x: &[F]) -> Vec<usize> {
        let steps = self.known[strip.sequence];
        if self.pool == Pool::Last {
            return vec![steps - 1; strip.channels];
        }
        let mut best = strip.row(x, self.len, 0).to_vec();
        let mut at = vec![0; strip.channels];
        for step in 1..steps {
            take_larger(strip.row(x, self.len, step), step, &mut best, &mut at);
        }
        at
    }
}

/// Updates the running maxima `best` and their steps `at` with the values of one step.
#[simd]
fn take_larger<F: Float>(x: &[F], step: usize, best: &mut [F], at: &mut [usize]) {
    for ((&x, best), at) in x.iter().zip(best).zip(at) {
        if x > *best || x.is_nan() && !best.is_nan() {
            (*best, *at) = (x, step);
        }
    }
}
