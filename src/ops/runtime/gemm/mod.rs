//! Matrix product for large operands, by the crate behind Candle's own `matmul`. It runs on the calling thread: ops
//! divide their work themselves, at places that do not depend on the number of threads.

#![allow(unsafe_code)]

use crate::runtime::float::Float;
#[cfg(target_arch = "x86_64")]
use crate::runtime::simd::Simd;
use crate::runtime::transpose::transpose;
#[cfg(target_arch = "x86_64")]
use candle_core::{DType, WithDType};
#[cfg(target_arch = "x86_64")]
use std::sync::Once;

/// A matrix with a stride between rows and one between columns.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, F> {
    data: &'a [F],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, F: Float> View<'a, F> {
    /// Contiguous rows of `columns` numbers.
    pub(crate) fn new(data: &'a [F], columns: usize) -> Self {
        Self::strided(data, columns, columns)
    }

    /// The first `columns` numbers of rows of `width`.
    pub(crate) fn strided(data: &'a [F], columns: usize, width: usize) -> Self {
        assert!(columns <= width);
        Self { data, rows: data.len().div_ceil(width), columns, row_stride: width, column_stride: 1 }
    }

    /// The transpose.
    pub(crate) fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// The index of the last entry.
    fn last(&self) -> usize {
        (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride
    }
}

/// Contiguous rows as the right operand of a product with their transpose, such as x Wᵀ.
pub(crate) struct Transposed<'a, F> {
    rows: View<'a, F>,
    copy: Option<Vec<F>>,
}

impl<'a, F: Float> Transposed<'a, F> {
    /// Prepares rows of `columns` numbers.
    pub(crate) fn of(rows: &'a [F], columns: usize) -> Self {
        Self { copy: gathers_slowly::<F>(columns).then(|| transpose(rows, columns)), rows: View::new(rows, columns) }
    }

    pub(crate) fn view(&self) -> View<'_, F> {
        match &self.copy {
            Some(copy) => View::new(copy, self.rows.rows),
            None => self.rows.t(),
        }
    }
}

/// Whether the current kernel gathers columns from rows of `columns` numbers more slowly than a transpose takes; a
/// transposed copy then makes the product 1.1 to 1.5 times as fast. The AVX-512 kernel reads 64 rows at a time, which
/// for long rows fall into few cache sets.
fn gathers_slowly<F: Float>(columns: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if F::Stored::DTYPE == DType::F32 && Simd::current() == Simd::Avx512 {
        return columns >= 256;
    }
    let _ = columns;
    false
}

/// `to = a b`, or `to += a b`; `to` has rows of `width` numbers, of which the first are written.
pub(crate) fn product<F: Float>(to: &mut [F], width: usize, a: View<F>, b: View<F>, add: bool) {
    if a.rows == 0 || b.columns == 0 {
        return;
    }
    assert_eq!(a.columns, b.rows, "inner sizes");
    assert!(b.columns <= width && (a.rows - 1) * width + b.columns <= to.len());
    assert!(a.columns > 0 && a.last() < a.data.len() && b.last() < b.data.len());
    #[cfg(target_arch = "x86_64")]
    read_in_place();
    // SAFETY: the assertions bound every index that the sizes and strides can form; `to` is borrowed mutably, so it
    // overlaps neither operand.
    unsafe { multiply(to.as_mut_ptr(), width, a, b, add) };
}

/// Configures the crate not to copy `a` first: kernels read six of its rows at a time, which is faster in place.
#[cfg(target_arch = "x86_64")]
fn read_in_place() {
    /// Maximum of the crate, in tiles of columns of `b`.
    const ALWAYS: usize = 256;
    static TOLD: Once = Once::new();
    TOLD.call_once(|| gemm_common::gemm::set_rhs_packing_threshold(ALWAYS));
}

