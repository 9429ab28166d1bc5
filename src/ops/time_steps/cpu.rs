//! Passes on the CPU.

use super::TimeSteps;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;

impl CpuOp for TimeSteps {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let sequences = || ins[0].chunks_exact(self.len * self.width);
        let step = |t: usize| sequences().flat_map(move |x| &x[t * self.width..][..self.width]);
        (0..self.len).map_in_parallel(|t| step(t).copied().collect())
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let mut gx = zeros(call.ins[0].len());
        let sequences = gx.chunks_exact_mut(self.len * self.width).enumerate();
        sequences.in_parallel(|(sequence, gx)| {
            for (gx, out) in gx.chunks_exact_mut(self.width).zip(call.outs) {
                if let Some(out) = out {
                    gx.copy_from_slice(&out.grad[sequence * self.width..][..self.width]);
                }
            }
        });
        vec![gx]
    }
}
