//! Matrix products by cuBLAS.

use super::super::{Buffer, Matrix, Product};
use candle_core::cuda_backend::{gemm_reduced_precision_f32, WrapErr};
use candle_core::{CudaDevice, DType, Result};
use cudarc::cublas::{result, sys};
use cudarc::driver::DevicePtr;
use std::ffi::c_int;
use sys::cublasComputeType_t as Compute;
use sys::cublasOperation_t as Operation;

/// What NVIDIA recommends for Hopper.
const WORKSPACE: usize = 32 << 20;

/// Gives cuBLAS one piece of memory for good.
pub(super) fn fix_workspace(device: &CudaDevice) -> Result<()> {
    // SAFETY: nobody but cuBLAS reads it.
    let memory = unsafe { device.alloc::<u8>(WORKSPACE) }?;
    let stream = device.cuda_stream();
    let (address, _) = memory.device_ptr(&stream);
    // SAFETY: the memory is never freed (below), so it outlives the handle.
    unsafe {
        sys::cublasSetWorkspace_v2(
            *device.cublas_handle().handle(),
            address as *mut _,
            WORKSPACE,
        )
    }
    .result()
    .w()?;
    std::mem::forget(memory);
    Ok(())
}

/// cuBLAS counts columns first, so it computes the transposes: toᵀ = rightᵀ leftᵀ.
pub(super) fn run(device: &CudaDevice, product: Product, to: &mut Buffer) -> Result<()> {
    let Product {
        batch,
        rows,
        inner,
        columns,
        left,
        right,
        add,
    } = product;
    let (right_op, right_width) = turned(&right, inner, columns);
    let (left_op, left_width) = turned(&left, rows, inner);
    let (alpha, beta) = (1.0f32, if add { 1.0f32 } else { 0.0 });
    let compute = match left.values.dtype() {
        DType::F32 if gemm_reduced_precision_f32() => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => Compute::CUBLAS_COMPUTE_32F,
    };
    // SAFETY: sizes were checked against the buffers; all live until the stream is past this.
    unsafe {
        result::gemm_strided_batched_ex(
            *device.cublas_handle().handle(),
            right_op,
            left_op,
            size(columns)?,
            size(rows)?,
            size(inner)?,
            (&raw const alpha).cast(),
            right.values.pointer().address as *const _,
            number(right.values.dtype()),
            size(right_width)?,
            product.right_stride() as i64,
            left.values.pointer().address as *const _,
            number(left.values.dtype()),
            size(left_width)?,
            product.left_stride() as i64,
            (&raw const beta).cast(),
            to.view().pointer().address as *mut _,
            number(to.dtype()),
            size(columns)?,
            (rows * columns) as i64,
            size(batch)?,
            compute,
            sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
        )
    }
    .w()
}

/// How a row-major matrix of `rows` by `columns` enters, and the width of its rows in memory.
fn turned(matrix: &Matrix, rows: usize, columns: usize) -> (Operation, usize) {
    match matrix.transposed {
        false => (Operation::CUBLAS_OP_N, columns),
        true => (Operation::CUBLAS_OP_T, rows),
    }
}

fn number(dtype: DType) -> sys::cudaDataType {
    match dtype {
        DType::BF16 => sys::cudaDataType_t::CUDA_R_16BF,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

fn size(n: usize) -> Result<c_int> {
    c_int::try_from(n).map_err(candle_core::Error::wrap)
}
