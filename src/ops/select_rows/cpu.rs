//! Passes on the CPU.

use super::SelectRows;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;

impl CpuOp for SelectRows {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = Vec::with_capacity(self.known.len() * self.width);
        let sequences = ins[0].chunks_exact(self.len * self.width);
        for (x, positions) in sequences.zip(self.known.chunks_exact(self.rows)) {
            for &step in positions {
                y.extend_from_slice(&x[step * self.width..][..self.width]);
            }
        }
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let mut gx = zeros(call.ins[0].len());
        gx.chunks_mut(self.len * self.width)
            .zip(self.known.chunks(self.rows))
            .zip(call.only().grad.chunks(self.rows * self.width))
            .in_parallel(|((gx, positions), gy)| {
                for (&step, gy) in positions.iter().zip(gy.chunks_exact(self.width)) {
                    let to = &mut gx[step * self.width..][..self.width];
                    for (to, &gy) in to.iter_mut().zip(gy) {
                        *to += gy;
                    }
                }
            });
        vec![gx]
    }
}
