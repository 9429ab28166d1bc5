//! The RMS norm of Hawk, without an eps.

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{largest_of, map_chunks, map_chunks_with_sums, total};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor, D};
use dsf_simd::simd;

mod launch;

/// Rows per task, and per partial sum of the gradient of gamma.
const ROWS: usize = 64;

/// gamma sqrt(d) x / |x| over the last axis (De et al. 2024; the released code of Hawk has no eps).
///
/// `x`: (..., d); `gamma`: (d); result like `x`. A row in which no number exceeds 2^-126, such as a
/// row of zeros, gives zeros and has a gradient of zeros; the scale of other rows is arbitrary.
pub fn rms_norm(x: &Tensor, gamma: &Tensor) -> Result<Tensor> {
    let (_, width) = shape::rows(RmsNorm::NAME, ("x", x))?;
    shape::parameter(RmsNorm::NAME, ("gamma", gamma), ("x", x), &[width])?;
    if runs_on(x) {
        let shape = x.shape().clone();
        apply_one(RmsNorm { shape, width }, &[x, gamma])
    } else {
        reference(x, &gamma.to_dtype(x.dtype())?)
    }
}

fn reference(x: &Tensor, gamma: &Tensor) -> Result<Tensor> {
    let squares = x.sqr()?.sum_keepdim(D::Minus1)?;
    let zero = squares.eq(0.0)?.to_dtype(x.dtype())?;
    let root = ((x.dim(D::Minus1)? as f64).sqrt() * (1.0 - &zero)?)?;
    // sqrt has no derivative at zero: rows of zeros take that at one, times zero
    let factor = (root / (squares + zero)?.sqrt()?)?;
    x.broadcast_mul(&factor)?.broadcast_mul(gamma)
}

struct RmsNorm {
    shape: Shape,
    width: usize,
}

impl FusedOp for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![map_chunks(ins[0], [ROWS * self.width; 2], |x, y| {
            forward_rows(x, ins[1], y);
        })]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, gamma, gy) = (call.ins[0], call.ins[1], call.only().grad);
        let chunks = [ROWS * self.width; 2];
        map_chunks_with_sums([x, gy], chunks, self.width, |[x, gy], gx, part| {
            backward_rows(x, gamma, gy, gx, part);
        })
        .into()
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.launch_rows(call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_gradients(call)
    }
}

/// sqrt(d) / |x|. The squares are those of x divided by its largest number, as those of x itself
/// could overflow or underflow.
#[inline(always)]
fn factor<F: Float>(x: &[F]) -> F {
    let most = largest_of(x, F::abs);
    if most < F::of(f64::from(f32::MIN_POSITIVE)) {
        return F::zero();
    }
    let inverse = F::one() / most;
    let squares = total([x], |[x]| (x * inverse) * (x * inverse));
    inverse * (F::of(x.len() as f64) / squares).sqrt()
}

#[simd]
fn forward_rows<F: Float>(x: &[F], gamma: &[F], y: &mut [F]) {
    let rows = x.chunks_exact(gamma.len());
    for (x, y) in rows.zip(y.chunks_exact_mut(gamma.len())) {
        let factor = factor(x);
        for ((y, &x), &gamma) in y.iter_mut().zip(x).zip(gamma) {
            *y = x * factor * gamma;
        }
    }
}

#[simd]
fn backward_rows<F: Float>(x: &[F], gamma: &[F], gy: &[F], gx: &mut [F], sums: &mut [F]) {
    let width = gamma.len();
    let count = F::of(width as f64);
    let rows = x.chunks_exact(width).zip(gy.chunks_exact(width));
    for ((x, gy), gx) in rows.zip(gx.chunks_exact_mut(width)) {
        // dL/dx = (g - n mean(g n)) sqrt(d) / |x|, with n = sqrt(d) x / |x| and g = gy gamma
        let factor = factor(x);
        let along = total([x, gamma, gy], |[x, gamma, gy]| gy * gamma * (x * factor)) / count;
        for i in 0..width {
            let normed = x[i] * factor;
            gx[i] = gy[i].fma(gamma[i], -normed * along) * factor;
            sums[i] = gy[i].fma(normed, sums[i]);
        }
    }
}

#[cfg(test)]
mod tests;
