//! The number types of the fused ops, and the elementary functions that their hot loops use.
//!
//! The f32 versions are polynomials without branches, so that loops over them vectorise. They use
//! no fused multiply-add, so that every instruction set computes the same bits.

use candle_core::WithDType;
use realfft::{ComplexToReal, FftNum, RealFftPlanner, RealToComplex};
use std::ops::Neg;
use std::sync::Arc;

/// A Fourier transform of real numbers and its inverse.
pub(crate) type Transforms<F> = (Arc<dyn RealToComplex<F>>, Arc<dyn ComplexToReal<F>>);

fn planned<F: FftNum>(len: usize) -> Transforms<F> {
    let mut planner = RealFftPlanner::new();
    (planner.plan_fft_forward(len), planner.plan_fft_inverse(len))
}

/// f32 or f64.
pub(crate) trait Float: WithDType + Neg<Output = Self> + Default {
    /// Whether its loops are compiled for every instruction set: f64 serves checks alone.
    const VECTOR: bool;

    /// The nearest number of this type. Candle's own conversion is no part of a loop that calls it: it is compiled in
    /// another crate.
    fn of(x: f64) -> Self;

    /// e^x within 2 ulp: 0 and infinity on underflow and overflow, subnormals in between; NaN for
    /// NaN.
    fn exp(self) -> Self;
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
    /// True for NaN.
    fn is_nan(self) -> bool;
    /// The Fourier transform of `len` numbers, and its inverse.
    fn transforms(len: usize) -> Transforms<Self>;

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

impl Float for f64 {
    const VECTOR: bool = false;

    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }

    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
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

    fn transforms(len: usize) -> Transforms<Self> {
        planned(len)
    }
}

impl Float for f32 {
    const VECTOR: bool = true;

    #[inline(always)]
    fn of(x: f64) -> Self {
        x as f32
    }

    /// e^x = 2^k e^r with |r| <= ln(2)/2; the polynomial for e^r is that of Cephes' expf.
    #[inline(always)]
    fn exp(self) -> Self {
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
        let x = self.at_least(-104.0).at_most(89.0);
        let shifted = x * std::f32::consts::LOG2_E + ROUND;
        let k = shifted - ROUND;
        let r = x - k * LN2_HIGH - k * LN2_LOW;
        let k = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
        // Two factors: 2^k alone would not reach the subnormals and the last binade.
        let half = k >> 1;
        (horner(r, SERIES) * r * r + r + 1.0)
            * power_of_two(half)
            * power_of_two(k.wrapping_sub(half))
    }

    /// 2^k 2^r with |r| <= 1/2; the polynomial for 2^r has the least relative error, 2e-9, among
    /// those of its degree that are 1 at zero.
    #[inline(always)]
    fn exp2(self) -> Self {
        // Adding it leaves round(x) + 127, the exponent bits of 2^k, in the low bits.
        const ROUND: f32 = 12_582_912.0 + 127.0; // 1.5 * 2^23 + 127
        const SERIES: [f32; 6] = [
            1.535_336_2e-4,
            1.339_887_4e-3,
            9.618_437e-3,
            5.550_332_4e-2,
            2.402_264_8e-1,
            std::f32::consts::LN_2,
        ];
        let x = self.at_least(-127.0);
        let shifted = x + ROUND;
        let r = x - (shifted - ROUND);
        (horner(r, SERIES) * r + 1.0) * f32::from_bits(shifted.to_bits() << 23)
    }

    /// 2 artanh(z) with z = x / (2 + x) <= 1/3, by its power series.
    #[inline(always)]
    fn ln_1p_unit(self) -> Self {
        const SERIES: [f32; 7] = [
            1.0 / 15.0,
            1.0 / 13.0,
            1.0 / 11.0,
            1.0 / 9.0,
            1.0 / 7.0,
            1.0 / 5.0,
            1.0 / 3.0,
        ];
        let z = self / (2.0 + self);
        let square = z * z;
        let half = z + z * square * horner(square, SERIES);
        half + half
    }

    /// By e^{-2|x|}; near zero, where that cancels, by the polynomial of Cephes' tanhf.
    #[inline(always)]
    fn tanh(self) -> Self {
        const SERIES: [f32; 5] = [
            -5.704_988_7e-3,
            2.063_909e-2,
            -5.373_971_6e-2,
            1.333_144_2e-1,
            -3.333_328e-1,
        ];
        let size = self.abs();
        let square = size * size;
        let near = size + size * square * horner(square, SERIES);
        let e = Float::exp(-2.0 * size);
        let far = (1.0 - e) / (1.0 + e);
        let size = if size < 0.625 { near } else { far };
        size.copysign(self)
    }

    /// A polynomial below 1, and 1 - e^{-x^2} P(1/x^2) / x above, both from Cephes' ndtrf. P is
    /// fitted for x < 2; its factor is small beyond that.
    #[inline(always)]
    fn erf(self) -> Self {
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
        let inverse = 1.0 / size;
        let near = size * horner(square, NEAR);
        let far = 1.0 - Float::exp(-square) * inverse * horner(inverse * inverse, FAR);
        let size = if size < 1.0 { near } else { far };
        size.copysign(self)
    }

    #[inline(always)]
    fn ln(self) -> Self {
        f32::ln(self)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        f32::abs(self)
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }

    fn transforms(len: usize) -> Transforms<Self> {
        planned(len)
    }
}

/// The polynomial in x with these coefficients, highest power first.
#[inline(always)]
fn horner<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut value = coefficients[0];
    for coefficient in &coefficients[1..] {
        value = value * x + coefficient;
    }
    value
}

/// 2^k for -126 <= k <= 127.
#[inline(always)]
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

#[cfg(test)]
mod tests;
