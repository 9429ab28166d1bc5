//! Elementwise functions with exact derivatives, in one pass forward and one backward.

pub(crate) mod cpu;
mod cuda;
pub(crate) mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::float::Float;
use candle_core::{Result, Shape, Tensor};

use std::marker::PhantomData;

/// A function and its derivative.
pub(crate) trait Pointwise: Send + Sync + 'static {
    const NAME: &'static str;
    fn value<F: Float>(x: F) -> F;
    /// The derivative at `x`, where the value is `y`.
    fn slope<F: Float>(x: F, y: F) -> F;
}

/// 1 / (1 + e^{-x}) of every element; any shape.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    pointwise::<Sigmoid>(x, reference::sigmoid)
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e^{-|x|}) of every element; any shape.
///
/// The relative error is small for all x, also where the result is close to e^x.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    pointwise::<Softplus>(x, reference::softplus)
}

/// elu(x) + 1 of every element: x + 1 for x > 0, e^x otherwise; any shape.
pub fn elu1(x: &Tensor) -> Result<Tensor> {
    pointwise::<Elu1>(x, reference::elu1)
}

/// x (1 + erf(x / sqrt 2)) / 2 of every element, the exact form; any shape.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    pointwise::<Gelu>(x, reference::gelu)
}

/// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 of every element, the approximation of [`gelu`] in GPT-2 and Gemma; any
/// shape.
pub fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    pointwise::<GeluTanh>(x, reference::gelu_tanh)
}

/// x sigmoid(x) of every element; any shape.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    pointwise::<Silu>(x, reference::silu)
}

/// tanh of every element; any shape.
pub fn tanh(x: &Tensor) -> Result<Tensor> {
    pointwise::<Tanh>(x, reference::tanh)
}

/// φ₁(x) = (e^x - 1)/x of every element, 1 at 0; any shape. It overflows like e^x.
///
/// The relative error is small for all x, also close to 0.
pub fn phi1(x: &Tensor) -> Result<Tensor> {
    pointwise::<Phi1>(x, reference::phi1)
}

pub(crate) struct Sigmoid;
pub(crate) struct Softplus;
struct Elu1;
pub(crate) struct Gelu;
pub(crate) struct GeluTanh;
pub(crate) struct Silu;
pub(crate) struct Identity;
pub(crate) struct Tanh;
pub(crate) struct Phi1;

fn pointwise<P: Pointwise>(x: &Tensor, reference: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    apply_or(Fused::<P>(x.shape().clone(), PhantomData), &[x], |_| reference(x))
}

struct Fused<P>(Shape, PhantomData<P>);

impl<P: Pointwise> Op for Fused<P> {
    const NAME: &'static str = P::NAME;

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.0.clone()]
    }
}

#[cfg(test)]
mod tests;
