//! Passes on the CPU.

use super::{Elu1, Fused, Gelu, GeluTanh, Identity, Phi1, Pointwise, Sigmoid, Silu, Softplus, Tanh};
use crate::runtime::autograd::{Backward, CpuOp, Forward, Used};
use crate::runtime::float::Float;
use crate::runtime::lanes::map_chunks;
use crate::runtime::parallel::InParallel;
use dsf_simd::simd;

/// Elements per task.
pub(super) const CHUNK: usize = 1 << 14;

impl<P: Pointwise> CpuOp for Fused<P> {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![map_chunks(ins[0], [CHUNK; 2], values::<P, F>)]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let Used { value, grad } = call.only();
        let mut gx = grad.to_vec();
        gx.chunks_mut(CHUNK)
            .zip(call.ins[0].chunks(CHUNK).zip(value.chunks(CHUNK)))
            .in_parallel(|(gx, (x, y))| multiply_slopes::<P, F>(x, y, gx));
        vec![gx]
    }
}

/// `y = f(x)`.
#[simd]
pub(crate) fn values<P: Pointwise, F: Float>(x: &[F], y: &mut [F]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = P::value(x);
    }
}

/// `gx *= f'(x)`, with `y = f(x)` for the functions whose derivative uses it.
#[simd]
fn multiply_slopes<P: Pointwise, F: Float>(x: &[F], y: &[F], gx: &mut [F]) {
    for ((gx, &x), &y) in gx.iter_mut().zip(x).zip(y) {
        *gx *= P::slope(x, y);
    }
}

/// √(2/π) and the factor of the cube in [`GeluTanh`].
const TANH_SCALE: f64 = 0.797_884_560_802_865_4;
const TANH_CUBE: f64 = 0.044_715;
/// Largest |x| in the derivative of [`GeluTanh`]; further out it is 0 or 1.
const TANH_RANGE: f64 = 1e3;

/// The cumulative distribution function of the standard normal distribution.
#[inline(always)]
fn normal_below<F: Float>(x: F) -> F {
    let half = F::of(0.5);
    half.fma((x * F::of(std::f64::consts::FRAC_1_SQRT_2)).erf(), half)
}

impl Pointwise for Sigmoid {
    const NAME: &'static str = "sigmoid";

    /// Computed by e^{-|x|}, which cannot overflow.
    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        let e = (-x.abs()).exp();
        let above = F::one() / (F::one() + e);
        if x < F::zero() {
            e * above
        } else {
            above
        }
    }

    #[inline(always)]
    fn slope<F: Float>(_: F, y: F) -> F {
        y * (F::one() - y)
    }
}

impl Pointwise for Softplus {
    const NAME: &'static str = "softplus";

    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        x.at_least(F::zero()) + (-x.abs()).exp().ln_1p_unit()
    }

    #[inline(always)]
    fn slope<F: Float>(x: F, _: F) -> F {
        Sigmoid::value(x)
    }
}

impl Pointwise for Elu1 {
    const NAME: &'static str = "elu1";

    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        let e = x.exp();
        if x > F::zero() {
            x + F::one()
        } else {
            e
        }
    }

    #[inline(always)]
    fn slope<F: Float>(x: F, y: F) -> F {
        if x > F::zero() {
            F::one()
        } else {
            y
        }
    }
}

impl Gelu {
    #[inline(always)]
    pub(crate) fn value_and_slope<F: Float>(x: F) -> (F, F) {
        let below = normal_below(x);
        let density = (F::of(-0.5) * x * x).exp();
        let slope = below + x * density * F::of(0.398_942_280_401_432_7); // 1 / sqrt(2 pi)
        (x * below, slope)
    }
}

impl Pointwise for Gelu {
    const NAME: &'static str = "gelu";

    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        x * normal_below(x)
    }

    #[inline(always)]
    fn slope<F: Float>(x: F, _: F) -> F {
        Self::value_and_slope(x).1
    }
}

