//! The reference: the Toeplitz matrix of each kernel, gathered, times the sequences.

use candle_core::{DType, Result, Tensor};

/// Computes in f32, or in f64 for inputs of f64. The matrices have d L² entries.
pub(super) fn long_conv(u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    let (_, len, width) = u.dims3()?;
    let wide = match u.dtype() {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let reach = len.min(kernel.dim(1)?);
    let kernel = kernel.narrow(1, 0, reach)?.to_dtype(wide)?;
    let kernel = kernel.pad_with_zeros(1, 0, 1)?;
    // Lag from step j to step t; pairs of steps that do not interact get `reach`, the index of the padding.
    let lag = |t: usize, j: usize| t.checked_sub(j).filter(|&lag| lag < reach);
    let lags: Vec<u32> = (0..len * len).map(|i| lag(i / len, i % len).unwrap_or(reach) as u32).collect();
    let lags = Tensor::from_vec(lags, len * len, u.device())?;
    let matrices = kernel.index_select(&lags, 1)?.reshape((width, len, len))?;
    let sequences = u.to_dtype(wide)?.permute((2, 1, 0))?.contiguous()?;
    let y = matrices.matmul(&sequences)?.permute((2, 1, 0))?;
    y.contiguous()?.to_dtype(u.dtype())
}
