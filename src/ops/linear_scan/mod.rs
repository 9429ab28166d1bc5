//! The linear recurrence with one number of state per channel, real or complex, and given decays.

mod cpu;
pub(crate) mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};
use cuda::Extent;

/// h_t = a_t h_{t-1} + x_t elementwise, h_{-1} = 0.
///
/// `a`, `x`: (B, L, N); result (B, L, N).
pub fn linear_scan(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let scan = LinearScan::check(a, x)?;
    apply_or(scan, &[a, x], |_| reference::linear_scan(a, x))
}

struct LinearScan(Extent);

impl LinearScan {
    fn check(a: &Tensor, x: &Tensor) -> Result<Self> {
        let [batch, len, width] = shape::dims(Self::NAME, ("a", a))?;
        shape::expect(Self::NAME, ("x", x), ("a", a), &[batch, len, width])?;
        Ok(Self(Extent::of(batch, len, width)))
    }
}

impl Op for LinearScan {
    const NAME: &'static str = "linear_scan";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.0.batch, self.0.len, self.0.width).into()]
    }
}

#[cfg(test)]
mod tests;
