//! The number types of the fused ops, and the elementary functions that their hot loops use.

mod polynomials;
mod single;

use candle_core::WithDType;
use dsf_fft::Transformed;
pub(crate) use single::Fma;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// Number type of the fused ops: f64, or f32 with or without a fused multiply-add.
pub(crate) trait Float:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// Type of the same numbers in tensors.
    type Stored: WithDType + Transformed + Default;

    /// Whether loops are compiled for every instruction set above the lowest; otherwise only for the lowest.
    #[cfg(target_arch = "x86_64")]
    const VECTOR: bool;

    /// Converts a stored number.
    fn wrap(x: Self::Stored) -> Self;
    /// Converts to the stored number.
    fn peel(self) -> Self::Stored;
    /// Reinterprets stored numbers in place.
    fn wrap_slice(x: &[Self::Stored]) -> &[Self];
    /// Reinterprets stored numbers in place, mutably.
    fn wrap_mut(x: &mut [Self::Stored]) -> &mut [Self];
    /// Reinterprets a vector as stored numbers, in place.
    fn peel_vec(x: Vec<Self>) -> Vec<Self::Stored>;

    /// Returns the nearest number of this type. Candle's own conversion is compiled in another crate and would not be
    /// inlined into loops.
    fn of(x: f64) -> Self;
    /// Returns the number in f64.
    fn to_f64(self) -> f64;

    /// 0.
    #[inline(always)]
    fn zero() -> Self {
        Self::of(0.0)
    }

    /// 1.
    #[inline(always)]
    fn one() -> Self {
        Self::of(1.0)
    }

    /// `self` * `by` + `add`, in one instruction with one rounding if the type has a fused multiply-add, otherwise in
    /// two.
    fn fma(self, by: Self, add: Self) -> Self;

    /// e^x within 2 ulp: 0 and infinity on underflow and overflow, subnormals in between; NaN for
    /// NaN.
    fn exp(self) -> Self;
    /// e^x by the standard library, as Candle computes it, one number at a time.
    fn exp_of_std(self) -> Self;
    /// cos x by the standard library.
    fn cos_of_std(self) -> Self;
    /// sin x by the standard library.
    fn sin_of_std(self) -> Self;
    /// tanh x by the standard library.
    fn tanh_of_std(self) -> Self;
    /// 2^x for x <= 0, within 1.25 ulp: exactly 1 at zero; results below the normal numbers are 0
    /// or subnormal, and exactly 0 for x <= -127; NaN for NaN.
    fn exp2(self) -> Self;
    /// ln(1 + x) for 0 <= x <= 1, with a small relative error.
    fn ln_1p_unit(self) -> Self;
    /// tanh, with a small relative error.
    fn tanh(self) -> Self;
    /// The error function; in f32 within 2e-7.
    fn erf(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// |x|.
    fn abs(self) -> Self;
    /// Whether the number is NaN.
    fn is_nan(self) -> bool;
    /// The nearest number with the 8 significant bits of bf16; of two, the one with the last bit 0. An f64 stays as it
    /// is.
    fn to_bf16(self) -> Self;

    /// The maximum of both; NaN if `self` is NaN.
    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        if self < low {
            low
        } else {
            self
        }
    }

    /// The minimum of both; NaN if `self` is NaN.
    #[inline(always)]
    fn at_most(self, high: Self) -> Self {
        if self > high {
            high
        } else {
            self
        }
    }
}

/// Evaluates `$value` with `$number` standing for the f32 type of the current instruction set.
macro_rules! in_single {
    ($number:ident => $value:expr) => {
        if $crate::runtime::simd::Simd::current().fuses() {
            type $number = $crate::runtime::float::Fma;
            $value
        } else {
            type $number = f32;
            $value
        }
    };
}
pub(crate) use in_single;

impl Float for f64 {
    type Stored = Self;

    /// f64 is used only for checks.
    #[cfg(target_arch = "x86_64")]
    const VECTOR: bool = false;

    #[inline(always)]
    fn wrap(x: Self) -> Self {
        x
    }

    #[inline(always)]
    fn peel(self) -> Self {
        self
    }

    fn wrap_slice(x: &[Self]) -> &[Self] {
        x
    }

    fn wrap_mut(x: &mut [Self]) -> &mut [Self] {
        x
    }

    fn peel_vec(x: Vec<Self>) -> Vec<Self> {
        x
    }

    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }

    #[inline(always)]
    fn fma(self, by: Self, add: Self) -> Self {
        self * by + add
    }

    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
    }

    #[inline(always)]
    fn exp_of_std(self) -> Self {
        f64::exp(self)
    }

    #[inline(always)]
    fn cos_of_std(self) -> Self {
        f64::cos(self)
    }

    #[inline(always)]
    fn sin_of_std(self) -> Self {
        f64::sin(self)
    }

    #[inline(always)]
    fn tanh_of_std(self) -> Self {
        f64::tanh(self)
    }

    #[inline(always)]
    fn exp2(self) -> Self {
        f64::exp2(self)
    }

    #[inline(always)]
    fn ln_1p_unit(self) -> Self {
        f64::ln_1p(self)
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        f64::tanh(self)
    }

    #[inline(always)]
    fn erf(self) -> Self {
        libm::erf(self)
    }

    #[inline(always)]
    fn ln(self) -> Self {
        f64::ln(self)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        f64::abs(self)
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }

    #[inline(always)]
    fn to_bf16(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests;
