//! Passes on the CPU.

use super::{AddLayerNorm, LayerNorm};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{add_chunk, blank, dot, map_chunks, sum_parts, total};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::{copied, zeros};
use dsf_simd::simd;

/// Rows per task, and per partial sum of the gradients of weight and bias.
const ROWS: usize = 64;

impl CpuOp for LayerNorm {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![map_chunks(ins[0], [ROWS * self.width; 2], |x, y| {
            forward_rows(x, ins[1], ins[2], self.eps(), y);
        })]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, weight) = (call.ins[0], call.ins[1]);
        let x_of = |at: usize, to: &mut [F]| to.copy_from_slice(&x[at..at + to.len()]);
        self.backward(weight, call.only().grad, x_of, |_, _| ()).into()
    }
}

impl CpuOp for AddLayerNorm {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut sum = zeros(ins[0].len());
        let mut normed = zeros(sum.len());
        let chunk = ROWS * self.0.width;
        sum.chunks_mut(chunk)
            .zip(normed.chunks_mut(chunk))
            .zip(ins[0].chunks(chunk).zip(ins[1].chunks(chunk)))
            .in_parallel(|((sum, normed), (x, y))| {
                add(x, y, sum);
                forward_rows(sum, ins[2], ins[3], self.0.eps(), normed);
            });
        vec![sum, normed]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let [x, y, weight, _] = call.ins else { unreachable!("four inputs") };
        let [of_sum, of_normed] = call.outs else { unreachable!("two outputs") };
        let Some(normed) = of_normed else {
            let grad = of_sum.map_or(Vec::new(), |sum| copied(sum.grad));
            let zeros = vec![F::zero(); weight.len()];
            return vec![copied(&grad), grad, zeros.clone(), zeros];
        };
        let x_of = |at: usize, to: &mut [F]| add(&x[at..][..to.len()], &y[at..][..to.len()], to);
        let then = |at: usize, gx: &mut [F]| {
            if let Some(sum) = of_sum {
                add_chunk(gx, &sum.grad[at..][..gx.len()]);
            }
        };
        let [gx, gw, gb] = self.0.backward(weight, normed.grad, x_of, then);
        vec![copied(&gx), gx, gw, gb]
    }
}

#[simd]
fn add<F: Float>(x: &[F], y: &[F], sum: &mut [F]) {
    for ((sum, &x), &y) in sum.iter_mut().zip(x).zip(y) {
        *sum = x + y;
    }
}

/// The mean of a row and 1 / sqrt(var + eps).
#[inline(always)]
fn moments<F: Float>(x: &[F], eps: F) -> (F, F) {
    let count = F::of(x.len() as f64);
    let mean = total([x], |[x]| x) / count;
    let variance = total([x], |[x]| (x - mean) * (x - mean)) / count;
    (mean, F::one() / (variance + eps).sqrt())
}

#[simd]
fn forward_rows<F: Float>(x: &[F], weight: &[F], bias: &[F], eps: F, y: &mut [F]) {
    let rows = x.chunks_exact(weight.len());
    for (x, y) in rows.zip(y.chunks_exact_mut(weight.len())) {
        let (mean, inverse) = moments(x, eps);
        for (((y, &x), &weight), &bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
            *y = ((x - mean) * inverse).fma(weight, bias);
        }
    }
}

#[simd]
fn backward_rows<F: Float>(x: &[F], weight: &[F], eps: F, gy: &[F], gx: &mut [F], gw: &mut [F], gb: &mut [F]) {
    let width = weight.len();
    let count = F::of(width as f64);
    let rows = x.chunks_exact(width).zip(gy.chunks_exact(width));
    for ((x, gy), gx) in rows.zip(gx.chunks_exact_mut(width)) {
        let (mean, inverse) = moments(x, eps);
        // dL/dx = (g - mean(g) - normed mean(g normed)) / sqrt(var + eps) with g = gy weight
        let along_mean = dot(gy, weight) / count;
        let along_normed = total([gy, weight, x], |[gy, weight, x]| gy * weight * ((x - mean) * inverse)) / count;
        for i in 0..width {
            let normed = (x[i] - mean) * inverse;
            let centred = gy[i].fma(weight[i], -along_mean);
            gx[i] = (-normed).fma(along_normed, centred) * inverse;
            gw[i] = gy[i].fma(normed, gw[i]);
            gb[i] += gy[i];
        }
    }
}

impl LayerNorm {
    /// The gradients of x, weight and bias. `x_of` fills a chunk of x; `then` post-processes a
    /// chunk of the gradient of x.
    fn backward<F: Float>(
        &self,
        weight: &[F],
        gy: &[F],
        x_of: impl Fn(usize, &mut [F]) + Sync,
        then: impl Fn(usize, &mut [F]) + Sync,
    ) -> [Vec<F>; 3] {
        let chunk = ROWS * self.width;
        let mut gx = zeros(gy.len());
        let parts = gy.len().div_ceil(chunk) * self.width;
        let (mut gw, mut gb) = (vec![F::zero(); parts], vec![F::zero(); parts]);
        let sums = gw.chunks_mut(self.width);
        let sums = sums.zip(gb.chunks_mut(self.width));
        gx.chunks_mut(chunk).zip(sums).zip(gy.chunks(chunk)).enumerate().in_parallel_with(
            || vec![blank::<F>(); chunk],
            |x, (i, ((gx, (gw, gb)), gy))| {
                let x = &mut x[..gx.len()];
                x_of(i * chunk, x);
                backward_rows(x, weight, self.eps(), gy, gx, gw, gb);
                then(i * chunk, gx);
            },
        );
        [gx, sum_parts(&gw, self.width), sum_parts(&gb, self.width)]
    }
}
