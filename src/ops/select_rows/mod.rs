//! Selection of steps of every sequence. Candle computes the gradient of such a selection on one thread, in four passes
//! over the whole sequence.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// y\[b, r\] = x\[b, positions\[b, r\]\].
///
/// `x`: (B, L, d); `positions`: (B, R) of u32 below L; result (B, R, d).
pub fn select_rows(x: &Tensor, positions: &Tensor) -> Result<Tensor> {
    let [batch, len, width] = shape::dims(SelectRows::NAME, ("x", x))?;
    let [_, rows] = shape::dims(SelectRows::NAME, ("positions", positions))?;
    let needed = ("x", [batch, rows]);
    let known = shape::times(SelectRows::NAME, positions, needed, ("x", len))?;
    let op = SelectRows { known, positions: positions.contiguous()?, batch, rows, len, width };
    apply_or(op, &[x], |_| reference::select_rows(x, positions))
}

struct SelectRows {
    /// The positions on the CPU in row-major order; empty for positions on a GPU.
    known: Vec<usize>,
    /// (B, R), on the device of x.
    positions: Tensor,
    batch: usize,
    rows: usize,
    len: usize,
    width: usize,
}

impl Op for SelectRows {
    const NAME: &'static str = "select_rows";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.rows, self.width).into()]
    }
}

#[cfg(test)]
mod tests;
