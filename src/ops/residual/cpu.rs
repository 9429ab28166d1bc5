//! Passes on the CPU.

use super::Residual;
use crate::dropout::cpu::mask_chunk;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{dot, sum_parts as sum};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::copied;
use dsf_simd::simd;

/// Elements per task, and per partial sum of the gradient of the scale.
pub(super) const CHUNK: usize = 1 << 14;

impl CpuOp for Residual {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = copied(ins[1]);
        let scale = ins.get(2).map_or(F::one(), |scale| scale[0]);
        y.chunks_mut(CHUNK).zip(ins[0].chunks(CHUNK)).enumerate().in_parallel(|(task, (y, x))| {
            self.drop(task, y);
            add_scaled(x, scale, y);
        });
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let grad = call.only().grad;
        let mut of_branch = copied(grad);
        of_branch.chunks_mut(CHUNK).enumerate().in_parallel(|(task, of_branch)| self.drop(task, of_branch));
        let mut of_x = copied(grad);
        let Some(scale) = call.ins.get(2) else {
            return vec![of_x, of_branch];
        };
        let mut parts = vec![F::zero(); grad.len().div_ceil(CHUNK)];
        of_x.chunks_mut(CHUNK)
            .zip(&mut parts)
            .zip(call.ins[0].chunks(CHUNK))
            .in_parallel(|((of_x, part), x)| *part = scale_and_sum(scale[0], x, of_x));
        vec![of_x, of_branch, sum(&parts, 1)]
    }
}

impl Residual {
    fn drop<F: Float>(&self, task: usize, x: &mut [F]) {
        if let Some(mask) = &self.mask {
            mask_chunk(mask, (task * CHUNK) as u64, x);
        }
    }
}

/// `y += scale x`.
#[simd]
fn add_scaled<F: Float>(x: &[F], scale: F, y: &mut [F]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = scale.fma(x, *y);
    }
}

/// Returns Σ x grad, and multiplies `grad` by `scale`.
#[simd]
fn scale_and_sum<F: Float>(scale: F, x: &[F], grad: &mut [F]) -> F {
    let sum = dot(x, grad);
    grad.iter_mut().for_each(|grad| *grad *= scale);
    sum
}
