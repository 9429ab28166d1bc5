//! Elementwise ops with one operand broadcast along an axis. Candle would copy that operand first,
//! and sum its gradient on one thread.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{bail, Result, Shape, Tensor};

/// x + scale ⊙ y, with one scale per channel. `x`, `y`: (..., d); `scale`: (d); result like `x`.
pub fn add_scaled(x: &Tensor, y: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let (_, width) = shape::rows(AddScaled::NAME, ("x", x))?;
    shape::expect(AddScaled::NAME, ("y", y), ("x", x), x.dims())?;
    shape::parameter(AddScaled::NAME, ("scale", scale), ("x", x), &[width])?;
    let op = AddScaled { shape: x.shape().clone(), width };
    apply_or(op, &[x, y, scale], |_| reference::add_scaled(x, y, scale))
}

/// softplus(x + bias), with one bias per channel. `x`: (..., d), or (..., 1) for the same number in
/// every channel; `bias`: (d); result (..., d).
pub fn softplus_biased(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (leading, given) = shape::rows(SoftplusBiased::NAME, ("x", x))?;
    let [width] = shape::dims(SoftplusBiased::NAME, ("bias", bias))?;
    if given != width && given != 1 {
        bail!("softplus_biased: bias has shape [{width}], but x of shape {:?} asks for [{given}]", x.dims());
    }
    shape::parameter(SoftplusBiased::NAME, ("bias", bias), ("x", x), &[width])?;
    let op = SoftplusBiased { leading: leading.to_vec(), given, width };
    apply_or(op, &[x, bias], |_| reference::softplus_biased(x, bias))
}

/// Multiplies each head of x by a number: y\[.., s, e\] = x\[.., s, e\] scale\[.., s\].
///
/// `x`: (..., d) with `d` a multiple of the heads; `scale`: (..., heads); result like `x`.
pub fn scale_heads(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let (leading, width) = shape::rows(ScaleHeads::NAME, ("x", x))?;
    let (_, heads) = shape::rows(ScaleHeads::NAME, ("scale", scale))?;
    let needed = [leading, &[heads]].concat();
    shape::expect(ScaleHeads::NAME, ("scale", scale), ("x", x), &needed)?;
    if width % heads != 0 {
        bail!("scale_heads: x has {width} channels, which {heads} heads cannot share equally");
    }
    let op = ScaleHeads { shape: x.shape().clone(), head: width / heads };
    apply_or(op, &[x, scale], |_| reference::scale_heads(x, scale))
}

struct AddScaled {
    shape: Shape,
    width: usize,
}

impl Op for AddScaled {
    const NAME: &'static str = "add_scaled";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

struct SoftplusBiased {
    /// The axes of x before the last.
    leading: Vec<usize>,
    /// Channels of x: 1 or `width`.
    given: usize,
    width: usize,
}

impl Op for SoftplusBiased {
    const NAME: &'static str = "softplus_biased";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![[&self.leading[..], &[self.width]].concat().into()]
    }
}

struct ScaleHeads {
    shape: Shape,
    /// Channels per head.
    head: usize,
}

impl Op for ScaleHeads {
    const NAME: &'static str = "scale_heads";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
