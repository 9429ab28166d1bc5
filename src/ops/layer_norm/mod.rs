//! Layer normalisation; candle-nn's fused one has no backward pass.

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply, apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{add_chunk, blank, dot, map_chunks, sum_parts, total};
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::{copied, zeros};
use candle_core::{Result, Shape, Tensor, D};
use dsf_simd::simd;

pub(super) mod launch;

use launch::Whole;

/// Rows per task, and per partial sum of the gradients of weight and bias.
const ROWS: usize = 64;

/// (x - mean) / sqrt(var + eps) * weight + bias over the last axis, with the biased variance.
///
/// `x`: (..., d); `weight`, `bias`: (d); result like `x`.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let width = width(LayerNorm::NAME, x, weight, bias)?;
    if runs_on(x) {
        let shape = x.shape().clone();
        apply_one(LayerNorm { shape, width, eps }, &[x, weight, bias])
    } else {
        reference(x, weight, bias, eps)
    }
}

/// The size of the last axis; an error if the shapes do not agree.
fn width(op: &str, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<usize> {
    let (_, width) = shape::rows(op, ("x", x))?;
    shape::parameter(op, ("weight", weight), ("x", x), &[width])?;
    shape::parameter(op, ("bias", bias), ("x", x), &[width])?;
    Ok(width)
}

fn reference(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let normed = centred.broadcast_div(&(variance + eps)?.sqrt()?)?;
    normed.broadcast_mul(weight)?.broadcast_add(bias)
}

/// A residual connection followed by a norm: x + y, and [`layer_norm`] of that sum.
///
/// `x`, `y`: (..., d); `weight`, `bias`: (d); results like `x`.
pub fn add_layer_norm(x: &Tensor, y: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<(Tensor, Tensor)> {
    let width = width(AddLayerNorm::NAME, x, weight, bias)?;
    shape::expect(AddLayerNorm::NAME, ("y", y), ("x", x), x.dims())?;
    if !runs_on(x) {
        let sum = (x + y)?;
        let normed = reference(&sum, weight, bias, eps)?;
        return Ok((sum, normed));
    }
    let shape = x.shape().clone();
    let op = AddLayerNorm(LayerNorm { shape, width, eps });
    let [sum, normed] =
        <[Tensor; 2]>::try_from(apply(op, &[x, y, weight, bias])?).unwrap_or_else(|_| unreachable!("two outputs"));
    Ok((sum, normed))
}

struct LayerNorm {
    shape: Shape,
    width: usize,
    eps: f64,
}

impl LayerNorm {
    fn eps<F: Float>(&self) -> F {
        F::of(self.eps)
    }

    /// The gradients of x, weight and bias. `x_of` fills a chunk of x; `then` post-processes a
    /// chunk of the gradient of x.
    fn backward<F: Float>(
        &self,
        weight: &[F],
        gy: &[F],
        x_of: impl Fn(usize, &mut [F]) + Sync,
        then: impl Fn(usize, &mut [F]) + Sync,
    ) -> [Vec<F>; 3] {
        let chunk = ROWS * self.width;
        let mut gx = zeros(gy.len());
        let parts = gy.len().div_ceil(chunk) * self.width;
        let (mut gw, mut gb) = (vec![F::zero(); parts], vec![F::zero(); parts]);
        let sums = gw.chunks_mut(self.width);
        let sums = sums.zip(gb.chunks_mut(self.width));
        gx.chunks_mut(chunk).zip(sums).zip(gy.chunks(chunk)).enumerate().in_parallel_with(
            || vec![blank::<F>(); chunk],
            |x, (i, ((gx, (gw, gb)), gy))| {
                let x = &mut x[..gx.len()];
                x_of(i * chunk, x);
                backward_rows(x, weight, self.eps(), gy, gx, gw, gb);
                then(i * chunk, gx);
            },
        );
        [gx, sum_parts(&gw, self.width), sum_parts(&gb, self.width)]
    }
}

impl FusedOp for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![map_chunks(ins[0], [ROWS * self.width; 2], |x, y| {
            forward_rows(x, ins[1], ins[2], self.eps(), y);
        })]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, weight) = (call.ins[0], call.ins[1]);
        let x_of = |at: usize, to: &mut [F]| to.copy_from_slice(&x[at..at + to.len()]);
        self.backward(weight, call.only().grad, x_of, |_, _| ()).into()
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        self.launch_rows(gpu, (ins[0], None), [ins[1], ins[2]])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (x, weight) = (call.ins[0], call.ins[1]);
        let of = Whole { x, y: None, grad: None };
        let grads = self.launch_gradients(call.gpu, of, weight, call.only().grad, false)?;
        Ok(vec![Some(grads.x), Some(grads.weight), Some(grads.bias)])
    }
}

