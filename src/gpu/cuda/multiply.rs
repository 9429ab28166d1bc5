//! Matrix products by cuBLAS.

use super::super::{Factors, Matrix, Product, View};
use candle_core::cuda_backend::WrapErr;
use candle_core::{CudaDevice, DType, Result};
use cudarc::cublas::{result, sys};
use cudarc::driver::{CudaSlice, DevicePtr};
use std::ffi::c_int;
use sys::cublasComputeType_t as Compute;
use sys::cublasOperation_t as Operation;

/// Size of cuBLAS's workspace in bytes: NVIDIA's recommendation for Hopper.
const WORKSPACE: usize = 32 << 20;

/// Gives cuBLAS one fixed workspace, which must live as long as the device is used.
pub(super) fn fix_workspace(device: &CudaDevice) -> Result<CudaSlice<u8>> {
    // SAFETY: only cuBLAS reads the memory.
    let memory = unsafe { device.alloc::<u8>(WORKSPACE) }?;
    let stream = device.cuda_stream();
    let (address, guard) = memory.device_ptr(&stream);
    // SAFETY: the memory is stored with the device.
    unsafe { sys::cublasSetWorkspace_v2(*device.cublas_handle().handle(), address as *mut _, WORKSPACE) }
        .result()
        .w()?;
    drop(guard);
    Ok(memory)
}

/// Prevents cuBLAS from summing partial products in bf16 if the result is bf16.
pub(super) fn keep_sums_whole(device: &CudaDevice) -> Result<()> {
    let mode = sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    // SAFETY: the handle belongs to the device.
    unsafe { sys::cublasSetMathMode(*device.cublas_handle().handle(), mode) }.result().w()
}

/// Computes a product. cuBLAS is column-major, so this computes the transposes: toᵀ = rightᵀ leftᵀ.
pub(super) fn run(device: &CudaDevice, product: Product, to: View) -> Result<()> {
    let Product { batch, rows, inner, columns, left, right, add, factors } = product;
    let (right_op, right_width) = operation(&right, inner, columns);
    let (left_op, left_width) = operation(&left, rows, inner);
    let (alpha, beta) = (1.0f32, if add { 1.0f32 } else { 0.0 });
    let compute = match (left.values.dtype(), factors) {
        (DType::F32, Factors::Tf32) => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => Compute::CUBLAS_COMPUTE_32F,
    };
    // SAFETY: the sizes have been checked against the views, whose memory is freed in stream order.
    unsafe {
        result::gemm_strided_batched_ex(
            *device.cublas_handle().handle(),
            right_op,
            left_op,
            size(columns)?,
            size(rows)?,
            size(inner)?,
            (&raw const alpha).cast(),
            right.values.address() as *const _,
            data_type(right.values.dtype()),
            size(right_width)?,
            product.right_stride() as i64,
            left.values.address() as *const _,
            data_type(left.values.dtype()),
            size(left_width)?,
            product.left_stride() as i64,
            (&raw const beta).cast(),
            to.address() as *mut _,
            data_type(to.dtype()),
            size(columns)?,
            (rows * columns) as i64,
            size(batch)?,
            compute,
            sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
        )
    }
    .w()
}

/// Returns cuBLAS's operation for a (rows, columns) factor, and the stored width of its rows.
fn operation(matrix: &Matrix, rows: usize, columns: usize) -> (Operation, usize) {
    match matrix.transposed {
        false => (Operation::CUBLAS_OP_N, columns),
        true => (Operation::CUBLAS_OP_T, rows),
    }
}

/// Returns cuBLAS's name of an element type.
fn data_type(dtype: DType) -> sys::cudaDataType {
    match dtype {
        DType::BF16 => sys::cudaDataType_t::CUDA_R_16BF,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

fn size(n: usize) -> Result<c_int> {
    c_int::try_from(n).map_err(candle_core::Error::wrap)
}
