//! Passes on the CPU.

use super::Shift;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;

impl Shift {
    /// Copies all tokens but one of each sequence, where the copies begin at the given tokens of `from` and of the result,
    /// which is zero elsewhere.
    fn moved<F: Float>(&self, from: &[F], [first, to_first]: [usize; 2]) -> Vec<F> {
        let sequence = self.len * self.width;
        let mut to = zeros(from.len());
        to.chunks_mut(sequence).zip(from.chunks(sequence)).in_parallel(|(to, from)| {
            let count = sequence - self.width;
            to[to_first * self.width..][..count].copy_from_slice(&from[first * self.width..][..count]);
        });
        to
    }
}

impl CpuOp for Shift {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![self.moved(ins[0], [0, 1])]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        vec![self.moved(call.only().grad, [1, 0])]
    }
}
