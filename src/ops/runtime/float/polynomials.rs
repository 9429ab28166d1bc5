//! The elementary functions of f32 as polynomials without branches, so that loops over them vectorise.

use super::Float;

/// One of the two f32 types.
pub(super) trait Single: Float + From<f32> + Into<f32> {
    /// Evaluates the polynomial in `self` with these coefficients, highest power first.
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
}

/// e^x = 2^k e^r with |r| <= ln(2)/2; the polynomial for e^r is that of Cephes' expf.
#[inline(always)]
pub(super) fn exp<S: Single>(x: S) -> S {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves round(x) in the low bits
    const LN2_HIGH: f32 = 0.693_359_4; // 9 bits, so that k * LN2_HIGH is exact
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const SERIES: [f32; 6] = [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let x = x.at_least(S::from(-104.0)).at_most(S::from(89.0));
    let shifted = x.fma(S::from(std::f32::consts::LOG2_E), S::from(ROUND));
    let k = shifted - S::from(ROUND);
    let r = k.fma(S::from(-LN2_HIGH), x);
    let r = k.fma(S::from(-LN2_LOW), r);
    let k = (shifted.bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    // Two factors are needed: 2^k alone would not reach the subnormals and the last binade.
    let half = k >> 1;
    (r.horner(SERIES).fma(r * r, r) + S::one()) * S::power_of_two(half) * S::power_of_two(k.wrapping_sub(half))
}

/// 2^k 2^r with |r| <= 1/2; the polynomial for 2^r has the least relative error, 2e-9, among
/// those of its degree that are 1 at zero.
#[inline(always)]
pub(super) fn exp2<S: Single>(x: S) -> S {
    // Adding ROUND leaves round(x) + 127, the exponent bits of 2^k, in the low bits.
    const ROUND: f32 = 12_582_912.0 + 127.0; // 1.5 * 2^23 + 127
    const SERIES: [f32; 7] =
        [1.535_336_2e-4, 1.339_887_4e-3, 9.618_437e-3, 5.550_332_4e-2, 2.402_264_8e-1, std::f32::consts::LN_2, 1.0];
    let x = x.at_least(S::from(-127.0));
    let shifted = x + S::from(ROUND);
    let r = x - (shifted - S::from(ROUND));
    r.horner(SERIES) * S::with_bits(shifted.bits() << 23)
}

/// 2 artanh(z) with z = x / (2 + x) <= 1/3, by its power series.
#[inline(always)]
pub(super) fn ln_1p_unit<S: Single>(x: S) -> S {
    const SERIES: [f32; 7] = [1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0];
    let z = x / (S::from(2.0) + x);
    let square = z * z;
    let half = (z * square).fma(square.horner(SERIES), z);
    half + half
}

/// tanh by e^{-2|x|}; near zero, where that cancels, by the polynomial of Cephes' tanhf.
#[inline(always)]
pub(super) fn tanh<S: Single>(x: S) -> S {
    const SERIES: [f32; 5] = [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1];
    let size = x.abs();
    let square = size * size;
    let near = (size * square).fma(square.horner(SERIES), size);
    let e = exp(S::from(-2.0) * size);
    let far = (S::one() - e) / (S::one() + e);
    let size = if size < S::from(0.625) { near } else { far };
    size.with_sign_of(x)
}

/// erf by a polynomial below 1, and by 1 - e^{-x^2} P(1/x^2) / x above, both from Cephes' ndtrf. P is fitted for x < 2;
/// its factor is small beyond that.
#[inline(always)]
pub(super) fn erf<S: Single>(x: S) -> S {
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
    let size = x.abs();
    let square = size * size;
    let inverse = S::one() / size;
    let near = size * square.horner(NEAR);
    let tail = exp(-square) * inverse;
    let far = S::one() - tail * (inverse * inverse).horner(FAR);
    let size = if size < S::one() { near } else { far };
    size.with_sign_of(x)
}
