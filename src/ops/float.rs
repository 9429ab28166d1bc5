//! The number types of the fused ops, and the functions of them that hot loops need.
//!
//! The f32 versions are polynomials without branches, so that a loop over them becomes vector
//! code. No fused multiply-add is used: every instruction set then gives the same bits.

use candle_core::WithDType;
use std::ops::Neg;

/// f32 or f64.
pub(crate) trait Float: WithDType + Neg<Output = Self> + Default {
    /// e^x within 2 ulp: 0 and infinity at the far ends, subnormals between, NaN stays NaN.
    fn exp(self) -> Self;

    /// The larger one; NaN in `self` stays.
    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        if self < low {
            low
        } else {
            self
        }
    }

    /// The smaller one; NaN in `self` stays.
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
    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
    }
}

impl Float for f32 {
    /// e^x = 2^k e^r with |r| <= ln(2)/2; the polynomial for e^r is that of Cephes' expf.
    #[inline(always)]
    fn exp(self) -> Self {
        const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves round(x) in the low bits
        const LN2_HIGH: f32 = 0.693_359_4; // 9 bits, so that k * LN2_HIGH is exact
        const LN2_LOW: f32 = -2.121_944_4e-4;
        let x = self.at_least(-104.0).at_most(89.0);
        let shifted = x * std::f32::consts::LOG2_E + ROUND;
        let k = shifted - ROUND;
        let r = x - k * LN2_HIGH - k * LN2_LOW;
        let mut p = 1.987_569_1e-4;
        for coefficient in [
            1.398_2e-3,
            8.333_452e-3,
            4.166_579_6e-2,
            1.666_666_5e-1,
            0.5,
        ] {
            p = p * r + coefficient;
        }
        let k = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
        // Two factors, for 2^k alone would miss the subnormals and the last binade.
        let half = k >> 1;
        (p * r * r + r + 1.0) * power_of_two(half) * power_of_two(k.wrapping_sub(half))
    }
}

/// 2^k for -126 <= k <= 127.
#[inline(always)]
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::Float;

    /// |x - exact| in units of the last place of f32 at `exact`.
    fn ulps(x: f32, exact: f64) -> f64 {
        let place = (exact.abs() as f32).max(f32::MIN_POSITIVE).to_bits() & 0x7f80_0000;
        (f64::from(x) - exact).abs() / (f64::from(f32::from_bits(place)) * f64::from(f32::EPSILON))
    }

    #[test]
    fn exp_is_within_two_ulp_of_the_exact_value() {
        let worst = (-103_900..88_720)
            .map(|i| i as f32 * 1e-3 + 3.3e-5)
            .map(|x| ulps(Float::exp(x), f64::from(x).exp()))
            .fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst} ulp");
    }

    #[test]
    fn exp_is_exact_at_zero_and_at_the_ends() {
        assert_eq!(Float::exp(0f32), 1.0);
        assert_eq!(Float::exp(-0f32), 1.0);
        for far in [-104.5, -1e3, -1e30, f32::NEG_INFINITY] {
            assert_eq!(Float::exp(far), 0.0, "{far}");
        }
        for far in [89.0, 1e3, 1e30, f32::INFINITY] {
            assert_eq!(Float::exp(far), f32::INFINITY, "{far}");
        }
        assert!(Float::exp(f32::NAN).is_nan());
    }
}