impl Pointwise for GeluTanh {
    const NAME: &'static str = "gelu_tanh";

    /// (1 + tanh(v)) / 2 is sigmoid(2 v).
    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        x * Sigmoid::value(x * F::of(2.0 * TANH_SCALE).fma(F::of(TANH_CUBE) * x * x, F::of(2.0 * TANH_SCALE)))
    }

    #[inline(always)]
    fn slope<F: Float>(x: F, _: F) -> F {
        let scale = F::of(2.0 * TANH_SCALE);
        let s = Sigmoid::value(x * scale.fma(F::of(TANH_CUBE) * x * x, scale));
        // Beyond, s (1 - s) is 0, and the cube would overflow.
        let near = -(-x.at_least(-F::of(TANH_RANGE))).at_least(-F::of(TANH_RANGE));
        let inner = scale.fma(F::of(3.0 * TANH_CUBE) * near * near, scale);
        s + near * s * (F::one() - s) * inner
    }
}

impl Pointwise for Silu {
    const NAME: &'static str = "silu";

    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        x * Sigmoid::value(x)
    }

    #[inline(always)]
    fn slope<F: Float>(x: F, _: F) -> F {
        let s = Sigmoid::value(x);
        s + s * x * (F::one() - s)
    }
}

impl Pointwise for Identity {
    const NAME: &'static str = "identity";

    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        x
    }

    #[inline(always)]
    fn slope<F: Float>(_: F, _: F) -> F {
        F::one()
    }
}

impl Pointwise for Tanh {
    const NAME: &'static str = "tanh";

    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        x.tanh()
    }

    #[inline(always)]
    fn slope<F: Float>(_: F, y: F) -> F {
        F::one() - y * y
    }
}

/// Terms of the power series in [`Phi1`]: at |x| = 1/2 the next one is below the rounding error.
const TERMS_OF_F32: usize = 8;
const TERMS_OF_F64: usize = 14;

/// 1/(j+1)! for each power j of φ₁, and (j+1)/(j+2)! for each power of its derivative.
const SERIES: [[f64; TERMS_OF_F64]; 2] = {
    let mut series = [[0.0; TERMS_OF_F64]; 2];
    let (mut j, mut factorial) = (0, 1.0);
    while j < TERMS_OF_F64 {
        factorial *= (j + 1) as f64;
        series[0][j] = 1.0 / factorial;
        series[1][j] = (j + 1) as f64 / (factorial * (j + 2) as f64);
        j += 1;
    }
    series
};

impl Phi1 {
    /// Whether the power series is exact at x; elsewhere the difference e^x - 1 is.
    #[inline(always)]
    pub(crate) fn is_near<F: Float>(x: F) -> bool {
        x.abs() < F::of(0.5)
    }

    /// The power series of φ₁ (0) or of its derivative (1), for small x.
    #[inline(always)]
    pub(crate) fn series<F: Float>(of: usize, x: F) -> F {
        let terms = if size_of::<F>() == size_of::<f64>() { TERMS_OF_F64 } else { TERMS_OF_F32 };
        let mut sum = F::of(SERIES[of][terms - 1]);
        for j in (0..terms - 1).rev() {
            sum = sum.fma(x, F::of(SERIES[of][j]));
        }
        sum
    }
}

impl Pointwise for Phi1 {
    const NAME: &'static str = "phi1";

    #[inline(always)]
    fn value<F: Float>(x: F) -> F {
        let (near, far) = (Self::series(0, x), (x.exp() - F::one()) / x);
        if Self::is_near(x) {
            near
        } else {
            far
        }
    }

    #[inline(always)]
    fn slope<F: Float>(x: F, y: F) -> F {
        let (near, far) = (Self::series(1, x), (x.exp() - y) / x);
        if Self::is_near(x) {
            near
        } else {
            far
        }
    }
}
