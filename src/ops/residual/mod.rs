//! A residual connection in one pass, with an optional trained scale of the skip path and dropout
//! of the branch.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_one, runs_on, Op};
use crate::runtime::mask::{Dropout, Mask};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// scale x + dropout(branch), with the mask of [`dropout`](crate::dropout()).
///
/// `x`, `branch`: of one shape; `scale`: (1), or `None` for 1; result like `x`.
pub fn residual(x: &Tensor, branch: &Tensor, dropout: Option<Dropout>, scale: Option<&Tensor>) -> Result<Tensor> {
    shape::expect(Residual::NAME, ("branch", branch), ("x", x), x.dims())?;
    if let Some(scale) = scale {
        shape::parameter(Residual::NAME, ("scale", scale), ("x", x), &[1])?;
    }
    let mask = Mask::new(Residual::NAME, dropout)?;
    if runs_on(x) && x.elem_count() > 0 {
        let shape = x.shape().clone();
        let ins: Vec<&Tensor> = [x, branch].into_iter().chain(scale).collect();
        return apply_one(Residual { shape, mask }, &ins);
    }
    reference::residual(x, branch, mask, scale)
}

struct Residual {
    shape: Shape,
    mask: Option<Mask>,
}

impl Op for Residual {
    const NAME: &'static str = "residual";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
