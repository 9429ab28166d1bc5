//! The feed-forward half of a block. Of its hidden layer, four times as wide as the input, one number
//! each is kept; all else lives for a few rows at a time, where candle would store it six times.

use super::float::Float;
use super::fused::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use super::gemm::{product, View};
use super::lanes::{add_to_rows, blank, sum_parts, sum_rows};
use super::linear::{linear, PARTS};
use super::pointwise::{gelu, values, Gelu};
use super::shape;
use crate::gpu::Buffer;
use candle_core::{Result, Shape, Tensor};
use multiversion::multiversion;
use rayon::prelude::*;

mod launch;

/// Rows whose hidden layer exists at one time on a thread.
const ROWS: usize = 256;

/// gelu(x W1^T + b1) W2^T + b2 over the last axis.
///
/// `x`: (..., in); `w1`: (hidden, in); `b1`: (hidden); `w2`: (out, hidden); `b2`: (out); result
/// (..., out).
pub fn mlp(x: &Tensor, [w1, b1]: [&Tensor; 2], [w2, b2]: [&Tensor; 2]) -> Result<Tensor> {
    let op = Mlp::check(x, [w1, b1], [w2, b2])?;
    if runs_on(x) {
        apply_one(op, &[x, w1, b1, w2, b2])
    } else {
        linear(&gelu(&linear(x, w1, Some(b1))?)?, w2, Some(b2))
    }
}

struct Mlp {
    /// The axes of x before the last.
    leading: Vec<usize>,
    inner: usize,
    hidden: usize,
    out: usize,
}

impl Mlp {
    fn check(x: &Tensor, [w1, b1]: [&Tensor; 2], [w2, b2]: [&Tensor; 2]) -> Result<Self> {
        let (leading, inner) = shape::rows(Self::NAME, ("x", x))?;
        let [hidden, _] = shape::dims(Self::NAME, ("w1", w1))?;
        let [out, _] = shape::dims(Self::NAME, ("w2", w2))?;
        shape::parameter(Self::NAME, ("w1", w1), ("x", x), &[hidden, inner])?;
        shape::expect(Self::NAME, ("b1", b1), ("w1", w1), &[hidden])?;
        shape::expect(Self::NAME, ("w2", w2), ("w1", w1), &[out, hidden])?;
        shape::expect(Self::NAME, ("b2", b2), ("w2", w2), &[out])?;
        Ok(Self {
            leading: leading.to_vec(),
            inner,
            hidden,
            out,
        })
    }

    fn rows(&self) -> usize {
        self.leading.iter().product()
    }

    /// Rows a task of the backward pass: a function of the sizes alone.
    fn task(&self) -> usize {
        self.rows().div_ceil(PARTS).next_multiple_of(ROWS)
    }

    /// `z`, the hidden layer of `x` before its nonlinearity, and `y`; `a` is scratch.
    fn forward_rows<F: Float>(&self, x: &[F], ins: &[&[F]], z: &mut [F], a: &mut [F], y: &mut [F]) {
        let (inner, hidden) = (self.inner, self.hidden);
        product(
            z,
            hidden,
            View::new(x, inner),
            View::new(ins[1], inner).t(),
            false,
        );
        add_to_rows(z, ins[2]);
        values::<Gelu, F>(z, a);
        let (a, w2) = (View::new(a, hidden), View::new(ins[3], hidden));
        product(y, self.out, a, w2.t(), false);
        add_to_rows(y, ins[4]);
    }

    /// Adds the gradients of some rows to `grads` (of w1, b1, w2, b2) and writes that of x.
    fn backward_rows<F: Float>(
        &self,
        [x, z, gy]: [&[F]; 3],
        ins: &[&[F]],
        [a, slopes]: [&mut [F]; 2],
        gx: &mut [F],
        [gw1, gb1, gw2, gb2]: [&mut [F]; 4],
    ) {
        let (inner, hidden, out) = (self.inner, self.hidden, self.out);
        gelu_with_slope(z, a, slopes);
        let gy_rows = View::new(gy, out);
        product(gw2, hidden, gy_rows.t(), View::new(a, hidden), true);
        sum_rows(gy, gb2);
        let gz = a; // its values have been used
        product(gz, hidden, gy_rows, View::new(ins[3], hidden), false);
        multiply(slopes, gz);
        sum_rows(gz, gb1);
        let gz = View::new(gz, hidden);
        product(gw1, inner, gz.t(), View::new(x, inner), true);
        product(gx, inner, gz, View::new(ins[1], inner), false);
    }
}

