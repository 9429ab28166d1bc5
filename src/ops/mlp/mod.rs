//! Feed-forward layer of a block. Only the pre-activation of its hidden layer, four times as wide as the input, is
//! saved; all other intermediate results exist for a few rows at a time, while Candle would store six tensors of that
//! size.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::mask::{Dropout, Mask};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// gelu(x W1^T + b1) W2^T + b2 over the last axis.
///
/// `x`: (..., in); `w1`: (hidden, in); `b1`: (hidden); `w2`: (out, hidden); `b2`: (out); result
/// (..., out). The hidden layer and the result may each be dropped out, with the masks of
/// [`dropout`](crate::dropout()).
pub fn mlp(
    x: &Tensor,
    [w1, b1]: [&Tensor; 2],
    [w2, b2]: [&Tensor; 2],
    dropout: [Option<Dropout>; 2],
) -> Result<Tensor> {
    let op = Mlp::check(x, [w1, b1], [w2, b2], dropout)?;
    apply_or(op, &[x, w1, b1, w2, b2], |op| reference::mlp(x, [w1, b1], [w2, b2], op.masks))
}

struct Mlp {
    /// The axes of x before the last.
    leading: Vec<usize>,
    inner: usize,
    hidden: usize,
    out: usize,
    /// The masks of the hidden layer and of the result.
    masks: [Option<Mask>; 2],
}

impl Mlp {
    fn check(
        x: &Tensor,
        [w1, b1]: [&Tensor; 2],
        [w2, b2]: [&Tensor; 2],
        dropout: [Option<Dropout>; 2],
    ) -> Result<Self> {
        let (leading, inner) = shape::rows(Self::NAME, ("x", x))?;
        let [hidden, _] = shape::dims(Self::NAME, ("w1", w1))?;
        let [out, _] = shape::dims(Self::NAME, ("w2", w2))?;
        shape::parameter(Self::NAME, ("w1", w1), ("x", x), &[hidden, inner])?;
        shape::expect(Self::NAME, ("b1", b1), ("w1", w1), &[hidden])?;
        shape::expect(Self::NAME, ("w2", w2), ("w1", w1), &[out, hidden])?;
        shape::expect(Self::NAME, ("b2", b2), ("w2", w2), &[out])?;
        let masks = [Mask::new(Self::NAME, dropout[0])?, Mask::new(Self::NAME, dropout[1])?];
        Ok(Self { leading: leading.to_vec(), inner, hidden, out, masks })
    }

    fn rows(&self) -> usize {
        self.leading.iter().product()
    }
}

impl Op for Mlp {
    const NAME: &'static str = "mlp";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![[&self.leading[..], &[self.out]].concat().into()]
    }
}

#[cfg(test)]
mod tests;
