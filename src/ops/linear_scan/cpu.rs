//! Forward and backward, one task per sequence. Row t is computed from row t-1 in place, so the
//! inner loop runs over channels.

use super::LinearScan;
use crate::ops::float::Float;
use crate::ops::fused::Used;
use multiversion::multiversion;
use rayon::prelude::*;

pub(super) fn forward<F: Float>(scan: &LinearScan, a: &[F], x: &[F]) -> Vec<F> {
    let mut h = x.to_vec();
    let sequence = scan.len * scan.width;
    h.par_chunks_mut(sequence)
        .zip(a.par_chunks(sequence))
        .for_each(|(h, a)| forward_sequence(scan.width, a, h));
    h
}

/// `h` holds x and becomes the states.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn forward_sequence<F: Float>(width: usize, a: &[F], h: &mut [F]) {
    for start in (width..h.len()).step_by(width) {
        let (before, now) = h.split_at_mut(start);
        let before = &before[start - width..];
        for ((now, &before), &a) in now.iter_mut().zip(before).zip(&a[start..]) {
            *now += a * before;
        }
    }
}

pub(super) fn backward<F: Float>(scan: &LinearScan, a: &[F], h: Used<F>) -> Vec<Vec<F>> {
    let mut gx = h.grad.to_vec();
    let mut ga = vec![F::zero(); a.len()];
    let sequence = scan.len * scan.width;
    gx.par_chunks_mut(sequence)
        .zip(ga.par_chunks_mut(sequence))
        .zip(a.par_chunks(sequence))
        .zip(h.value.par_chunks(sequence))
        .for_each(|(((gx, ga), a), h)| backward_sequence(scan.width, a, h, gx, ga));
    vec![ga, gx]
}

/// `gx` holds the gradient of the states and becomes that of x, which is the same with what
/// arrives from later steps. `ga` is zero and stays so in the first row, for h_{-1} = 0.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn backward_sequence<F: Float>(width: usize, a: &[F], h: &[F], gx: &mut [F], ga: &mut [F]) {
    for start in (width..gx.len()).step_by(width).rev() {
        let (before, now) = gx.split_at_mut(start);
        let before = &mut before[start - width..];
        for ((before, &now), &a) in before.iter_mut().zip(&*now).zip(&a[start..]) {
            *before += a * now;
        }
        let now = now.iter().zip(&h[start - width..start]);
        for (ga, (&now, &h)) in ga[start..].iter_mut().zip(now) {
            *ga = now * h;
        }
    }
}
