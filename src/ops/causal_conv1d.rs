//! The short depthwise convolution in front of many recurrent mixers.

use super::float::Float;
use super::fused::{apply_one, runs_on, Backward, Forward, FusedOp};
use super::lanes::sum_parts;
use super::shape;
use candle_core::{Result, Shape, Tensor};
use multiversion::multiversion;
use rayon::prelude::*;

/// y_i = b + Σ_t w\[:,t\] x_{i-K+1+t}, with x_j = 0 for j < 0; w\[:,K-1\] meets the current step.
///
/// `x`: (B, L, C); `w`: (C, K); `b`: (C); result (B, L, C).
pub fn causal_conv1d(x: &Tensor, w: &Tensor, b: &Tensor) -> Result<Tensor> {
    let [batch, len, width] = shape::dims(CausalConv1d::NAME, ("x", x))?;
    let [_, taps] = shape::dims(CausalConv1d::NAME, ("w", w))?;
    shape::expect(CausalConv1d::NAME, ("w", w), ("x", x), &[width, taps])?;
    shape::expect(CausalConv1d::NAME, ("b", b), ("x", x), &[width])?;
    if runs_on(x) {
        apply_one(
            CausalConv1d {
                batch,
                len,
                width,
                taps,
            },
            &[x, w, b],
        )
    } else {
        reference(x, w, b)
    }
}

fn reference(x: &Tensor, w: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (len, taps) = (x.dim(1)?, w.dim(1)?);
    let padded = x.pad_with_zeros(1, taps - 1, 0)?;
    let mut y = x.zeros_like()?.broadcast_add(b)?;
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

impl FusedOp for CausalConv1d {
    const NAME: &'static str = "causal_conv1d";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.len, self.width).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let w = transposed(ins[1], self.taps);
        let mut y = vec![F::zero(); ins[0].len()];
        y.par_chunks_mut(self.len * self.width)
            .zip(ins[0].par_chunks(self.len * self.width))
            .for_each(|(y, x)| forward_sequence(x, &w, ins[2], y));
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let w = transposed(call.ins[1], self.taps);
        let mut gx = vec![F::zero(); call.ins[0].len()];
        let mut gw = vec![F::zero(); self.batch * w.len()];
        let mut gb = vec![F::zero(); self.batch * self.width];
        let sequence = self.len * self.width;
        gx.par_chunks_mut(sequence)
            .zip(
                gw.par_chunks_mut(w.len())
                    .zip(gb.par_chunks_mut(self.width)),
            )
            .zip(
                call.ins[0]
                    .par_chunks(sequence)
                    .zip(call.only().grad.par_chunks(sequence)),
            )
            .for_each(|((gx, (gw, gb)), (x, gy))| backward_sequence(x, &w, gy, gx, gw, gb));
        let gw = transposed(&sum_parts(&gw, w.len()), self.width);
        vec![gx, gw, sum_parts(&gb, self.width)]
    }
}

/// (rows, columns) to (columns, rows).
fn transposed<F: Float>(x: &[F], columns: usize) -> Vec<F> {
    let column = |c: usize| x.iter().skip(c).step_by(columns);
    (0..columns).flat_map(column).copied().collect()
}

/// Calls `f(tap, step read, step written)` for every pair of steps that a tap connects.
#[inline(always)]
fn connections(len: usize, taps: usize, mut f: impl FnMut(usize, usize, usize)) {
    for to in 0..len {
        for tap in taps.saturating_sub(to + 1)..taps {
            f(tap, to + 1 + tap - taps, to);
        }
    }
}

/// `w`: (K, C).
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn forward_sequence<F: Float>(x: &[F], w: &[F], b: &[F], y: &mut [F]) {
    let width = b.len();
    for y in y.chunks_exact_mut(width) {
        y.copy_from_slice(b);
    }
    connections(x.len() / width, w.len() / width, |tap, from, to| {
        let (x, w) = (&x[from * width..][..width], &w[tap * width..][..width]);
        for ((y, &x), &w) in y[to * width..][..width].iter_mut().zip(x).zip(w) {
            *y += w * x;
        }
    });
}

/// `w`, `gw`: (K, C); all gradients start at zero.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn backward_sequence<F: Float>(
    x: &[F],
    w: &[F],
    gy: &[F],
    gx: &mut [F],
    gw: &mut [F],
    gb: &mut [F],
) {
    let width = gb.len();
    for gy in gy.chunks_exact(width) {
        for (gb, &gy) in gb.iter_mut().zip(gy) {
            *gb += gy;
        }
    }
    connections(x.len() / width, w.len() / width, |tap, from, to| {
        let (x, gx) = (
            &x[from * width..][..width],
            &mut gx[from * width..][..width],
        );
        let (w, gw) = (&w[tap * width..][..width], &mut gw[tap * width..][..width]);
        let gy = &gy[to * width..][..width];
        for i in 0..width {
            gx[i] += w[i] * gy[i];
            gw[i] += x[i] * gy[i];
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{self, Case};

    fn case(batch: usize, len: usize, width: usize, taps: usize) -> Case {
        Case::new(format!("{batch} x {len} x {width}, {taps} taps"))
            .normal("x", &[batch, len, width])
            .normal("w", &[width, taps])
            .normal("b", &[width])
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        causal_conv1d(&ins[0], &ins[1], &ins[2])
    }

    #[test]
    fn fused_equals_reference() {
        let own = [1, 2, 63, 64, 65, 1000].map(|len| case(1 + len % 2 * 6, len, 5, 4));
        let odd = [case(2, 3, 17, 1), case(2, 3, 1, 3), case(1, 2, 33, 7)];
        let reference = |ins: &[Tensor]| reference(&ins[0], &ins[1], &ins[2]);
        check::agree(&own, fused, reference);
        check::agree(&odd, fused, reference);
    }

    #[test]
    fn gradients_are_finite_differences() {
        check::finite_differences(&case(2, 5, 2, 3), fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(7, 30, 20, 4), fused);
    }

    #[test]
    fn every_subset_of_inputs_can_be_tracked() {
        check::partial_tracking(&case(2, 5, 3, 4), fused);
    }

    #[test]
    fn the_last_weight_meets_the_current_step() {
        let row = |values: &[f32], shape: &[usize]| {
            Tensor::from_slice(values, shape, &candle_core::Device::Cpu).unwrap()
        };
        let x = row(&[1.0, 10.0, 100.0], &[1, 3, 1]);
        let y = causal_conv1d(&x, &row(&[2.0, 3.0], &[1, 2]), &row(&[0.5], &[1])).unwrap();
        let y = y.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(y, [3.5, 32.5, 320.5]);
    }

    #[test]
    fn a_wrong_shape_is_named() {
        let message = "causal_conv1d: w has shape [4, 4], but x of shape [1, 2, 3]";
        check::refuses(&[&[1, 2, 3], &[4, 4], &[3]], fused, message);
    }

    #[test]
    #[ignore = "a measurement"]
    fn speed() {
        check::speed(&case(32, 64, 128, 4), fused, 32 * 64 * 128);
    }
}
