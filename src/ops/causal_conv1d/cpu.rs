//! The loops over steps and groups of channels.

use super::cuda::LANES;
use super::CausalConv1d;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{by_index, each, load, map, splat, store, sum_parts, Groups, Lanes};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Rows per task: long sequences are divided along time.
const BLOCK: usize = 256;
/// The common number of taps, for which loops are unrolled.
const USUAL: usize = 4;

/// Weights (K, groups of lanes) and bias (groups of lanes) of `width` channels.
pub(super) struct Kernel<F> {
    pub(super) width: usize,
    pub(super) w: Vec<Lanes<F>>,
    pub(super) b: Vec<Lanes<F>>,
}

impl CpuOp for CausalConv1d {
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

    /// The sum of the tasks' gradients, each K rows of w and one of b in groups of lanes, as plain
    /// rows.
    fn unpack_sum<F: Float>(&self, parts: &[Lanes<F>], part: usize) -> Vec<F> {
        let sums = sum_parts(parts.as_flattened(), part * LANES);
        let padded = self.width.next_multiple_of(LANES);
        let rows = sums.chunks_exact(padded);
        rows.flat_map(|row| &row[..self.width]).copied().collect()
    }
}

impl<F: Float> Kernel<F> {
    pub(super) fn taps(&self) -> usize {
        self.w.len() / self.b.len()
    }

    /// The weights of the taps `first .. first + N`.
    #[inline(always)]
    fn rows<const N: usize>(&self, first: usize) -> [&[Lanes<F>]; N] {
        let groups = self.b.len();
        by_index(|k| &self.w[(first + k) * groups..][..groups])
    }
}

/// Rows `first .. first + N` of a sequence.
#[inline(always)]
fn rows<F, const N: usize>(x: &[F], width: usize, first: usize) -> [Groups<'_, F>; N] {
    by_index(|i| x[(first + i) * width..][..width].as_chunks())
}

/// Computes `y`, the rows from `first` on of the convolution of the whole sequence `x`.
#[simd]
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

/// Adds the products of the taps from `first` on to one row of y.
#[inline(always)]
fn add_taps<F: Float, const N: usize>(kernel: &Kernel<F>, first: usize, x: [Groups<F>; N], y: &mut [F]) {
    let w = kernel.rows::<N>(first);
    let (whole, rest) = y.as_chunks_mut();
    for (g, y) in whole.iter_mut().enumerate() {
        *y = convolve(*y, map(w, |w| &w[g]), map(x, |(whole, _)| &whole[g]));
    }
    if !rest.is_empty() {
        let g = whole.len();
        let x = map(x, |(_, rest)| load(rest));
        let y = convolve(load(rest), map(w, |w| &w[g]), x.each_ref());
        store(&y, rest);
    }
}

/// `y` + Σ w x, in this order.
#[inline(always)]
fn convolve<F: Float, const N: usize>(mut y: Lanes<F>, w: [&Lanes<F>; N], x: [&Lanes<F>; N]) -> Lanes<F> {
    for k in 0..N {
        y = each(|i| w[k][i].fma(x[k][i], y[i]));
    }
    y
}

/// Computes `gx`, the rows from `first` on of the sequence's gradient, and `sums`, the
/// contributions of these rows of x to the gradients of w (K, groups) and b (groups). Both must be
/// zero on entry.
#[simd]
fn backward_block<F: Float>(kernel: &Kernel<F>, x: &[F], gy: &[F], first: usize, gx: &mut [F], sums: &mut [Lanes<F>]) {
    let (taps, width) = (kernel.taps(), kernel.width);
    let (gw, gb) = sums.split_at_mut(kernel.w.len());
    for (t, gx) in (first..).zip(gx.chunks_exact_mut(width)) {
        let left = gy.len() / width - t;
        for (gb, &gy) in gb.as_flattened_mut().iter_mut().zip(&gy[t * width..][..width]) {
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

/// Adds the gradients of a row of x and of the taps from `first` on; the last of these taps belongs
/// to the first row of gy.
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
        let gy: [&Lanes<F>; N] = by_index(|k| &gy[N - 1 - k].0[g]);
        *gx = convolve(*gx, map(w, |w| &w[g]), gy);
        correlate(&x.0[g], gy, &mut gw[g..], groups);
    }
    if !rest.is_empty() {
        let g = whole.len();
        let gy: [Lanes<F>; N] = by_index(|k| load(gy[N - 1 - k].1));
        store(&convolve(load(rest), map(w, |w| &w[g]), gy.each_ref()), rest);
        correlate(&load(x.1), gy.each_ref(), &mut gw[g..], groups);
    }
}

/// Adds x gy to the sums of each tap, which are `stride` apart.
#[inline(always)]
fn correlate<F: Float, const N: usize>(x: &Lanes<F>, gy: [&Lanes<F>; N], sums: &mut [Lanes<F>], stride: usize) {
    for (k, gy) in gy.into_iter().enumerate() {
        let sum = &mut sums[k * stride];
        *sum = each(|i| x[i].fma(gy[i], sum[i]));
    }
}

/// The transpose, from (rows, columns) to (columns, rows).
fn transposed<F: Float>(x: &[F], columns: usize) -> Vec<F> {
    let column = |c: usize| x.iter().skip(c).step_by(columns);
    (0..columns).flat_map(column).copied().collect()
}
