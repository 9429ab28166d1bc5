//! The short depthwise convolution in front of many recurrent mixers.

use super::float::Float;
use super::fused::{apply_one, runs_on, Backward, Forward, FusedOp};
use super::lanes::{each, load, splat, store, sum_parts, Groups, Lanes, LANES};
use super::shape;
use candle_core::{Result, Shape, Tensor};
use multiversion::multiversion;
use rayon::prelude::*;
use std::array;

/// Rows per task: long sequences are shared out by time.
const BLOCK: usize = 256;

/// The usual number of taps, for which loops are unrolled.
const USUAL: usize = 4;

/// y_i = b + Σ_t w\[:,t\] x_{i-K+1+t}, with x_j = 0 for j < 0; w\[:,K-1\] meets the current step.
///
/// `x`: (B, L, C); `w`: (C, K); `b`: (C), zero if there is none; result (B, L, C).
pub fn causal_conv1d(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let [batch, len, width] = shape::dims(CausalConv1d::NAME, ("x", x))?;
    let [_, taps] = shape::dims(CausalConv1d::NAME, ("w", w))?;
    shape::expect(CausalConv1d::NAME, ("w", w), ("x", x), &[width, taps])?;
    if let Some(b) = b {
        shape::expect(CausalConv1d::NAME, ("b", b), ("x", x), &[width])?;
    }
    if !runs_on::<CausalConv1d>(x) {
        return reference(x, w, b);
    }
    let conv = CausalConv1d {
        batch,
        len,
        width,
        taps,
    };
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
    /// Elements of a sequence, and of one task's rows.
    fn sizes(&self) -> (usize, usize) {
        let block = BLOCK.min(self.len);
        (self.len * self.width, block * self.width)
    }

    /// The weights as (K, groups of channels) and the bias as groups.
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
        let mut y = vec![F::zero(); ins[0].len()];
        let sequences = y.par_chunks_mut(sequence).zip(ins[0].par_chunks(sequence));
        sequences.for_each(|(y, x)| {
            let blocks = y.par_chunks_mut(block).enumerate();
            blocks.for_each(|(i, y)| forward_block(&kernel, x, i * BLOCK, y));
        });
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let kernel = self.pack(call.ins);
        let (sequence, block) = self.sizes();
        let part = kernel.w.len() + kernel.b.len();
        let parts = self.len.div_ceil(BLOCK) * part;
        let mut gx = vec![F::zero(); call.ins[0].len()];
        let mut sums = vec![splat(F::zero()); self.batch * parts];
        let gy = call.only().grad.par_chunks(sequence);
        let reads = call.ins[0].par_chunks(sequence).zip(gy);
        let writes = gx.par_chunks_mut(sequence).zip(sums.par_chunks_mut(parts));
        writes.zip(reads).for_each(|((gx, sums), (x, gy))| {
            let blocks = gx.par_chunks_mut(block).zip(sums.par_chunks_mut(part));
            let blocks = blocks.enumerate();
            blocks.for_each(|(i, (gx, sums))| {
                backward_block(&kernel, x, gy, i * BLOCK, gx, sums);
            });
        });
        let mut sums = self.unpack_sum(&sums, part);
        let gb = sums.split_off(self.taps * self.width);
        let mut grads = vec![gx, transposed(&sums, self.width)];
        grads.extend(call.ins.get(2).map(|_| gb));
        grads
    }
}

impl CausalConv1d {
    /// The sum of all parts, each K rows of w and one of b in groups, as plain rows.
    fn unpack_sum<F: Float>(&self, parts: &[Lanes<F>], part: usize) -> Vec<F> {
        let sums = sum_parts(parts.as_flattened(), part * LANES);
        let padded = self.width.next_multiple_of(LANES);
        let rows = sums.chunks_exact(padded);
        rows.flat_map(|row| &row[..self.width]).copied().collect()
    }
}

/// (rows, columns) to (columns, rows).
fn transposed<F: Float>(x: &[F], columns: usize) -> Vec<F> {
    let column = |c: usize| x.iter().skip(c).step_by(columns);
    (0..columns).flat_map(column).copied().collect()
}

/// Weights (K, groups) and bias (groups) of `width` channels.
struct Kernel<F> {
    width: usize,
    w: Vec<Lanes<F>>,
    b: Vec<Lanes<F>>,
}

impl<F: Float> Kernel<F> {
    fn taps(&self) -> usize {
        self.w.len() / self.b.len()
    }

    /// The weights of the taps `first .. first + N`.
    #[inline(always)]
    fn rows<const N: usize>(&self, first: usize) -> [&[Lanes<F>]; N] {
        let groups = self.b.len();
        array::from_fn(|k| &self.w[(first + k) * groups..][..groups])
    }
}

/// Rows `first .. first + N` of a sequence.
#[inline(always)]
fn rows<F, const N: usize>(x: &[F], width: usize, first: usize) -> [Groups<'_, F>; N] {
    array::from_fn(|i| x[(first + i) * width..][..width].as_chunks())
}

