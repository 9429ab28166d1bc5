//! The loops on the CPU.

use crate::pointwise::{Pointwise, Softplus};
use crate::runtime::float::Float;
use crate::runtime::lanes::{dot, total};
use dsf_simd::simd;

/// `to += scale ⊙ from` for every row.
#[simd]
pub(super) fn add_scaled_rows<F: Float>(to: &mut [F], from: &[F], scale: &[F]) {
    let rows = to.chunks_exact_mut(scale.len());
    for (to, from) in rows.zip(from.chunks_exact(scale.len())) {
        for ((to, &from), &scale) in to.iter_mut().zip(from).zip(scale) {
            *to = from.fma(scale, *to);
        }
    }
}

/// Adds x ⊙ y of every row to `sums`.
#[simd]
pub(super) fn sum_products<F: Float>(x: &[F], y: &[F], sums: &mut [F]) {
    let rows = x.chunks_exact(sums.len());
    for (x, y) in rows.zip(y.chunks_exact(sums.len())) {
        for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
            *sum = x.fma(y, *sum);
        }
    }
}

#[simd]
pub(super) fn softplus_rows<F: Float>(x: &[F], bias: &[F], y: &mut [F]) {
    let given = x.len() * bias.len() / y.len();
    for (x, y) in x.chunks_exact(given).zip(y.chunks_exact_mut(bias.len())) {
        if let [x] = x {
            for (y, &bias) in y.iter_mut().zip(bias) {
                *y = Softplus::value(*x + bias);
            }
        } else {
            for ((y, &x), &bias) in y.iter_mut().zip(x).zip(bias) {
                *y = Softplus::value(x + bias);
            }
        }
    }
}

/// The gradients of softplus(x + bias). `gb` must be zero on entry; it receives the sum over rows.
#[simd]
pub(super) fn softplus_rows_back<F: Float>(x: &[F], bias: &[F], grad: &[F], gx: &mut [F], gb: &mut [F]) {
    let (width, given) = (bias.len(), x.len() * bias.len() / grad.len());
    let mut slopes = vec![F::zero(); width];
    let rows = x.chunks_exact(given).zip(gx.chunks_exact_mut(given));
    for ((x, gx), grad) in rows.zip(grad.chunks_exact(width)) {
        if let ([x], [gx]) = (x, &mut *gx) {
            for ((slope, &grad), &bias) in slopes.iter_mut().zip(grad).zip(bias) {
                *slope = grad * Softplus::slope(*x + bias, F::zero());
            }
            *gx = total([&slopes], |[slope]| slope);
        } else {
            for (((slope, &grad), &bias), &x) in slopes.iter_mut().zip(grad).zip(bias).zip(x) {
                *slope = grad * Softplus::slope(x + bias, F::zero());
            }
            gx.copy_from_slice(&slopes);
        }
        for (gb, &slope) in gb.iter_mut().zip(&slopes) {
            *gb += slope;
        }
    }
}

/// Multiplies each head of `x` by its number.
#[simd]
pub(super) fn scaled<F: Float>(x: &[F], scale: &[F], y: &mut [F]) {
    let head = x.len() / scale.len();
    let pieces = y.chunks_exact_mut(head).zip(x.chunks_exact(head));
    for ((y, x), &scale) in pieces.zip(scale) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * scale;
        }
    }
}

/// The inner products of the heads of `x` and `y`.
#[simd]
pub(super) fn products<F: Float>(x: &[F], y: &[F], to: &mut [F]) {
    let head = x.len() / to.len();
    let pieces = x.chunks_exact(head).zip(y.chunks_exact(head));
    for (to, (x, y)) in to.iter_mut().zip(pieces) {
        *to = dot(x, y);
    }
}
