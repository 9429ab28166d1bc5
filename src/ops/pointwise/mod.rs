//! Elementwise functions with exact derivatives, in one pass forward and one backward.

use crate::gpu::{Buffer, Grid, Kernel};
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward, Used};
use crate::runtime::float::Float;
use crate::runtime::lanes::map_chunks;
use crate::runtime::parallel::InParallel;
use candle_core::{Result, Shape, Tensor};
use dsf_simd::simd;
use std::marker::PhantomData;

/// Elements per task.
const CHUNK: usize = 1 << 14;

/// A function, its derivative, and its reference in tensor ops.
pub(super) trait Pointwise: Send + Sync + 'static {
    const NAME: &'static str;
    fn value<F: Float>(x: F) -> F;
    /// The derivative at `x`, where the value is `y`.
    fn slope<F: Float>(x: F, y: F) -> F;
    fn reference(x: &Tensor) -> Result<Tensor>;
}

/// 1 / (1 + e^{-x}) of every element; any shape.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    pointwise::<Sigmoid>(x)
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e^{-|x|}) of every element; any shape.
///
/// The relative error is small for all x, also where the result is close to e^x.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    pointwise::<Softplus>(x)
}

/// elu(x) + 1 of every element: x + 1 for x > 0, e^x otherwise; any shape.
pub fn elu1(x: &Tensor) -> Result<Tensor> {
    pointwise::<Elu1>(x)
}

/// x (1 + erf(x / sqrt 2)) / 2 of every element, the exact form; any shape.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    pointwise::<Gelu>(x)
}

/// x sigmoid(x) of every element; any shape.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    pointwise::<Silu>(x)
}

/// tanh of every element; any shape.
pub fn tanh(x: &Tensor) -> Result<Tensor> {
    pointwise::<Tanh>(x)
}

pub(super) struct Sigmoid;
pub(super) struct Softplus;
struct Elu1;
pub(super) struct Gelu;
struct Silu;
struct Tanh;

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

    fn reference(x: &Tensor) -> Result<Tensor> {
        (x.neg()?.exp()? + 1.0)?.recip()
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

    fn reference(x: &Tensor) -> Result<Tensor> {
        x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
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

    fn reference(x: &Tensor) -> Result<Tensor> {
        x.relu()? + x.minimum(0.0)?.exp()?
    }
}

/// The cumulative distribution function of the standard normal distribution.
#[inline(always)]
fn normal_below<F: Float>(x: F) -> F {
    let half = F::of(0.5);
    half.fma((x * F::of(std::f64::consts::FRAC_1_SQRT_2)).erf(), half)
}

impl Gelu {
    #[inline(always)]
    pub(super) fn value_and_slope<F: Float>(x: F) -> (F, F) {
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

    /// Candle's `gelu_erf` is not used: its gradient has an error of 3e-8 from a constant with six digits.
    fn reference(x: &Tensor) -> Result<Tensor> {
        let below = (((x * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5)?;
        x * below
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

    fn reference(x: &Tensor) -> Result<Tensor> {
        x * Sigmoid::reference(x)?
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

    fn reference(x: &Tensor) -> Result<Tensor> {
        x.tanh()
    }
}

fn pointwise<P: Pointwise>(x: &Tensor) -> Result<Tensor> {
    if runs_on(x) {
        apply_one(Fused::<P>(x.shape().clone(), PhantomData), &[x])
    } else {
        P::reference(x)
    }
}

struct Fused<P>(Shape, PhantomData<P>);

impl<P: Pointwise> FusedOp for Fused<P> {
    const NAME: &'static str = P::NAME;

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.0.clone()]
    }

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

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (io, count) = (ins[0].dtype(), ins[0].len());
        let mut y = gpu.alloc(io, count)?;
        let kernel = Kernel::of("pointwise", &format!("{}_forward", P::NAME), io);
        let args = [ins[0].into(), (&mut y).into(), count.into()];
        gpu.launch(kernel, Grid::for_each(count), &args)?;
        Ok(vec![y])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let Used { value, grad } = call.only();
        let (io, count) = (value.dtype(), value.len());
        let mut gx = call.gpu.alloc(io, count)?;
        let kernel = Kernel::of("pointwise", &format!("{}_backward", P::NAME), io);
        let x = call.ins[0];
        let args = [x.into(), value.into(), grad.into(), (&mut gx).into(), count.into()];
        call.gpu.launch(kernel, Grid::for_each(count), &args)?;
        Ok(vec![Some(gx)])
    }
}

/// `y = f(x)`.
#[simd]
pub(super) fn values<P: Pointwise, F: Float>(x: &[F], y: &mut [F]) {
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

#[cfg(test)]
mod tests;
