//! Reference: the system as dense matrices, one power after another.

use candle_core::{Result, Tensor};

/// Allocates d n² numbers for the matrix and for each of its rows.
pub(super) fn cascade(a: &Tensor, b: &Tensor, w: &Tensor, len: usize) -> Result<Tensor> {
    let (width, states) = a.dims2()?;
    let eye = Tensor::eye(states, a.dtype(), a.device())?;
    // Coefficients of each section in the previous states and, last, in the impulse; `left` is the input of the next
    // section.
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
