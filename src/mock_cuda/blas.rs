//! cuBLAS, as far as Candle and our products call it.

use crate::answer::{broken, require, Answer, Code};
use crate::array::Type;
use crate::driver::library;
use crate::product::{Factor, Product};
use crate::state::Driver;
use crate::stream::Action;
use std::ffi::c_void;

/// A handle: its stream, and whether it has a workspace of its own.
#[derive(Default)]
pub(crate) struct Handle {
    stream: u64,
    workspace: bool,
}

/// Returns the type with a number of `cudaDataType`.
fn kind(number: i32) -> Answer<Type> {
    match number {
        0 => Ok(Type::F32),
        1 => Ok(Type::F64),
        14 => Ok(Type::Bf16),
        other => Err(broken(Code::InvalidValue, format!("cudaDataType {other} is not known here"))),
    }
}

fn size(n: i32) -> Answer<usize> {
    usize::try_from(n).map_err(|_| broken(Code::InvalidValue, format!("a size of {n}")))
}

/// A matrix as cuBLAS takes it: its operation (0: as it is, 1: transposed), address, type, leading dimension, stride.
type Matrix = (i32, u64, i32, i32, i64);

fn factor((operation, address, number, leading, stride): Matrix) -> Answer<Factor> {
    require(matches!(operation, 0 | 1), Code::InvalidValue, "an operation other than N and T")?;
    Ok(Factor { address, kind: kind(number)?, leading: size(leading)?, stride, transposed: operation == 1 })
}

/// Queues a batch of products. `numbers` are alpha and beta, and `compute` a number of `cublasComputeType_t`.
#[allow(clippy::too_many_arguments)]
fn multiply(
    driver: &mut Driver,
    handle: u64,
    [m, n, k, batch]: [i32; 4],
    [alpha, beta]: [f64; 2],
    left: Matrix,
    right: Matrix,
    to: Matrix,
    compute: i32,
) -> Answer {
    driver.current()?;
    let Handle { stream, workspace } = *driver.blas.get(handle)?;
    let product = Product {
        rows: size(m)?,
        columns: size(n)?,
        inner: size(k)?,
        batch: size(batch)?,
        alpha,
        beta,
        left: factor(left)?,
        right: factor(right)?,
        to: factor(to)?,
        tf32: compute == 77,
    };
    let kinds = (product.left.kind, product.right.kind, product.to.kind, compute);
    let known = matches!(
        kinds,
        (Type::F32, Type::F32, Type::F32, 68 | 77)
            | (Type::Bf16, Type::Bf16, Type::Bf16 | Type::F32, 68)
            | (Type::F64, Type::F64, Type::F64, 70)
    );
    if !known {
        return Err(broken(Code::InvalidValue, format!("cuBLAS does not multiply (A, B, C, compute) = {kinds:?}")));
    }
    product.check()?;
    for (address, bytes) in product.spans() {
        driver.usable(address, bytes)?;
    }
    let captured = driver.streams.get(stream)?.capture.is_some();
    require(!captured || workspace, Code::CaptureUnsupported, "a captured product allocates cuBLAS's own workspace")?;
    driver.queue(stream, Action::Multiply(product))
}

library! {
    fn cublasCreate_v2(handle: *mut u64) |driver| {
        driver.current_outside_captures()?;
        // SAFETY: the caller's place for one handle.
        unsafe { handle.write(driver.blas.open(Handle::default())) };
        Ok(())
    }

    fn cublasDestroy_v2(handle: u64) |driver| {
        let context = driver.current_outside_captures()?;
        driver.synchronize(context, "cublasDestroy")?;
        driver.blas.close(handle).map(drop)
    }

    fn cublasSetStream_v2(handle: u64, stream: u64) |driver| {
        driver.streams.get(stream)?;
        // cuBLAS goes back to its own workspace.
        *driver.blas.get(handle)? = Handle { stream, workspace: false };
        Ok(())
    }

    fn cublasSetWorkspace_v2(handle: u64, memory: u64, bytes: usize) |driver| {
        driver.usable(memory, bytes)?;
        require(memory.is_multiple_of(256), Code::InvalidValue, "a workspace must be aligned to 256 bytes")?;
        driver.blas.get(handle)?.workspace = true;
        Ok(())
    }

    fn cublasSetMathMode(handle: u64, mode: i32) |driver| {
        driver.blas.get(handle)?;
        // Default, pedantic, TF32, and the flag that forbids sums of partial products in less than f32.
        require(matches!(mode & !16, 0 | 2 | 3), Code::InvalidValue, "a math mode that cuBLAS does not know")
    }

    fn cublasGemmStridedBatchedEx(
        handle: u64, left_op: i32, right_op: i32, m: i32, n: i32, k: i32, alpha: *const c_void,
        left: u64, left_type: i32, left_leading: i32, left_stride: i64,
        right: u64, right_type: i32, right_leading: i32, right_stride: i64, beta: *const c_void,
        to: u64, to_type: i32, to_leading: i32, to_stride: i64, batch: i32, compute: i32, _algorithm: i32,
    ) |driver| {
        let number = |at: *const c_void| {
            // SAFETY: numbers of the type of the sums, in memory of the host.
            unsafe { if compute == 70 { at.cast::<f64>().read() } else { f64::from(at.cast::<f32>().read()) } }
        };
        multiply(
            driver,
            handle,
            [m, n, k, batch],
            [number(alpha), number(beta)],
            (left_op, left, left_type, left_leading, left_stride),
            (right_op, right, right_type, right_leading, right_stride),
            (0, to, to_type, to_leading, to_stride),
            compute,
        )
    }

    fn cublasDgemmStridedBatched(
        handle: u64, left_op: i32, right_op: i32, m: i32, n: i32, k: i32, alpha: *const f64,
        left: u64, left_leading: i32, left_stride: i64, right: u64, right_leading: i32, right_stride: i64,
        beta: *const f64, to: u64, to_leading: i32, to_stride: i64, batch: i32,
    ) |driver| {
        // SAFETY: numbers in memory of the host.
        let numbers = unsafe { [alpha.read(), beta.read()] };
        multiply(
            driver,
            handle,
            [m, n, k, batch],
            numbers,
            (left_op, left, 1, left_leading, left_stride),
            (right_op, right, 1, right_leading, right_stride),
            (0, to, 1, to_leading, to_stride),
            70,
        )
    }
}
