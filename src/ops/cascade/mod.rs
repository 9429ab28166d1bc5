//! Kernel of a system whose matrix is lower triangular, with rank-one entries below its diagonal: a cascade of
//! first-order sections. S4's HiPPO-LegS has this form, so its kernel needs no dense matrix.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_one, runs_on, Op};
use crate::runtime::shape;
use candle_core::{DType, Result, Shape, Tensor};

/// y\[c,l\] = Σ_i w\[c,i\] x\[c,l,i\] for l below `len`, the response to an impulse. Each section subtracts its
/// previous and its new state from the signal, and passes on the rest:
///
/// x_l,i = a_i x_l-1,i + b_i t_l,i, t_l,i+1 = t_l,i - x_l-1,i - x_l,i, where t_l,0 is 1 for l = 0, else 0, and x before
/// it is 0.
///
/// The bilinear discretisation, with step Δ, of x' = A x + r u with A_ij = -r_i r_j below the diagonal and A_ii = -λ_i
/// is of this form: a_i = (1 - λ_i Δ/2) / (1 + λ_i Δ/2), b_i = r_i² (Δ/2) / (1 + λ_i Δ/2), and its state is
/// 2 x_i / r_i.
///
/// `a`, `b`, `w`: (d, n); result (d, len).
pub fn cascade(a: &Tensor, b: &Tensor, w: &Tensor, len: usize) -> Result<Tensor> {
    let op = Cascade::check(a, b, w, len)?;
    // The decay of a slow section has no accuracy in half precision.
    if runs_on(a) && a.dtype() != DType::BF16 {
        apply_one(op, &[a, b, w])
    } else {
        reference::cascade(a, b, w, len)
    }
}

/// Cascade; the inputs are in the order a, b, w.
struct Cascade {
    width: usize,
    states: usize,
    len: usize,
}

impl Cascade {
    fn check(a: &Tensor, b: &Tensor, w: &Tensor, len: usize) -> Result<Self> {
        let others = [("b", b), ("w", w)];
        let [width, states] = shape::kernel(Self::NAME, ("a", a), &others, len)?;
        Ok(Self { width, states, len })
    }
}

impl Op for Cascade {
    const NAME: &'static str = "cascade";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.width, self.len).into()]
    }
}

#[cfg(test)]
mod tests;
