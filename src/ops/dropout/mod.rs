//! Dropout with a mask that is a function of (key, index, element).

pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod reference;

use crate::runtime::autograd::{apply_one, runs_on, Op};
use crate::runtime::mask::{Dropout, Mask};
use candle_core::{Result, Shape, Tensor};

/// x_e m_e / (1 - p), where m_e is 0 with probability p and 1 otherwise; any shape.
///
/// m is a function of (key, index, e): element e is kept if word e mod 4 of
/// philox(\[e / 4, index\], key) is at least p 2^32. With p = 0 the result is `x`.
pub fn dropout(x: &Tensor, what: Dropout) -> Result<Tensor> {
    match Mask::new(Masked::NAME, what)? {
        None => Ok(x.clone()),
        Some(mask) if runs_on(x) => apply_one(Masked { mask, shape: x.shape().clone() }, &[x]),
        Some(mask) => reference::dropout(x, mask),
    }
}

struct Masked {
    mask: Mask,
    shape: Shape,
}

impl Op for Masked {
    const NAME: &'static str = "dropout";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
