//! Gated linear units: a function of one half of each row, times the other half.

mod cpu;
mod cuda;
mod reference;

use crate::pointwise::{Gelu, GeluTanh, Identity, Pointwise, Sigmoid, Silu};
use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{bail, Result, Shape, Tensor};
use std::marker::PhantomData;

/// The function of a gated linear unit and the half of the row that it applies to, see [`glu()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glu {
    /// The first half times sigmoid of the second.
    Sigmoid,
    /// gelu of the first half, in its exact form, times the second.
    Gelu,
    /// gelu of the first half, approximated by tanh, times the second.
    GeluTanh,
    /// silu of the first half times the second.
    Silu,
    /// The first half times the second.
    Bilinear,
}

/// A function of one half of each row, times the other half, as `kind` says.
///
/// `x`: (..., 2w); result (..., w).
pub fn glu(x: &Tensor, kind: Glu) -> Result<Tensor> {
    let by_reference = || reference::glu(x, kind);
    match kind {
        Glu::Sigmoid => apply_or(Halves::<Sigmoid>::check(x, 1)?, &[x], |_| by_reference()),
        Glu::Gelu => apply_or(Halves::<Gelu>::check(x, 0)?, &[x], |_| by_reference()),
        Glu::GeluTanh => apply_or(Halves::<GeluTanh>::check(x, 0)?, &[x], |_| by_reference()),
        Glu::Silu => apply_or(Halves::<Silu>::check(x, 0)?, &[x], |_| by_reference()),
        Glu::Bilinear => apply_or(Halves::<Identity>::check(x, 0)?, &[x], |_| by_reference()),
    }
}

struct Halves<P> {
    out: Shape,
    /// The width of each half.
    width: usize,
    /// The index, 0 or 1, of the half that the function applies to.
    curved: usize,
    function: PhantomData<P>,
}

impl<P: Pointwise> Halves<P> {
    fn check(x: &Tensor, curved: usize) -> Result<Self> {
        let (leading, both) = shape::rows(Self::NAME, ("x", x))?;
        if both % 2 != 0 {
            bail!("glu: x of shape {:?} has an odd last axis", x.dims());
        }
        let width = both / 2;
        Ok(Self { out: [leading, &[width]].concat().into(), width, curved, function: PhantomData })
    }
}

impl<P: Pointwise> Op for Halves<P> {
    const NAME: &'static str = "glu";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.out.clone()]
    }
}

#[cfg(test)]
mod tests;