/// [`LayerNorm`] of the sum of the first two inputs; the sum is the other output.
struct AddLayerNorm(LayerNorm);

impl FusedOp for AddLayerNorm {
    const NAME: &'static str = "add_layer_norm";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.0.shape.clone(); 2]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut sum = zeros(ins[0].len());
        let mut normed = zeros(sum.len());
        let chunk = ROWS * self.0.width;
        sum.chunks_mut(chunk)
            .zip(normed.chunks_mut(chunk))
            .zip(ins[0].chunks(chunk).zip(ins[1].chunks(chunk)))
            .in_parallel(|((sum, normed), (x, y))| {
                add(x, y, sum);
                forward_rows(sum, ins[2], ins[3], self.0.eps(), normed);
            });
        vec![sum, normed]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let [x, y, weight, _] = call.ins else { unreachable!("four inputs") };
        let [of_sum, of_normed] = call.outs else { unreachable!("two outputs") };
        let Some(normed) = of_normed else {
            let grad = of_sum.map_or(Vec::new(), |sum| copied(sum.grad));
            let zeros = vec![F::zero(); weight.len()];
            return vec![copied(&grad), grad, zeros.clone(), zeros];
        };
        let x_of = |at: usize, to: &mut [F]| add(&x[at..][..to.len()], &y[at..][..to.len()], to);
        let then = |at: usize, gx: &mut [F]| {
            if let Some(sum) = of_sum {
                add_chunk(gx, &sum.grad[at..][..gx.len()]);
            }
        };
        let [gx, gw, gb] = self.0.backward(weight, normed.grad, x_of, then);
        vec![copied(&gx), gx, gw, gb]
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        self.0.launch_rows(gpu, (ins[0], Some(ins[1])), [ins[2], ins[3]])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.0.launch_gradients_of_sum(&call)
    }
}

#[simd]
fn add<F: Float>(x: &[F], y: &[F], sum: &mut [F]) {
    for ((sum, &x), &y) in sum.iter_mut().zip(x).zip(y) {
        *sum = x + y;
    }
}

/// The mean of a row and 1 / sqrt(var + eps).
#[inline(always)]
fn moments<F: Float>(x: &[F], eps: F) -> (F, F) {
    let count = F::of(x.len() as f64);
    let mean = total([x], |[x]| x) / count;
    let variance = total([x], |[x]| (x - mean) * (x - mean)) / count;
    (mean, F::one() / (variance + eps).sqrt())
}

#[simd]
fn forward_rows<F: Float>(x: &[F], weight: &[F], bias: &[F], eps: F, y: &mut [F]) {
    let rows = x.chunks_exact(weight.len());
    for (x, y) in rows.zip(y.chunks_exact_mut(weight.len())) {
        let (mean, inverse) = moments(x, eps);
        for (((y, &x), &weight), &bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
            *y = ((x - mean) * inverse).fma(weight, bias);
        }
    }
}

#[simd]
fn backward_rows<F: Float>(x: &[F], weight: &[F], eps: F, gy: &[F], gx: &mut [F], gw: &mut [F], gb: &mut [F]) {
    let width = weight.len();
    let count = F::of(width as f64);
    let rows = x.chunks_exact(width).zip(gy.chunks_exact(width));
    for ((x, gy), gx) in rows.zip(gx.chunks_exact_mut(width)) {
        let (mean, inverse) = moments(x, eps);
        // dL/dx = (g - mean(g) - normed mean(g normed)) / sqrt(var + eps) with g = gy weight
        let along_mean = dot(gy, weight) / count;
        let along_normed = total([gy, weight, x], |[gy, weight, x]| gy * weight * ((x - mean) * inverse)) / count;
        for i in 0..width {
            let normed = (x[i] - mean) * inverse;
            let centred = gy[i].fma(weight[i], -along_mean);
            gx[i] = (-normed).fma(along_normed, centred) * inverse;
            gw[i] = gy[i].fma(normed, gw[i]);
            gb[i] += gy[i];
        }
    }
}

#[cfg(test)]
mod tests;
