//! f32 with and without a fused multiply-add: one set of polynomials for both.

use super::Float;
use bytemuck::allocation::TransparentWrapperAlloc;
use bytemuck::TransparentWrapper;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// An f32 that [`Float::fma`] multiplies and adds in one instruction. For code that is compiled for an instruction set with
/// such a one: elsewhere it is a call of the C library.
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

/// Polynomials without branches, so that loops over them vectorise.
trait Single: Float + From<f32> + Into<f32> {
    /// The polynomial in `self` with these coefficients, highest power first.
    #[inline(always)]
    fn horner<const N: usize>(self, coefficients: [f32; N]) -> Self {
        let mut value = Self::from(coefficients[0]);
        for coefficient in &coefficients[1..] {
            value = value.fma(self, Self::from(*coefficient));
        }
        value
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        let x: f32 = self.into();
        x.to_bits()
    }

    #[inline(always)]
    fn with_bits(bits: u32) -> Self {
        Self::from(f32::from_bits(bits))
    }

    /// 2^k for -126 <= k <= 127.
    #[inline(always)]
    fn power_of_two(k: i32) -> Self {
        Self::with_bits((k.wrapping_add(127) as u32) << 23)
    }

    #[inline(always)]
    fn with_sign_of(self, other: Self) -> Self {
        let (size, sign): (f32, f32) = (self.into(), other.into());
        Self::from(size.copysign(sign))
    }

    /// e^x = 2^k e^r with |r| <= ln(2)/2; the polynomial for e^r is that of Cephes' expf.
    #[inline(always)]
    fn exponential(self) -> Self {
        const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves round(x) in the low bits
        const LN2_HIGH: f32 = 0.693_359_4; // 9 bits, so that k * LN2_HIGH is exact
        const LN2_LOW: f32 = -2.121_944_4e-4;
        const SERIES: [f32; 6] = [
            1.987_569_1e-4,
            1.398_2e-3,
            8.333_452e-3,
            4.166_579_6e-2,
            1.666_666_5e-1,
            0.5,
        ];
        let x = self.at_least(Self::from(-104.0)).at_most(Self::from(89.0));
        let shifted = x.fma(Self::from(std::f32::consts::LOG2_E), Self::from(ROUND));
        let k = shifted - Self::from(ROUND);
        let r = k.fma(Self::from(-LN2_HIGH), x);
        let r = k.fma(Self::from(-LN2_LOW), r);
        let k = (shifted.bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
        // Two factors: 2^k alone would not reach the subnormals and the last binade.
        let half = k >> 1;
        (r.horner(SERIES).fma(r * r, r) + Self::one())
            * Self::power_of_two(half)
            * Self::power_of_two(k.wrapping_sub(half))
    }

    /// 2^k 2^r with |r| <= 1/2; the polynomial for 2^r has the least relative error, 2e-9, among
    /// those of its degree that are 1 at zero.
    #[inline(always)]
    fn power_of_2(self) -> Self {
        // Adding it leaves round(x) + 127, the exponent bits of 2^k, in the low bits.
        const ROUND: f32 = 12_582_912.0 + 127.0; // 1.5 * 2^23 + 127
        const SERIES: [f32; 7] = [
            1.535_336_2e-4,
            1.339_887_4e-3,
            9.618_437e-3,
            5.550_332_4e-2,
            2.402_264_8e-1,
            std::f32::consts::LN_2,
            1.0,
        ];
        let x = self.at_least(Self::from(-127.0));
        let shifted = x + Self::from(ROUND);
        let r = x - (shifted - Self::from(ROUND));
        r.horner(SERIES) * Self::with_bits(shifted.bits() << 23)
    }

    /// 2 artanh(z) with z = x / (2 + x) <= 1/3, by its power series.
    #[inline(always)]
    fn logarithm_of_1_plus(self) -> Self {
        const SERIES: [f32; 7] = [
            1.0 / 15.0,
            1.0 / 13.0,
            1.0 / 11.0,
            1.0 / 9.0,
            1.0 / 7.0,
            1.0 / 5.0,
            1.0 / 3.0,
        ];
        let z = self / (Self::from(2.0) + self);
        let square = z * z;
        let half = (z * square).fma(square.horner(SERIES), z);
        half + half
    }

    /// By e^{-2|x|}; near zero, where that cancels, by the polynomial of Cephes' tanhf.
    #[inline(always)]
    fn hyperbolic_tangent(self) -> Self {
        const SERIES: [f32; 5] = [
            -5.704_988_7e-3,
            2.063_909e-2,
            -5.373_971_6e-2,
            1.333_144_2e-1,
            -3.333_328e-1,
        ];
        let size = self.abs();
        let square = size * size;
        let near = (size * square).fma(square.horner(SERIES), size);
        let e = (Self::from(-2.0) * size).exponential();
        let far = (Self::one() - e) / (Self::one() + e);
        let size = if size < Self::from(0.625) { near } else { far };
        size.with_sign_of(self)
    }

    /// A polynomial below 1, and 1 - e^{-x^2} P(1/x^2) / x above, both from Cephes' ndtrf. P is
    /// fitted for x < 2; its factor is small beyond that.
    #[inline(always)]
    fn error_function(self) -> Self {
        const NEAR: [f32; 7] = [
            7.853_861e-5,
            -8.010_193e-4,
            5.188_328e-3,
            -2.685_381e-2,
            1.128_358_5e-1,
            -3.761_262_6e-1,
            std::f32::consts::FRAC_2_SQRT_PI,
        ];
        const FAR: [f32; 9] = [
            2.326_82e-2,
            -1.387_039_4e-1,
            3.687_424_7e-1,
            -5.824_733e-1,
            6.210_004_6e-1,
            -4.944_515e-1,
            3.404_88e-1,
            -2.741_127e-1,
            5.638_259_4e-1,
        ];
        let size = self.abs();
        let square = size * size;
        let inverse = Self::one() / size;
        let near = size * square.horner(NEAR);
        let tail = (-square).exponential() * inverse;
        let far = Self::one() - tail * (inverse * inverse).horner(FAR);
        let size = if size < Self::one() { near } else { far };
        size.with_sign_of(self)
    }
}

impl Single for f32 {}
impl Single for Fma {}

/// What is the same for both: `$fused` says whether loops are compiled for instruction sets with a fused multiply-add, `$wrap`
/// and its like turn what is stored into the type and back.
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
                self.exponential()
            }

            #[inline(always)]
            fn exp2(self) -> Self {
                self.power_of_2()
            }

            #[inline(always)]
            fn ln_1p_unit(self) -> Self {
                self.logarithm_of_1_plus()
            }

            #[inline(always)]
            fn tanh(self) -> Self {
                self.hyperbolic_tangent()
            }

            #[inline(always)]
            fn erf(self) -> Self {
                self.error_function()
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
        }
    };
}

float!(f32, vector: false,
    slices: [|x| x, |x| x, |x| x],
    fma: |x, by, add| x * by + add);
float!(Fma, vector: true,
    slices: [<Fma as TransparentWrapper<f32>>::wrap_slice, <Fma as TransparentWrapper<f32>>::wrap_slice_mut, <Fma as TransparentWrapperAlloc<f32>>::peel_vec],
    fma: |x, by, add| Self(x.0.mul_add(by.0, add.0)));
