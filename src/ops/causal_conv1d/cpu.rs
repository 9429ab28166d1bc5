//! The loops over steps and groups of channels.

use super::USUAL;
use crate::runtime::float::Float;
use crate::runtime::lanes::{by_index, each, load, map, store, Groups, Lanes};
use dsf_simd::simd;

/// Weights (K, groups of lanes) and bias (groups of lanes) of `width` channels.
pub(super) struct Kernel<F> {
    pub(super) width: usize,
    pub(super) w: Vec<Lanes<F>>,
    pub(super) b: Vec<Lanes<F>>,
}

impl<F: Float> Kernel<F> {
    fn taps(&self) -> usize {
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
pub(super) fn forward_block<F: Float>(kernel: &Kernel<F>, x: &[F], first: usize, y: &mut [F]) {
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
pub(super) fn backward_block<F: Float>(
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
