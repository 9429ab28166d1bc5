//! The loops on the CPU.

use super::{AddScaled, ScaleHeads, SoftplusBiased};
use crate::pointwise::{Pointwise, Softplus};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{dot, map_chunks, map_chunks_with_sums, total};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::{copied, zeros};
use dsf_simd::simd;

/// Rows per task, and per partial sum of a channel's gradient.
const ROWS: usize = 256;

impl CpuOp for AddScaled {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut out = copied(ins[0]);
        let chunk = ROWS * self.width;
        out.chunks_mut(chunk).zip(ins[1].chunks(chunk)).in_parallel(|(out, y)| add_scaled_rows(out, y, ins[2]));
        vec![out]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (y, scale, grad) = (call.ins[1], call.ins[2], call.only().grad);
        let (ins, chunks) = ([y, grad], [ROWS * self.width; 2]);
        let [gy, gscale] = map_chunks_with_sums(ins, chunks, self.width, |[y, grad], gy, part| {
            add_scaled_rows(gy, grad, scale);
            sum_products(y, grad, part);
        });
        vec![copied(grad), gy, gscale]
    }
}

impl CpuOp for SoftplusBiased {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let chunks = [ROWS * self.given, ROWS * self.width];
        vec![map_chunks(ins[0], chunks, |x, y| {
            softplus_rows(x, ins[1], y);
        })]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, bias, grad) = (call.ins[0], call.ins[1], call.only().grad);
        let chunks = [ROWS * self.given, ROWS * self.width];
        map_chunks_with_sums([x, grad], chunks, self.width, |[x, grad], gx, part| {
            softplus_rows_back(x, bias, grad, gx, part);
        })
        .into()
    }
}

impl CpuOp for ScaleHeads {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = zeros(ins[0].len());
        y.chunks_mut(ROWS * self.head)
            .zip(ins[0].chunks(ROWS * self.head).zip(ins[1].chunks(ROWS)))
            .in_parallel(|(y, (x, scale))| scaled(x, scale, y));
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, scale, grad) = (call.ins[0], call.ins[1], call.only().grad);
        let (mut gx, mut gs) = (zeros(x.len()), zeros(scale.len()));
        let chunk = ROWS * self.head;
        gx.chunks_mut(chunk)
            .zip(gs.chunks_mut(ROWS))
            .zip(x.chunks(chunk).zip(scale.chunks(ROWS)))
            .zip(grad.chunks(chunk))
            .in_parallel(|(((gx, gs), (x, scale)), grad)| {
                scaled(grad, scale, gx);
                products(x, grad, gs);
            });
        vec![gx, gs]
    }
}

/// `to += scale ⊙ from` for every row.
#[simd]
fn add_scaled_rows<F: Float>(to: &mut [F], from: &[F], scale: &[F]) {
    let rows = to.chunks_exact_mut(scale.len());
    for (to, from) in rows.zip(from.chunks_exact(scale.len())) {
        for ((to, &from), &scale) in to.iter_mut().zip(from).zip(scale) {
            *to = from.fma(scale, *to);
        }
    }
}

/// Adds x ⊙ y of every row to `sums`.
#[simd]
fn sum_products<F: Float>(x: &[F], y: &[F], sums: &mut [F]) {
    let rows = x.chunks_exact(sums.len());
    for (x, y) in rows.zip(y.chunks_exact(sums.len())) {
        for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
            *sum = x.fma(y, *sum);
        }
    }
}

#[simd]
fn softplus_rows<F: Float>(x: &[F], bias: &[F], y: &mut [F]) {
    let given = x.len() * bias.len() / y.len();
    for (x, y) in x.chunks_exact(given).zip(y.chunks_exact_mut(bias.len())) {
        if let [x] = x {
            for (y, &bias) in y.iter_mut().zip(bias) {
                *y = Softplus::value(*x + bias);
            }
        } else {
            for ((y, &x), &bias) in y.iter_mut().zip(x).zip(bias) {
                *y = Softplus::value(x + bias);
            }
        }
    }
}

/// The gradients of softplus(x + bias). `gb` must be zero on entry; it receives the sum over rows.
#[simd]
fn softplus_rows_back<F: Float>(x: &[F], bias: &[F], grad: &[F], gx: &mut [F], gb: &mut [F]) {
    let (width, given) = (bias.len(), x.len() * bias.len() / grad.len());
    let mut slopes = vec![F::zero(); width];
    let rows = x.chunks_exact(given).zip(gx.chunks_exact_mut(given));
    for ((x, gx), grad) in rows.zip(grad.chunks_exact(width)) {
        if let ([x], [gx]) = (x, &mut *gx) {
            for ((slope, &grad), &bias) in slopes.iter_mut().zip(grad).zip(bias) {
                *slope = grad * Softplus::slope(*x + bias, F::zero());
            }
            *gx = total([&slopes], |[slope]| slope);
        } else {
            for (((slope, &grad), &bias), &x) in slopes.iter_mut().zip(grad).zip(bias).zip(x) {
                *slope = grad * Softplus::slope(x + bias, F::zero());
            }
            gx.copy_from_slice(&slopes);
        }
        for (gb, &slope) in gb.iter_mut().zip(&slopes) {
            *gb += slope;
        }
    }
}

/// Multiplies each head of `x` by its number.
#[simd]
fn scaled<F: Float>(x: &[F], scale: &[F], y: &mut [F]) {
    let head = x.len() / scale.len();
    let pieces = y.chunks_exact_mut(head).zip(x.chunks_exact(head));
    for ((y, x), &scale) in pieces.zip(scale) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * scale;
        }
    }
}

/// The inner products of the heads of `x` and `y`.
#[simd]
fn products<F: Float>(x: &[F], y: &[F], to: &mut [F]) {
    let head = x.len() / to.len();
    let pieces = x.chunks_exact(head).zip(y.chunks_exact(head));
    for (to, (x, y)) in to.iter_mut().zip(pieces) {
        *to = dot(x, y);
    }
}
