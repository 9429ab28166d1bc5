//! Passes on the CPU.

mod backward;
mod forward;
pub(super) mod linear;
mod step;
mod tiles;

use super::CausalAttention;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;

impl CpuOp for CausalAttention {
    fn forward<F: Float>(&self, Forward { ins, tracked }: Forward<F>) -> Vec<Vec<F>> {
        let mut outs = match linear::sums(self) {
            Some(sums) => vec![linear::forward(self, sums, ins)],
            None if self.one_time => step::forward(self, ins),
            None => forward::forward(self, ins),
        };
        if !tracked {
            outs.truncate(1);
        }
        outs
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        match linear::sums(self) {
            Some(sums) => linear::backward(self, sums, call.ins, call.only()),
            None => backward::backward(self, call),
        }
    }
}
