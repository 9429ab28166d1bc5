//! The linear scan of complex numbers, for LRU and similar mixers.

mod cpu;
mod cuda;
mod reference;

use crate::linear_scan::cuda::Extent;
use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{bail, Result, Shape, Tensor};

/// h_t = a_t h_{t-1} + x_t elementwise in complex numbers, h_{-1} = 0.
///
/// `a`, `x`: (B, L, 2, N), real parts before imaginary parts, which is the output of one linear map
/// of width 2N; result (B, L, 2, N). Gradients are those with respect to real and imaginary parts.
pub fn complex_scan(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let scan = ComplexScan::check(a, x)?;
    apply_or(scan, &[a, x], |_| reference::complex_scan(a, x))
}

struct ComplexScan(Extent);

impl ComplexScan {
    fn check(a: &Tensor, x: &Tensor) -> Result<Self> {
        let [batch, len, parts, width] = shape::dims(Self::NAME, ("a", a))?;
        if parts != 2 {
            bail!(
                "{}: a has shape {:?}, needed are a real and an imaginary part on the third axis",
                Self::NAME,
                a.dims()
            );
        }
        let needed = [batch, len, 2, width];
        shape::expect(Self::NAME, ("x", x), ("a", a), &needed)?;
        Ok(Self(Extent::of(batch, len, width)))
    }
}

impl Op for ComplexScan {
    const NAME: &'static str = "complex_scan";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.0.batch, self.0.len, 2, self.0.width).into()]
    }
}

#[cfg(test)]
mod tests;
