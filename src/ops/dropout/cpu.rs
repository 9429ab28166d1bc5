//! Passes on the CPU.

use super::Masked;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::mask::Mask;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::copied;
use dsf_simd::simd;

/// Elements per task: a multiple of the elements whose bits are computed together.
pub(super) const CHUNK: usize = 1 << 14;

impl CpuOp for Masked {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![self.masked(ins[0])]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        vec![self.masked(call.only().grad)]
    }
}

impl Masked {
    fn masked<F: Float>(&self, x: &[F]) -> Vec<F> {
        let mut y = copied(x);
        y.chunks_mut(CHUNK).enumerate().in_parallel(|(i, y)| mask_chunk(&self.mask, (i * CHUNK) as u64, y));
        y
    }
}

/// Multiplies `x`, the elements from `first` on, by the mask.
#[simd]
pub(crate) fn mask_chunk<F: Float>(mask: &Mask, first: u64, x: &mut [F]) {
    mask.apply(first, x);
}
