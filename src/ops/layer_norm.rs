//! Layer normalisation; candle-nn's fused one has no backward pass.

use super::float::Float;
use super::fused::{apply_one, runs_on, Backward, Forward, FusedOp};
use super::lanes::{sum_parts, total};
use super::shape;
use candle_core::{bail, Result, Shape, Tensor, D};
use multiversion::multiversion;
use rayon::prelude::*;

/// Rows per task, and per partial sum of the gradients of weight and bias.
const ROWS: usize = 64;

/// (x - mean) / sqrt(var + eps) * weight + bias over the last axis, with the biased variance.
///
/// `x`: (..., d); `weight`, `bias`: (d); result like `x`.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let width = match x.dims() {
        [.., width] if x.elem_count() > 0 => *width,
        dims => bail!("layer_norm: x has shape {dims:?}, needed is a last axis and no empty one"),
    };
    shape::expect(LayerNorm::NAME, ("weight", weight), ("x", x), &[width])?;
    shape::expect(LayerNorm::NAME, ("bias", bias), ("x", x), &[width])?;
    if runs_on(x) {
        let shape = x.shape().clone();
        apply_one(LayerNorm { shape, width, eps }, &[x, weight, bias])
    } else {
        reference(x, weight, bias, eps)
    }
}

fn reference(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let normed = centred.broadcast_div(&(variance + eps)?.sqrt()?)?;
    normed.broadcast_mul(weight)?.broadcast_add(bias)
}

struct LayerNorm {
    shape: Shape,
    width: usize,
    eps: f64,
}

impl FusedOp for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = vec![F::zero(); ins[0].len()];
        let chunk = ROWS * self.width;
        y.par_chunks_mut(chunk)
            .zip(ins[0].par_chunks(chunk))
            .for_each(|(y, x)| forward_rows(x, ins[1], ins[2], F::from_f64(self.eps), y));
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, weight, gy) = (call.ins[0], call.ins[1], call.only().grad);
        let chunk = ROWS * self.width;
        let mut gx = vec![F::zero(); x.len()];
        let parts = x.len().div_ceil(chunk) * self.width;
        let (mut gw, mut gb) = (vec![F::zero(); parts], vec![F::zero(); parts]);
        gx.par_chunks_mut(chunk)
            .zip(
                gw.par_chunks_mut(self.width)
                    .zip(gb.par_chunks_mut(self.width)),
            )
            .zip(x.par_chunks(chunk).zip(gy.par_chunks(chunk)))
            .for_each(|((gx, (gw, gb)), (x, gy))| {
                backward_rows(x, weight, F::from_f64(self.eps), gy, gx, gw, gb);
            });
        vec![gx, sum_parts(&gw, self.width), sum_parts(&gb, self.width)]
    }
}

/// The mean of a row and 1 / sqrt(var + eps).
#[inline(always)]
fn moments<F: Float>(x: &[F], eps: F) -> (F, F) {
    let count = F::from_f64(x.len() as f64);
    let mean = total([x], |[x]| x) / count;
    let variance = total([x], |[x]| (x - mean) * (x - mean)) / count;
    (mean, F::one() / (variance + eps).sqrt())
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn forward_rows<F: Float>(x: &[F], weight: &[F], bias: &[F], eps: F, y: &mut [F]) {
    let rows = x.chunks_exact(weight.len());
    for (x, y) in rows.zip(y.chunks_exact_mut(weight.len())) {
        let (mean, inverse) = moments(x, eps);
        for (((y, &x), &weight), &bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
            *y = (x - mean) * inverse * weight + bias;
        }
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn backward_rows<F: Float>(
    x: &[F],
    weight: &[F],
    eps: F,
    gy: &[F],
    gx: &mut [F],
    gw: &mut [F],
    gb: &mut [F],
) {
    let width = weight.len();
    let count = F::from_f64(width as f64);
    let rows = x.chunks_exact(width).zip(gy.chunks_exact(width));
    for ((x, gy), gx) in rows.zip(gx.chunks_exact_mut(width)) {
        let (mean, inverse) = moments(x, eps);
        // dL/dx = (g - mean(g) - normed mean(g normed)) / sqrt(var + eps) with g = gy weight
        let along_mean = total([gy, weight], |[gy, weight]| gy * weight) / count;
        let along_normed = total([gy, weight, x], |[gy, weight, x]| {
            gy * weight * ((x - mean) * inverse)
        }) / count;
        for i in 0..width {
            let normed = (x[i] - mean) * inverse;
            gx[i] = (gy[i] * weight[i] - along_mean - normed * along_normed) * inverse;
            gw[i] += gy[i] * normed;
            gb[i] += gy[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{self, Case};

    fn case(shape: &[usize]) -> Case {
        let width = &shape[shape.len() - 1..];
        Case::new(format!("{shape:?}"))
            .normal("x", shape)
            .uniform("weight", width, 0.5, 1.5)
            .normal("bias", width)
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        layer_norm(&ins[0], &ins[1], &ins[2], 1e-5)
    }

    #[test]
    fn fused_equals_reference() {
        let shapes: [&[usize]; 6] = [
            &[5],
            &[1, 2],
            &[7, 63, 16],
            &[2, 64, 64],
            &[65, 17],
            &[1, 1000, 33],
        ];
        check::agree(&shapes.map(case), fused, |ins| {
            reference(&ins[0], &ins[1], &ins[2], 1e-5)
        });
    }

    #[test]
    fn gradients_are_finite_differences() {
        check::finite_differences(&case(&[2, 3]), fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(&[3, 100, 20]), fused);
    }

    #[test]
    fn every_subset_of_inputs_can_be_tracked() {
        check::partial_tracking(&case(&[3, 5]), fused);
    }

    #[test]
    fn a_wrong_shape_is_named() {
        let message = "layer_norm: bias has shape [4], but x of shape [2, 3]";
        check::refuses(&[&[2, 3], &[3], &[4]], fused, message);
    }

    #[test]
    #[ignore = "a measurement"]
    fn speed() {
        check::speed(&case(&[8192, 64]), fused, 8192 * 64);
    }
}