/// Multiplies `$a` by `$b` into `$to`, whose rows have `$width` numbers, by the kernel of an instruction set. Kernels
/// write columns, so they compute the transpose.
#[cfg(target_arch = "x86_64")]
macro_rules! by_kernel {
    ($module:ident, $simd:ident, $lanes:literal: $to:expr, $width:expr, $a:expr, $b:expr, $add:expr) => {{
        use gemm_common::simd::{$simd, MixedSimd};
        use gemm_f32::microkernel::$module::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};
        const MR: usize = MR_DIV_N * $lanes;
        let simd = <$simd as MixedSimd<f32, f32, f32, f32>>::try_new();
        let simd = simd.expect("only what the processor has is ever current");
        gemm_common::gemm::gemm_basic_generic::<_, f32, $lanes, MR, NR, MR_DIV_N, H_M, H_N>(
            simd,
            $b.columns,
            $a.rows,
            $a.columns,
            $to.cast(),
            $width as isize,
            1,
            $add,
            $b.data.as_ptr().cast(),
            $b.row_stride as isize,
            $b.column_stride as isize,
            $a.data.as_ptr().cast(),
            $a.row_stride as isize,
            $a.column_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            |x, y, sum| x * y + sum,
            &UKR,
            &H_UKR,
            false,
            gemm::Parallelism::None,
        );
    }};
}

/// [`product`] without its checks. The crate would take the processor's best kernel; here the kernel is that of the
/// current [`Simd`].
///
/// # Safety
///
/// Every index that sizes and strides form lies inside its operand, and `to` overlaps neither of the others.
#[inline(never)]
unsafe fn multiply<F: Float>(to: *mut F, width: usize, a: View<F>, b: View<F>, add: bool) {
    #[cfg(target_arch = "x86_64")]
    if F::Stored::DTYPE == DType::F32 {
        return match Simd::current() {
            Simd::Avx512 => by_kernel!(avx512f, V4, 16: to, width, a, b, add),
            Simd::Avx2 => by_kernel!(fma, V3, 8: to, width, a, b, add),
            Simd::Baseline => by_kernel!(scalar, Scalar, 1: to, width, a, b, add),
        };
    }
    gemm::gemm(
        a.rows,
        b.columns,
        a.columns,
        to.cast::<F::Stored>(),
        1,
        width as isize,
        add,
        a.data.as_ptr().cast(),
        a.column_stride as isize,
        a.row_stride as isize,
        b.data.as_ptr().cast(),
        b.column_stride as isize,
        b.row_stride as isize,
        F::one().peel(),
        F::one().peel(),
        false,
        false,
        false,
        gemm::Parallelism::None,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<f64> {
        (0..count).map(|i| ((i * 7) % 11) as f64 - 5.0).collect()
    }

    #[test]
    fn products_are_sums_of_products_in_every_layout() {
        for (rows, inner, columns) in [(1, 1, 1), (4, 16, 16), (5, 17, 33), (129, 3, 70)] {
            let (a, b) = (numbers(rows * inner), numbers(inner * columns));
            let at: Vec<f64> = (0..inner * rows).map(|i| a[i % rows * inner + i / rows]).collect();
            let width = columns + 2;
            let mut to = vec![1.0; rows * width];
            let right = View::new(&b, columns);
            product(&mut to, width, View::new(&a, inner), right, false);
            product(&mut to, width, View::new(&at, rows).t(), right, true);
            for (i, j) in (0..rows).flat_map(|i| (0..width).map(move |j| (i, j))) {
                let sum = |j| (0..inner).map(move |k| k * columns + j);
                let expected = match j < columns {
                    true => 2.0 * sum(j).enumerate().map(|(k, at)| a[i * inner + k] * b[at]).sum::<f64>(),
                    false => 1.0,
                };
                assert_eq!(to[i * width + j], expected);
            }
        }
    }

    #[test]
    #[should_panic = "inner sizes"]
    fn sizes_that_do_not_meet_are_refused() {
        let (a, b) = (numbers(6), numbers(6));
        product(&mut [0.0; 9], 3, View::new(&a, 3), View::new(&b, 3), false);
    }
}
