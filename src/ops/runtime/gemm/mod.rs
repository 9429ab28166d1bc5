//! Matrix product for large operands. It runs on the calling thread: ops divide their work themselves, at places that do
//! not depend on the number of threads.
//!
//! Products of f32 and f64 are those of the crate behind Candle's own `matmul`. In bf16 ([`Factors::Bf16`]) both factors
//! are rounded and sums are f32: by the processor's unit for such products, or by the crate on rounded copies.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
mod method;
#[cfg(target_arch = "x86_64")]
mod pack;
#[cfg(target_arch = "x86_64")]
mod packed;
mod rounded;
#[cfg(target_arch = "x86_64")]
mod small;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod unit;
mod view;

#[cfg(target_arch = "x86_64")]
pub(crate) use method::on_unit;
pub(crate) use method::{bf16_loop, rounds};
pub(crate) use rounded::round_all;
#[cfg(target_arch = "x86_64")]
pub(crate) use small::{Part, SmallProduct};
pub(crate) use view::View;

use crate::runtime::float::Float;
#[cfg(target_arch = "x86_64")]
use crate::runtime::simd::Simd;
use crate::runtime::transpose::transpose;
#[cfg(target_arch = "x86_64")]
use candle_core::{DType, WithDType};
use method::Method;
use rounded::Copied;
#[cfg(target_arch = "x86_64")]
use std::sync::Once;
#[cfg(target_arch = "x86_64")]
use view::single_mut;

/// The right operand of several products, prepared once for all of them.
pub(crate) struct Right<'a, F> {
    stored: View<'a, F>,
    method: Method,
    prepared: Prepared<F>,
}

enum Prepared<F> {
    /// Used as it is stored.
    Nothing,
    Copied(Copied<F>),
    #[cfg(target_arch = "x86_64")]
    Packed(packed::Packed),
}

impl<'a, F: Float> Right<'a, F> {
    /// Prepares an operand whose rows or columns are contiguous.
    pub(crate) fn of(stored: View<'a, F>) -> Self {
        let method = Method::current::<F>();
        let rows = || stored.gathers_slowly().then(|| transpose(stored.data, stored.rows));
        let prepared = match method {
            Method::Plain => rows().map_or(Prepared::Nothing, |rows| Prepared::Copied(Copied::Rows(rows))),
            Method::Rounded => Prepared::Copied(match rows() {
                Some(mut rows) => {
                    round_all(&mut rows);
                    Copied::Rows(rows)
                }
                None => Copied::rounded(stored),
            }),
            #[cfg(target_arch = "x86_64")]
            Method::Avx512Bf16 => {
                Prepared::Packed(packed::Packed::of::<unit::Avx512Bf16>(stored.single(), packed::Terms::One))
            }
            #[cfg(target_arch = "x86_64")]
            Method::Amx(terms) => Prepared::Packed(packed::Packed::of::<unit::Amx>(stored.single(), terms)),
        };
        Self { stored, method, prepared }
    }

    /// The operand for the crate.
    fn view(&self) -> View<'_, F> {
        match &self.prepared {
            Prepared::Copied(copied) => copied.view(self.stored.rows, self.stored.columns),
            _ => self.stored,
        }
    }
}

/// `to = a b`, or `to += a b`; `to` has rows of `width` numbers, of which the first are written.
pub(crate) fn product<F: Float>(to: &mut [F], width: usize, a: View<F>, b: View<F>, add: bool) {
    if !check(to, width, &a, &b) {
        return;
    }
    match Method::current::<F>() {
        Method::Plain => by_crate(to, width, a, b, add),
        Method::Rounded => product_by(to, width, a, &Right::of(b), add),
        #[cfg(target_arch = "x86_64")]
        Method::Avx512Bf16 => once::<unit::Avx512Bf16, F>(to, width, a, b, packed::Terms::One, add),
        #[cfg(target_arch = "x86_64")]
        Method::Amx(terms) => once::<unit::Amx, F>(to, width, a, b, terms, add),
    }
}

/// [`product`] by a prepared operand.
pub(crate) fn product_by<F: Float>(to: &mut [F], width: usize, a: View<F>, b: &Right<F>, add: bool) {
    if !check(to, width, &a, &b.stored) {
        return;
    }
    match (&b.prepared, b.method) {
        #[cfg(target_arch = "x86_64")]
        (Prepared::Packed(packed), Method::Amx(terms)) => whole::<unit::Amx, F>(to, width, a, packed, terms, add),
        #[cfg(target_arch = "x86_64")]
        (Prepared::Packed(packed), _) => whole::<unit::Avx512Bf16, F>(to, width, a, packed, packed::Terms::One, add),
        (_, Method::Rounded) => {
            rounded::by_rows(a, |rows, a| by_crate(&mut to[rows * width..], width, a, b.view(), add))
        }
        _ => by_crate(to, width, a, b.view(), add),
    }
}

/// Returns whether there is anything to compute.
///
/// # Panics
///
/// Panics if the sizes do not fit.
fn check<F: Float>(to: &[F], width: usize, a: &View<F>, b: &View<F>) -> bool {
    if a.rows == 0 || b.columns == 0 {
        return false;
    }
    assert_eq!(a.columns, b.rows, "inner sizes");
    assert!(b.columns <= width && (a.rows - 1) * width + b.columns <= to.len());
    assert!(a.columns > 0 && a.last() < a.data.len() && b.last() < b.data.len());
    true
}

/// A product by an operand that is used once, on a unit.
#[cfg(target_arch = "x86_64")]
fn once<U: unit::Unit, F: Float>(to: &mut [F], width: usize, a: View<F>, b: View<F>, terms: packed::Terms, add: bool) {
    packed::with_packed::<U, _>(b.single(), terms, |packed| whole::<U, F>(to, width, a, packed, terms, add));
}

/// A whole product on a unit.
#[cfg(target_arch = "x86_64")]
fn whole<U: unit::Unit, F: Float>(
    to: &mut [F],
    width: usize,
    a: View<F>,
    b: &packed::Packed,
    terms: packed::Terms,
    add: bool,
) {
    let part = Part { depth: 0..a.columns, columns: 0..b.columns() };
    packed::multiply::<U>(single_mut(to), width, a.single(), b, terms, &part, add);
}

/// A product by the crate.
fn by_crate<F: Float>(to: &mut [F], width: usize, a: View<F>, b: View<F>, add: bool) {
    assert!(check(to, width, &a, &b));
    #[cfg(target_arch = "x86_64")]
    read_in_place();
    // SAFETY: the check bounds every index that the sizes and strides can form; `to` is borrowed mutably, so it
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

/// [`by_crate`] without its checks. The crate would take the processor's best kernel; here the kernel is that of the
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
            Simd::Avx512 | Simd::Avx512Bf16 | Simd::Amx => by_kernel!(avx512f, V4, 16: to, width, a, b, add),
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
