//! Passes on the CPU.

use super::Halves;
use crate::pointwise::Pointwise;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::map_chunks;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Rows per task.
pub(super) const ROWS: usize = 256;

impl<P: Pointwise> CpuOp for Halves<P> {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let (width, curved) = (self.width, self.curved);
        let chunks = [2 * width, width].map(|width| ROWS * width);
        vec![map_chunks(ins[0], chunks, |x, y| {
            products::<P, F>(x, width, curved, y);
        })]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let mut gx = zeros(call.ins[0].len());
        let chunk = ROWS * self.width;
        gx.chunks_mut(2 * chunk)
            .zip(call.ins[0].chunks(2 * chunk))
            .zip(call.only().grad.chunks(chunk))
            .in_parallel(|((gx, x), gy)| slopes::<P, F>(x, gy, self.width, self.curved, gx));
        vec![gx]
    }
}

/// The linear half of a row, and the half that the function applies to.
#[inline(always)]
fn halves<F>(row: &[F], width: usize, curved: usize) -> (&[F], &[F]) {
    let (first, second) = row.split_at(width);
    match curved {
        0 => (second, first),
        _ => (first, second),
    }
}

#[simd]
fn products<P: Pointwise, F: Float>(x: &[F], width: usize, curved: usize, y: &mut [F]) {
    for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
        let (linear, gates) = halves(x, width, curved);
        for ((y, &linear), &gate) in y.iter_mut().zip(linear).zip(gates) {
            *y = linear * P::value(gate);
        }
    }
}

#[simd]
fn slopes<P: Pointwise, F: Float>(x: &[F], gy: &[F], width: usize, curved: usize, gx: &mut [F]) {
    let rows = x.chunks_exact(2 * width).zip(gy.chunks_exact(width));
    for ((x, gy), gx) in rows.zip(gx.chunks_exact_mut(2 * width)) {
        let (linear, gates) = halves(x, width, curved);
        let (first, second) = gx.split_at_mut(width);
        let (to_linear, to_gates) = match curved {
            0 => (second, first),
            _ => (first, second),
        };
        for i in 0..width {
            let gate = P::value(gates[i]);
            to_linear[i] = gy[i] * gate;
            to_gates[i] = gy[i] * linear[i] * P::slope(gates[i], gate);
        }
    }
}
