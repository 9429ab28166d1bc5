use super::Float;

/// |x - exact| in ulp of f32 at `exact`.
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
fn exp2_is_within_five_quarters_of_an_ulp_of_the_exact_value() {
    let worst = (0..126_000)
        .map(|i| i as f32 * -1e-3 + 3.3e-5)
        .chain((0..1_000_000).map(|i| i as f32 * -1e-6))
        .map(|x| ulps(Float::exp2(x), f64::from(x).exp2()))
        .fold(0.0, f64::max);
    assert!(worst <= 1.25, "{worst} ulp");
}

#[test]
fn exp2_is_exact_at_zero_and_below_the_normal_numbers() {
    assert_eq!(Float::exp2(0f32), 1.0);
    assert_eq!(Float::exp2(-0f32), 1.0);
    assert_eq!(Float::exp2(-126f32), f32::MIN_POSITIVE);
    for far in [-127.0, -1e3, -1e30, f32::NEG_INFINITY] {
        assert_eq!(Float::exp2(far), 0.0, "{far}");
    }
    assert!(Float::exp2(f32::NAN).is_nan());
    assert!(Float::exp2(-f32::NAN).is_nan());
}

#[test]
fn ln_1p_is_within_three_ulp_on_the_unit_interval() {
    let exponents = (0..80_000).map(|i| i as f32 * -1e-3);
    let worst = exponents
        .map(|x| x.exp2())
        .map(|x| ulps(x.ln_1p_unit(), f64::from(x).ln_1p()))
        .fold(0.0, f64::max);
    assert!(worst <= 3.0, "{worst} ulp");
    assert_eq!(0f32.ln_1p_unit(), 0.0);
}

#[test]
fn tanh_is_within_three_ulp() {
    let worst = (-200_000..200_000)
        .map(|i| i as f32 * 5e-5 + 1e-6)
        .map(|x| ulps(Float::tanh(x), f64::from(x).tanh()))
        .fold(0.0, f64::max);
    assert!(worst <= 3.0, "{worst} ulp");
    assert!(Float::tanh(f32::NAN).is_nan());
}

#[test]
fn erf_is_within_two_ten_millionths() {
    let worst = (-60_000..60_000)
        .map(|i| i as f32 * 1e-4)
        .map(|x| (f64::from(Float::erf(x)) - libm::erf(f64::from(x))).abs())
        .fold(0.0, f64::max);
    assert!(worst <= 2e-7, "{worst:e}");
    assert!(Float::erf(f32::NAN).is_nan());
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
