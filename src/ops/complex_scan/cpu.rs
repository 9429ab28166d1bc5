//! Passes on the CPU.

use super::ComplexScan;
use crate::linear_scan::cuda::Extent;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::map;
use crate::runtime::strips::{Strip, StripRows, Strips};
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

impl CpuOp for ComplexScan {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut h = zeros(ins[1].len());
        let Extent { batch, len, width, .. } = self.0;
        Strips::new(batch, width).run([&mut h], |strip, [h]| {
            forward_strip(len, strip, [ins[0], ins[1]], h);
        });
        vec![h]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (a, h) = (call.ins[0], call.only());
        let mut ga = zeros(a.len());
        let mut gx = zeros(a.len());
        let Extent { batch, len, width, .. } = self.0;
        let strips = Strips::new(batch, width);
        strips.run([&mut ga, &mut gx], |strip, [ga, gx]| {
            backward_strip(len, strip, [a, h.value, h.grad], ga, gx);
        });
        vec![ga, gx]
    }
}

/// Returns the rows of real and of imaginary parts of a strip at time `t`.
#[inline(always)]
fn pair<F>(strip: Strip, x: &[F], len: usize, t: usize) -> [&[F]; 2] {
    map([0, 1], |part| strip.row(x, 2 * len, 2 * t + part))
}

/// `to` += `a` `b` + sign `c` `d`.
#[inline(always)]
fn add_products<F: Float>(to: &mut [F], [a, b]: [&[F]; 2], sign: F, [c, d]: [&[F]; 2]) {
    let products = a.iter().zip(b).zip(c).zip(d);
    for (to, (((&a, &b), &c), &d)) in to.iter_mut().zip(products) {
        *to = a.fma(b, (sign * c).fma(d, *to));
    }
}

#[simd]
fn forward_strip<F: Float>(len: usize, strip: Strip, [a, x]: [&[F]; 2], mut h: StripRows<F>) {
    for t in 0..len {
        let [x_re, x_im] = pair(strip, x, len, t);
        h[2 * t].copy_from_slice(x_re);
        h[2 * t + 1].copy_from_slice(x_im);
        let (before, now) = h.split_at_mut(2 * t);
        let ([.., re, im], [h_re, h_im, ..]) = (before, now) else {
            continue; // there is no state before the first step
        };
        let ([a_re, a_im], re, im) = (pair(strip, a, len, t), &**re, &**im);
        add_products(h_re, [a_re, re], -F::one(), [a_im, im]);
        add_products(h_im, [a_re, im], F::one(), [a_im, re]);
    }
}

/// The adjoint scan: dL/dh_{t-1} receives conj(a_t) dL/dh_t, and dL/da_t = conj(h_{t-1}) dL/dh_t.
/// Both gradients must be zero on entry.
#[simd]
fn backward_strip<F: Float>(
    len: usize,
    strip: Strip,
    [a, h, gh]: [&[F]; 3],
    mut ga: StripRows<F>,
    mut gx: StripRows<F>,
) {
    for t in (0..len).rev() {
        for (part, gh) in pair(strip, gh, len, t).into_iter().enumerate() {
            for (gx, &gh) in gx[2 * t + part].iter_mut().zip(gh) {
                *gx += gh;
            }
        }
        let (before, now) = gx.split_at_mut(2 * t);
        let ([.., to_re, to_im], [re, im, ..]) = (before, now) else {
            continue; // there is no state before the first step
        };
        let ([a_re, a_im], re, im) = (pair(strip, a, len, t), &**re, &**im);
        add_products(to_re, [a_re, re], F::one(), [a_im, im]);
        add_products(to_im, [a_re, im], -F::one(), [a_im, re]);
        let [h_re, h_im] = pair(strip, h, len, t - 1);
        add_products(ga[2 * t], [re, h_re], F::one(), [im, h_im]);
        add_products(ga[2 * t + 1], [im, h_re], -F::one(), [re, h_im]);
    }
}