impl FusedOp for Mlp {
    const NAME: &'static str = "mlp";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![[&self.leading[..], &[self.out]].concat().into()]
    }

    /// Keeps the hidden layer before its nonlinearity: cheaper than a product to have it again.
    fn forward<F: Float>(&self, Forward { ins, tracked }: Forward<F>) -> Vec<Vec<F>> {
        let (block, wide) = (ROWS * self.inner, ROWS * self.hidden);
        let mut y = vec![F::zero(); self.rows() * self.out];
        let scratch = || vec![blank::<F>(); wide];
        let blocks = y
            .par_chunks_mut(ROWS * self.out)
            .zip(ins[0].par_chunks(block));
        if !tracked {
            blocks.for_each_init(
                || [scratch(), scratch()],
                |[z, a], (y, x)| {
                    let size = x.len() / self.inner * self.hidden;
                    self.forward_rows(x, ins, &mut z[..size], &mut a[..size], y);
                },
            );
            return vec![y];
        }
        let mut z = vec![blank::<F>(); self.rows() * self.hidden];
        blocks
            .zip(z.par_chunks_mut(wide))
            .for_each_init(scratch, |a, ((y, x), z)| {
                let a = &mut a[..z.len()];
                self.forward_rows(x, ins, z, a, y);
            });
        vec![y, z]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, z, gy) = (call.ins[0], &call.kept[0], call.only().grad);
        let (inner, hidden, out, task) = (self.inner, self.hidden, self.out, self.task());
        let parts = self.rows().div_ceil(task);
        let sizes = [1, 2, 3, 4].map(|i| call.ins[i].len());
        let mut sums = sizes.map(|size| vec![F::zero(); parts * size]);
        let [gw1, gb1, gw2, gb2] = &mut sums;
        let mut gx = vec![F::zero(); x.len()];
        (
            gw1.par_chunks_mut(sizes[0]),
            gb1.par_chunks_mut(sizes[1]),
            gw2.par_chunks_mut(sizes[2]),
            gb2.par_chunks_mut(sizes[3]),
            gx.par_chunks_mut(task * inner),
            x.par_chunks(task * inner),
            z.par_chunks(task * hidden),
            gy.par_chunks(task * out),
        )
            .into_par_iter()
            .for_each(|(gw1, gb1, gw2, gb2, gx, x, z, gy)| {
                let mut scratch = [0, 1].map(|_| vec![blank::<F>(); ROWS * hidden]);
                let reads = x.chunks(ROWS * inner).zip(gy.chunks(ROWS * out));
                let blocks = gx.chunks_mut(ROWS * inner).zip(z.chunks(ROWS * hidden));
                for ((gx, z), (x, gy)) in blocks.zip(reads) {
                    let scratch = scratch.each_mut().map(|s| &mut s[..z.len()]);
                    let grads = [&mut *gw1, &mut *gb1, &mut *gw2, &mut *gb2];
                    self.backward_rows([x, z, gy], call.ins, scratch, gx, grads);
                }
            });
        let mut grads = vec![gx];
        grads.extend(
            sums.iter()
                .zip(sizes)
                .map(|(sum, size)| sum_parts(sum, size)),
        );
        grads
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.launch_layers(call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_gradients(call)
    }
}

/// gelu(z) and its slope, which share the error function.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn gelu_with_slope<F: Float>(z: &[F], a: &mut [F], slopes: &mut [F]) {
    for ((a, slope), &z) in a.iter_mut().zip(slopes).zip(z) {
        (*a, *slope) = Gelu::value_and_slope(z);
    }
}

/// `to *= by`, element by element.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn multiply<F: Float>(by: &[F], to: &mut [F]) {
    for (to, &by) in to.iter_mut().zip(by) {
        *to *= by;
    }
}

#[cfg(test)]
mod tests;
