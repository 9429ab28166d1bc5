//! The reference: the system as dense matrices, one power after the other.

use candle_core::{Result, Tensor};

/// Has d n² numbers of the matrix and its every row in memory.
pub(super) fn cascade(a: &Tensor, b: &Tensor, w: &Tensor, len: usize) -> Result<Tensor> {
    let (width, states) = a.dims2()?;
    let eye = Tensor::eye(states, a.dtype(), a.device())?;
    // What each section makes of the states before, and at last of the impulse; `left` is what reaches the next one.
    let mut rows = Vec::with_capacity(states);
    let impulse = Tensor::zeros((width, states), a.dtype(), a.device())?;
    let one = Tensor::ones((width, 1), a.dtype(), a.device())?;
    let mut left = Tensor::cat(&[impulse, one], 1)?;
    for i in 0..states {
        let of_section = |x: &Tensor| x.narrow(1, i, 1)?.contiguous();
        let own = eye.narrow(0, i, 1)?.pad_with_zeros(1, 0, 1)?;
        let row = (own.broadcast_mul(&of_section(a)?)? + left.broadcast_mul(&of_section(b)?)?)?;
        left = (left - &row)?.broadcast_sub(&own)?;
        rows.push(row);
    }
    let rows = Tensor::stack(&rows, 1)?;
    let matrix = rows.narrow(2, 0, states)?.contiguous()?;
    let mut x = rows.narrow(2, states, 1)?.contiguous()?;
    let w = w.unsqueeze(1)?;
    let mut taps = Vec::with_capacity(len);
    for _ in 0..len {
        taps.push(w.matmul(&x)?.reshape(width)?);
        x = matrix.matmul(&x)?;
    }
    Tensor::stack(&taps, 1)
}
