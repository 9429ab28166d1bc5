//! Batched products of matrices of activations. Linear maps, whose weights are shared by all rows, are
//! [`linear`](crate::linear()).

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use candle_core::{bail, Result, Shape, Tensor};

/// The product of the matrices in the last two axes.
///
/// `a`: (..., rows, inner); `b`: (..., inner, columns); result (..., rows, columns).
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    apply_or(Matmul::check(a, b)?, &[a, b], |_| reference::matmul(a, b))
}

struct Matmul {
    /// The axes before the last two.
    leading: Vec<usize>,
    rows: usize,
    inner: usize,
    columns: usize,
}

impl Matmul {
    fn check(a: &Tensor, b: &Tensor) -> Result<Self> {
        let ([leading @ .., rows, inner], [others @ .., depth, columns]) = (a.dims(), b.dims()) else {
            bail!("matmul: a of shape {:?} and b of shape {:?}, needed are two axes or more", a.dims(), b.dims());
        };
        if leading != others || inner != depth || a.elem_count() == 0 || b.elem_count() == 0 {
            bail!("matmul: a of shape {:?} and b of shape {:?} have no product", a.dims(), b.dims());
        }
        if a.dtype() != b.dtype() {
            bail!("matmul: a holds {:?}, but b holds {:?}", a.dtype(), b.dtype());
        }
        Ok(Self { leading: leading.to_vec(), rows: *rows, inner: *inner, columns: *columns })
    }
}

impl Op for Matmul {
    const NAME: &'static str = "matmul";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![[&self.leading[..], &[self.rows, self.columns]].concat().into()]
    }
}

#[cfg(test)]
mod tests;
