//! Passes on the CPU.

use super::RmsNorm;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{largest_of, map_chunks, map_chunks_with_sums, total};
use dsf_simd::simd;

/// Rows per task, and per partial sum of the gradient of gamma.
const ROWS: usize = 64;

impl CpuOp for RmsNorm {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![map_chunks(ins[0], [ROWS * self.width; 2], |x, y| {
            forward_rows(x, ins[1], F::of(self.root_eps()), y);
        })]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, gamma, gy) = (call.ins[0], call.ins[1], call.only().grad);
        let chunks = [ROWS * self.width; 2];
        map_chunks_with_sums([x, gy], chunks, self.width, |[x, gy], gx, part| {
            backward_rows(x, gamma, gy, F::of(self.root_eps()), gx, part);
        })
        .into()
    }
}

/// sqrt(d) / sqrt(|x|² + root²), for `root` = sqrt(d eps). The squares are those of x divided by its largest number, or
/// by 1 if eps bounds the result, as those of x itself could overflow or underflow.
#[inline(always)]
fn factor<F: Float>(x: &[F], root: F) -> F {
    let mut most = largest_of(x, F::abs);
    if root > F::zero() {
        most = most.at_least(F::one());
    } else if most < F::of(f64::from(f32::MIN_POSITIVE)) {
        return F::zero();
    }
    let inverse = F::one() / most;
    let squares = total([x], |[x]| (x * inverse) * (x * inverse));
    let root = root * inverse;
    inverse * (F::of(x.len() as f64) / (squares + root * root)).sqrt()
}

#[simd]
fn forward_rows<F: Float>(x: &[F], gamma: &[F], root: F, y: &mut [F]) {
    let rows = x.chunks_exact(gamma.len());
    for (x, y) in rows.zip(y.chunks_exact_mut(gamma.len())) {
        let factor = factor(x, root);
        for ((y, &x), &gamma) in y.iter_mut().zip(x).zip(gamma) {
            *y = x * factor * gamma;
        }
    }
}

#[simd]
fn backward_rows<F: Float>(x: &[F], gamma: &[F], gy: &[F], root: F, gx: &mut [F], sums: &mut [F]) {
    let width = gamma.len();
    let count = F::of(width as f64);
    let rows = x.chunks_exact(width).zip(gy.chunks_exact(width));
    for ((x, gy), gx) in rows.zip(gx.chunks_exact_mut(width)) {
        // dL/dx = (g - n mean(g n)) f, with n = f x, f = sqrt(d) / sqrt(|x|² + d eps) and g = gy gamma
        let factor = factor(x, root);
        let along = total([x, gamma, gy], |[x, gamma, gy]| gy * gamma * (x * factor)) / count;
        for i in 0..width {
            let normed = x[i] * factor;
            gx[i] = gy[i].fma(gamma[i], -normed * along) * factor;
            sums[i] = gy[i].fma(normed, sums[i]);
        }
    }
}
