//! The split of a sequence into one tensor per step, for recurrences that no scan can compute.
//! Candle would pad the gradient of each step's slice to the whole sequence, at a cost quadratic in
//! its length.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply, runs_on, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// The steps of `x`, (B, L, N), as L tensors of shape (B, N).
pub fn time_steps(x: &Tensor) -> Result<Vec<Tensor>> {
    let [batch, len, width] = shape::dims(TimeSteps::NAME, ("x", x))?;
    if runs_on(x) {
        apply(TimeSteps { batch, len, width }, &[x])
    } else {
        reference::time_steps(x)
    }
}

struct TimeSteps {
    batch: usize,
    len: usize,
    width: usize,
}

impl Op for TimeSteps {
    const NAME: &'static str = "time_steps";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.width).into(); self.len]
    }
}

#[cfg(test)]
mod tests;
