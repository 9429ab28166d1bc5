use super::*;
use crate::runtime::lanes::{each, Lanes};
use crate::runtime::simd::Simd;
use dsf_simd::simd;

/// Returns |x - exact| in ulp of f32 at `exact`.
fn ulps(x: f32, exact: f64) -> f64 {
    let place = (exact.abs() as f32).max(f32::MIN_POSITIVE).to_bits() & 0x7f80_0000;
    (f64::from(x) - exact).abs() / (f64::from(f32::from_bits(place)) * f64::from(f32::EPSILON))
}

/// A function of f32, implemented for the two types.
type Both = [fn(f32) -> f32; 2];

macro_rules! both {
    ($function:ident) => {
        [|x| Float::$function(x), |x| Fma::from(x).$function().peel()] as Both
    };
}

/// Returns the largest `error` of the function at `inputs`, over both types.
fn worst(function: Both, inputs: impl Iterator<Item = f32> + Clone, error: impl Fn(f32, f32) -> f64) -> f64 {
    let errors = |function: fn(f32) -> f32| {
        let errors = inputs.clone().map(|x| error(x, function(x)));
        errors.fold(0.0, f64::max)
    };
    function.map(errors).into_iter().fold(0.0, f64::max)
}

#[test]
fn exp_is_within_two_ulp_of_the_exact_value() {
    let inputs = (-103_900..88_720).map(|i| i as f32 * 1e-3 + 3.3e-5);
    let worst = worst(both!(exp), inputs, |x, y| ulps(y, f64::from(x).exp()));
    assert!(worst <= 2.0, "{worst} ulp");
}

#[test]
fn exp2_is_within_five_quarters_of_an_ulp_of_the_exact_value() {
    let inputs = (0..126_000).map(|i| i as f32 * -1e-3 + 3.3e-5).chain((0..1_000_000).map(|i| i as f32 * -1e-6));
    let worst = worst(both!(exp2), inputs, |x, y| ulps(y, f64::from(x).exp2()));
    assert!(worst <= 1.25, "{worst} ulp");
}

#[test]
fn exp2_is_exact_at_zero_and_below_the_normal_numbers() {
    for exp2 in both!(exp2) {
        assert_eq!(exp2(0.0), 1.0);
        assert_eq!(exp2(-0.0), 1.0);
        assert_eq!(exp2(-126.0), f32::MIN_POSITIVE);
        for far in [-127.0, -1e3, -1e30, f32::NEG_INFINITY] {
            assert_eq!(exp2(far), 0.0, "{far}");
        }
        assert!(exp2(f32::NAN).is_nan());
        assert!(exp2(-f32::NAN).is_nan());
    }
}

#[test]
fn ln_1p_is_within_three_ulp_on_the_unit_interval() {
    let inputs = (0..80_000).map(|i| (i as f32 * -1e-3).exp2());
    let worst = worst(both!(ln_1p_unit), inputs, |x, y| ulps(y, f64::from(x).ln_1p()));
    assert!(worst <= 3.0, "{worst} ulp");
    assert!(both!(ln_1p_unit).map(|f| f(0.0)) == [0.0; 2]);
}

#[test]
fn tanh_is_within_three_ulp() {
    let inputs = (-200_000..200_000).map(|i| i as f32 * 5e-5 + 1e-6);
    let worst = worst(both!(tanh), inputs, |x, y| ulps(y, f64::from(x).tanh()));
    assert!(worst <= 3.0, "{worst} ulp");
    assert!(both!(tanh).map(|f| f(f32::NAN).is_nan()) == [true; 2]);
}

#[test]
fn erf_is_within_two_ten_millionths() {
    let inputs = (-60_000..60_000).map(|i| i as f32 * 1e-4);
    let worst = worst(both!(erf), inputs, |x, y| (f64::from(y) - libm::erf(f64::from(x))).abs());
    assert!(worst <= 2e-7, "{worst:e}");
    assert!(both!(erf).map(|f| f(f32::NAN).is_nan()) == [true; 2]);
}

#[test]
fn exp_is_exact_at_zero_and_at_the_ends() {
    for exp in both!(exp) {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        for far in [-104.5, -1e3, -1e30, f32::NEG_INFINITY] {
            assert_eq!(exp(far), 0.0, "{far}");
        }
        for far in [89.0, 1e3, 1e30, f32::INFINITY] {
            assert_eq!(exp(far), f32::INFINITY, "{far}");
        }
        assert!(exp(f32::NAN).is_nan());
    }
}

#[simd]
fn squares_less<F: Float>(x: &Lanes<F>, add: F) -> Lanes<F> {
    each(|i| x[i].fma(x[i], add))
}

/// (1 + ε)² = 1 + 2 ε + ε²; the last term is lost if the square is rounded first.
#[test]
fn the_type_of_an_instruction_set_that_fuses_rounds_once() {
    let fuses = Simd::current().fuses();
    let x = 1.0 + f32::EPSILON;
    let found = in_single!(F => F::peel_vec(
        squares_less(&[F::wrap(x); 16], F::wrap(-1.0 - 2.0 * f32::EPSILON)).to_vec(),
    ));
    let once = f32::EPSILON * f32::EPSILON;
    assert_eq!(found, [if fuses { once } else { 0.0 }; 16]);
}