/// `y` are the rows from `first` on of the convolution of the whole sequence `x`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn forward_block<F: Float>(kernel: &Kernel<F>, x: &[F], first: usize, y: &mut [F]) {
    let (taps, width) = (kernel.taps(), kernel.width);
    for (t, y) in (first..).zip(y.chunks_exact_mut(width)) {
        y.copy_from_slice(&kernel.b.as_flattened()[..width]);
        if taps == USUAL && t + 1 >= USUAL {
            add_taps::<F, USUAL>(kernel, 0, rows(x, width, t + 1 - USUAL), y);
            continue;
        }
        for tap in taps.saturating_sub(t + 1)..taps {
            add_taps::<F, 1>(kernel, tap, rows(x, width, t + 1 + tap - taps), y);
        }
    }
}

/// Adds what the taps from `first` on give to one row of y.
#[inline(always)]
fn add_taps<F: Float, const N: usize>(
    kernel: &Kernel<F>,
    first: usize,
    x: [Groups<F>; N],
    y: &mut [F],
) {
    let w = kernel.rows::<N>(first);
    let (whole, rest) = y.as_chunks_mut();
    for (g, y) in whole.iter_mut().enumerate() {
        *y = convolve(*y, w.map(|w| &w[g]), x.map(|(whole, _)| &whole[g]));
    }
    if !rest.is_empty() {
        let g = whole.len();
        let x = x.map(|(_, rest)| load(rest));
        let y = convolve(load(rest), w.map(|w| &w[g]), x.each_ref());
        store(&y, rest);
    }
}

/// `y` + Σ w x, in this order.
#[inline(always)]
fn convolve<F: Float, const N: usize>(
    mut y: Lanes<F>,
    w: [&Lanes<F>; N],
    x: [&Lanes<F>; N],
) -> Lanes<F> {
    for k in 0..N {
        y = each(|i| y[i] + w[k][i] * x[k][i]);
    }
    y
}

/// `gx`, zero before, are the rows from `first` on of the sequence's gradient; `sums`, zero before,
/// are what these rows of x give to the gradients of w (K, groups) and of b (groups).
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn backward_block<F: Float>(
    kernel: &Kernel<F>,
    x: &[F],
    gy: &[F],
    first: usize,
    gx: &mut [F],
    sums: &mut [Lanes<F>],
) {
    let (taps, width) = (kernel.taps(), kernel.width);
    let (gw, gb) = sums.split_at_mut(kernel.w.len());
    for (t, gx) in (first..).zip(gx.chunks_exact_mut(width)) {
        let left = gy.len() / width - t;
        for (gb, &gy) in gb
            .as_flattened_mut()
            .iter_mut()
            .zip(&gy[t * width..][..width])
        {
            *gb += gy;
        }
        let [x] = rows(x, width, t);
        if taps == USUAL && left >= USUAL {
            let tap = taps - USUAL;
            back_taps::<F, USUAL>(kernel, tap, (x, rows(gy, width, t)), gx, gw);
            continue;
        }
        for ahead in 0..left.min(taps) {
            let (tap, gy) = (taps - 1 - ahead, rows(gy, width, t + ahead));
            back_taps::<F, 1>(kernel, tap, (x, gy), gx, gw);
        }
    }
}

/// Adds what a row of x met by the taps from `first` on; the last of them in the first row of gy.
#[inline(always)]
fn back_taps<F: Float, const N: usize>(
    kernel: &Kernel<F>,
    first: usize,
    (x, gy): (Groups<F>, [Groups<F>; N]),
    gx: &mut [F],
    gw: &mut [Lanes<F>],
) {
    let groups = kernel.b.len();
    let w = kernel.rows::<N>(first);
    let gw = &mut gw[first * groups..][..N * groups];
    let (whole, rest) = gx.as_chunks_mut();
    for (g, gx) in whole.iter_mut().enumerate() {
        let gy: [&Lanes<F>; N] = array::from_fn(|k| &gy[N - 1 - k].0[g]);
        *gx = convolve(*gx, w.map(|w| &w[g]), gy);
        correlate(&x.0[g], gy, &mut gw[g..], groups);
    }
    if !rest.is_empty() {
        let g = whole.len();
        let gy: [Lanes<F>; N] = array::from_fn(|k| load(gy[N - 1 - k].1));
        store(&convolve(load(rest), w.map(|w| &w[g]), gy.each_ref()), rest);
        correlate(&load(x.1), gy.each_ref(), &mut gw[g..], groups);
    }
}

/// Adds x gy to the sums of each tap, which lie `stride` apart.
#[inline(always)]
fn correlate<F: Float, const N: usize>(
    x: &Lanes<F>,
    gy: [&Lanes<F>; N],
    sums: &mut [Lanes<F>],
    stride: usize,
) {
    for (k, gy) in gy.into_iter().enumerate() {
        let sum = &mut sums[k * stride];
        *sum = each(|i| sum[i] + x[i] * gy[i]);
    }
}

#[cfg(test)]
mod tests;
