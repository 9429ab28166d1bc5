//! f32 with and without a fused multiply-add.

use super::polynomials::{self, Single};
use super::Float;
use bytemuck::allocation::TransparentWrapperAlloc;
use bytemuck::TransparentWrapper;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// An f32 for which [`Float::fma`] is one instruction. It is meant for code compiled for an instruction set with a
/// fused multiply-add; elsewhere the call goes to the C library.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct Fma(f32);

// SAFETY: transparent, and every f32 is a value of it.
#[allow(unsafe_code)]
unsafe impl TransparentWrapper<f32> for Fma {}

impl From<f32> for Fma {
    #[inline(always)]
    fn from(x: f32) -> Self {
        Self(x)
    }
}

impl From<Fma> for f32 {
    #[inline(always)]
    fn from(Fma(x): Fma) -> Self {
        x
    }
}

impl Neg for Fma {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

macro_rules! operators {
    ($($operator:ident $name:ident, $assigning:ident $assign:ident: $symbol:tt;)+) => {$(
        impl $operator for Fma {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                Self(self.0 $symbol other.0)
            }
        }

        impl $assigning for Fma {
            #[inline(always)]
            fn $assign(&mut self, other: Self) {
                *self = *self $symbol other;
            }
        }
    )+};
}

operators! {
    Add add, AddAssign add_assign: +;
    Sub sub, SubAssign sub_assign: -;
    Mul mul, MulAssign mul_assign: *;
}

impl Div for Fma {
    type Output = Self;

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self(self.0 / other.0)
    }
}

impl Single for f32 {}
impl Single for Fma {}

/// Implements [`Float`] for an f32 type.
macro_rules! float {
    (
        $type:ty, vector: $vector:expr,
        slices: [$wrap_slice:expr, $wrap_mut:expr, $peel_vec:expr],
        fma: |$x:ident, $by:ident, $add:ident| $fma:expr
    ) => {
        impl Float for $type {
            type Stored = f32;

            #[cfg(target_arch = "x86_64")]
            const VECTOR: bool = $vector;

            #[inline(always)]
            fn wrap(x: f32) -> Self {
                Self::from(x)
            }

            #[inline(always)]
            fn peel(self) -> f32 {
                self.into()
            }

            fn wrap_slice(x: &[f32]) -> &[Self] {
                $wrap_slice(x)
            }

            fn wrap_mut(x: &mut [f32]) -> &mut [Self] {
                $wrap_mut(x)
            }

            fn peel_vec(x: Vec<Self>) -> Vec<f32> {
                $peel_vec(x)
            }

            #[inline(always)]
            fn of(x: f64) -> Self {
                Self::from(x as f32)
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self.peel())
            }

            #[inline(always)]
            fn fma(self, by: Self, add: Self) -> Self {
                let ($x, $by, $add) = (self, by, add);
                $fma
            }

            #[inline(always)]
            fn exp(self) -> Self {
                polynomials::exp(self)
            }

            #[inline(always)]
            fn exp_of_std(self) -> Self {
                Self::from(f32::exp(self.peel()))
            }

            #[inline(always)]
            fn cos_of_std(self) -> Self {
                Self::from(f32::cos(self.peel()))
            }

            #[inline(always)]
            fn sin_of_std(self) -> Self {
                Self::from(f32::sin(self.peel()))
            }

            #[inline(always)]
            fn tanh_of_std(self) -> Self {
                Self::from(f32::tanh(self.peel()))
            }

            #[inline(always)]
            fn exp2(self) -> Self {
                polynomials::exp2(self)
            }

            #[inline(always)]
            fn ln_1p_unit(self) -> Self {
                polynomials::ln_1p_unit(self)
            }

            #[inline(always)]
            fn tanh(self) -> Self {
                polynomials::tanh(self)
            }

            #[inline(always)]
            fn erf(self) -> Self {
                polynomials::erf(self)
            }

            #[inline(always)]
            fn ln(self) -> Self {
                Self::from(f32::ln(self.peel()))
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                Self::from(f32::sqrt(self.peel()))
            }

            #[inline(always)]
            fn abs(self) -> Self {
                Self::from(f32::abs(self.peel()))
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                f32::is_nan(self.peel())
            }

            #[inline(always)]
            fn to_bf16(self) -> Self {
                let bits = self.peel().to_bits();
                let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
                Self::from(if self.is_nan() { f32::NAN } else { f32::from_bits(rounded) })
            }
        }
    };
}

float!(f32, vector: false,
    slices: [|x| x, |x| x, |x| x],
    fma: |x, by, add| x * by + add);
float!(Fma, vector: true,
    slices: [
        <Fma as TransparentWrapper<f32>>::wrap_slice,
        <Fma as TransparentWrapper<f32>>::wrap_slice_mut,
        <Fma as TransparentWrapperAlloc<f32>>::peel_vec
    ],
    fma: |x, by, add| Self(x.0.mul_add(by.0, add.0)));
