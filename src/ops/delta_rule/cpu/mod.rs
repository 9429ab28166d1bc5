//! Passes on the CPU.

mod backward;
mod columns;
mod forward;
mod rows;
mod span;

use super::DeltaRule;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;

impl CpuOp for DeltaRule {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![forward::forward(&self.0, ins)]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        backward::backward(&self.0, call.ins, call.only().grad)
    }
}
