//! Kernel of a time-invariant diagonal system: a Vandermonde matrix of complex powers times output weights, for S4D,
//! DSS and H3.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_one, runs_on, Op};
use crate::runtime::shape;
use candle_core::{DType, Result, Shape, Tensor};

/// y\[c,l\] = Re Σ_k w\[c,k\] a\[c,k\]^l for l below `len` (Gu et al. 2022, section 3).
///
/// `a`, `w`: real and imaginary parts, (d, m) each; result (d, len). Powers below 1e-33 may count as zero.
pub fn vandermonde(a: [&Tensor; 2], w: [&Tensor; 2], len: usize) -> Result<Tensor> {
    let op = Vandermonde::check(a, w, len)?;
    // Powers of numbers near 1 have no accuracy in half precision.
    if runs_on(a[0]) && a[0].dtype() != DType::BF16 {
        apply_one(op, &[a[0], a[1], w[0], w[1]])
    } else {
        reference::vandermonde(a, w, len)
    }
}

/// Vandermonde product; the inputs are in the order Re a, Im a, Re w, Im w.
struct Vandermonde {
    width: usize,
    states: usize,
    len: usize,
}

impl Vandermonde {
    fn check(a: [&Tensor; 2], w: [&Tensor; 2], len: usize) -> Result<Self> {
        let by = ("the real part of a", a[0]);
        let others =
            [("the imaginary part of a", a[1]), ("the real part of w", w[0]), ("the imaginary part of w", w[1])];
        let [width, states] = shape::kernel(Self::NAME, by, &others, len)?;
        Ok(Self { width, states, len })
    }
}

impl Op for Vandermonde {
    const NAME: &'static str = "vandermonde";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.width, self.len).into()]
    }
}

#[cfg(test)]
mod tests;
