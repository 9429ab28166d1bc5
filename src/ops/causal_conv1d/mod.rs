//! The short depthwise convolution in front of many recurrent mixers.

mod cpu;
mod launch;

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{load, splat, sum_parts, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::zeros;
use candle_core::{Result, Shape, Tensor};
use cpu::{backward_block, forward_block, Kernel};

/// Rows per task: long sequences are divided along time.
const BLOCK: usize = 256;

/// The common number of taps, for which loops are unrolled.
const USUAL: usize = 4;

/// y_i = b + Σ_t w\[:,t\] x_{i-K+1+t}, with x_j = 0 for j < 0; w\[:,K-1\] is applied to the current step.
///
/// `x`: (B, L, C); `w`: (C, K); `b`: (C), zero if there is none; result (B, L, C).
pub fn causal_conv1d(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let [batch, len, width] = shape::dims(CausalConv1d::NAME, ("x", x))?;
    let [_, taps] = shape::dims(CausalConv1d::NAME, ("w", w))?;
    shape::parameter(CausalConv1d::NAME, ("w", w), ("x", x), &[width, taps])?;
    if let Some(b) = b {
        shape::parameter(CausalConv1d::NAME, ("b", b), ("x", x), &[width])?;
    }
    if !runs_on(x) {
        return reference(x, w, b);
    }
    let conv = CausalConv1d { batch, len, width, taps };
    match b {
        Some(b) => apply_one(conv, &[x, w, b]),
        None => apply_one(conv, &[x, w]),
    }
}

fn reference(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let (len, taps) = (x.dim(1)?, w.dim(1)?);
    let padded = x.pad_with_zeros(1, taps - 1, 0)?;
    let mut y = x.zeros_like()?;
    if let Some(b) = b {
        y = y.broadcast_add(b)?;
    }
    for t in 0..taps {
        let weight = w.narrow(1, t, 1)?.squeeze(1)?;
        y = (y + padded.narrow(1, t, len)?.broadcast_mul(&weight)?)?;
    }
    Ok(y)
}

struct CausalConv1d {
    batch: usize,
    len: usize,
    width: usize,
    taps: usize,
}

impl CausalConv1d {
    /// The number of elements of a sequence, and of the rows of one task.
    fn sizes(&self) -> (usize, usize) {
        let block = BLOCK.min(self.len);
        (self.len * self.width, block * self.width)
    }

    /// The weights as (K, groups of lanes) and the bias as groups of lanes.
    fn pack<F: Float>(&self, ins: &[&[F]]) -> Kernel<F> {
        let w = transposed(ins[1], self.taps);
        let zero = vec![F::zero(); self.width];
        let groups = |row: &[F]| row.chunks(LANES).map(load).collect::<Vec<Lanes<F>>>();
        Kernel {
            width: self.width,
            w: w.chunks_exact(self.width).flat_map(groups).collect(),
            b: groups(ins.get(2).unwrap_or(&&zero[..])),
        }
    }
}

impl FusedOp for CausalConv1d {
    const NAME: &'static str = "causal_conv1d";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.len, self.width).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let kernel = self.pack(ins);
        let (sequence, block) = self.sizes();
        let mut y = zeros(ins[0].len());
        let sequences = y.chunks_mut(sequence).zip(ins[0].chunks(sequence));
        sequences.in_parallel(|(y, x)| {
            let blocks = y.chunks_mut(block).enumerate();
            blocks.in_parallel(|(i, y)| forward_block(&kernel, x, i * BLOCK, y));
        });
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let kernel = self.pack(call.ins);
        let (sequence, block) = self.sizes();
        let part = kernel.w.len() + kernel.b.len();
        let parts = self.len.div_ceil(BLOCK) * part;
        let mut gx = zeros(call.ins[0].len());
        let mut sums = vec![splat(F::zero()); self.batch * parts];
        let gy = call.only().grad.chunks(sequence);
        let reads = call.ins[0].chunks(sequence).zip(gy);
        let writes = gx.chunks_mut(sequence).zip(sums.chunks_mut(parts));
        writes.zip(reads).in_parallel(|((gx, sums), (x, gy))| {
            let blocks = gx.chunks_mut(block).zip(sums.chunks_mut(part));
            let blocks = blocks.enumerate();
            blocks.in_parallel(|(i, (gx, sums))| {
                backward_block(&kernel, x, gy, i * BLOCK, gx, sums);
            });
        });
        let mut sums = self.unpack_sum(&sums, part);
        let gb = sums.split_off(self.taps * self.width);
        let mut grads = vec![gx, transposed(&sums, self.width)];
        grads.extend(call.ins.get(2).map(|_| gb));
        grads
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        launch::forward(self, call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        launch::backward(self, call)
    }
}

impl CausalConv1d {
    /// The sum of the tasks' gradients, each K rows of w and one of b in groups of lanes, as plain
    /// rows.
    fn unpack_sum<F: Float>(&self, parts: &[Lanes<F>], part: usize) -> Vec<F> {
        let sums = sum_parts(parts.as_flattened(), part * LANES);
        let padded = self.width.next_multiple_of(LANES);
        let rows = sums.chunks_exact(padded);
        rows.flat_map(|row| &row[..self.width]).copied().collect()
    }
}

/// The transpose, from (rows, columns) to (columns, rows).
fn transposed<F: Float>(x: &[F], columns: usize) -> Vec<F> {
    let column = |c: usize| x.iter().skip(c).step_by(columns);
    (0..columns).flat_map(column).copied().collect()
}

#[cfg(test)]
mod tests;
