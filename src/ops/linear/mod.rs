//! One or more linear maps of the same input, in one pass over its rows in either direction. Candle
//! would add the gradients of the maps, and those of the biases, in separate passes.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod reference;

use crate::runtime::autograd::{apply, runs_on, Op};
use crate::runtime::shape;
use candle_core::{bail, Result, Shape, Tensor};

/// x W^T + b over the last axis.
///
/// `x`: (..., in); `w`: (out, in); `b`: (out); result (..., out).
pub fn linear(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    Ok(linears(x, &[(w, b)])?.remove(0))
}

/// [`linear`] for each of up to four weights and biases; either all maps have a bias or none has.
pub fn linears(x: &Tensor, maps: &[(&Tensor, Option<&Tensor>)]) -> Result<Vec<Tensor>> {
    let op = Linear::check(x, maps)?;
    if !maps.is_empty() && runs_on(x) {
        let weights = maps.iter().map(|(w, _)| *w);
        let biases = maps.iter().filter_map(|(_, b)| *b);
        let ins: Vec<&Tensor> = std::iter::once(x).chain(weights).chain(biases).collect();
        apply(op, &ins)
    } else {
        maps.iter().map(|(w, b)| reference::linear(x, w, *b)).collect()
    }
}

struct Linear {
    /// The axes of x before the last.
    leading: Vec<usize>,
    inner: usize,
    outs: Vec<usize>,
    biased: bool,
}

impl Linear {
    fn check(x: &Tensor, maps: &[(&Tensor, Option<&Tensor>)]) -> Result<Self> {
        let (leading, inner) = shape::rows(Self::NAME, ("x", x))?;
        let biased = maps.first().is_some_and(|(_, b)| b.is_some());
        let mut outs = Vec::new();
        for (w, b) in maps {
            let [out, _] = shape::dims(Self::NAME, ("w", w))?;
            shape::parameter(Self::NAME, ("w", w), ("x", x), &[out, inner])?;
            if let Some(b) = b {
                shape::expect(Self::NAME, ("b", b), ("w", w), &[out])?;
            }
            if b.is_some() != biased {
                bail!("linear: either all maps of an input have a bias or none has");
            }
            outs.push(out);
        }
        Ok(Self { leading: leading.to_vec(), inner, outs, biased })
    }

    fn rows(&self) -> usize {
        self.leading.iter().product()
    }
}

impl Op for Linear {
    const NAME: &'static str = "linear";

    fn out_shapes(&self) -> Vec<Shape> {
        let shape = |&out: &usize| [&self.leading[..], &[out]].concat().into();
        self.outs.iter().map(shape).collect()
    }
}

#[cfg(test)]
mod tests;
