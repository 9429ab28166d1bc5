//! Forward and backward of one strip of channels. Row t is computed from row t-1, so the inner
//! loops run over channels.

use super::cuda::Extent;
use super::LinearScan;
use crate::runtime::autograd::{Backward, CpuOp, Forward, Used};
use crate::runtime::float::Float;
use crate::runtime::strips::{Strip, StripRows, Strips};
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

impl CpuOp for LinearScan {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let (a, x) = (ins[0], ins[1]);
        let mut h = zeros(x.len());
        let Extent { batch, len, width, .. } = self.0;
        Strips::new(batch, width).run([&mut h], |strip, [h]| {
            forward_strip(len, strip, [a, x], h);
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
            backward_strip(len, strip, a, h, ga, gx);
        });
        vec![ga, gx]
    }
}

#[simd]
fn forward_strip<F: Float>(len: usize, strip: Strip, [a, x]: [&[F]; 2], mut h: StripRows<F>) {
    h[0].copy_from_slice(strip.row(x, len, 0));
    for t in 1..len {
        let [a, x] = [strip.row(a, len, t), strip.row(x, len, t)];
        let (before, now) = h.split_at_mut(t);
        add_product(&mut *now[0], x, a, &*before[t - 1]);
    }
}

/// `to` = `x` + `a` `b`.
#[inline(always)]
fn add_product<F: Float>(to: &mut [F], x: &[F], a: &[F], b: &[F]) {
    for (((to, &x), &a), &b) in to.iter_mut().zip(x).zip(a).zip(b) {
        *to = a.fma(b, x);
    }
}

/// The adjoint scan: dL/dx_t = dL/dh_t, to which later steps contribute a_{t+1} dL/dh_{t+1}. `ga`
/// must be zero on entry; its first row stays zero, as h_{-1} = 0.
#[simd]
fn backward_strip<F: Float>(
    len: usize,
    strip: Strip,
    a: &[F],
    h: Used<&[F]>,
    mut ga: StripRows<F>,
    mut gx: StripRows<F>,
) {
    gx[len - 1].copy_from_slice(strip.row(h.grad, len, len - 1));
    for t in (1..len).rev() {
        let (a, before) = (strip.row(a, len, t), strip.row(h.value, len, t - 1));
        let (earlier, now) = gx.split_at_mut(t);
        let now = &*now[0];
        for ((ga, &now), &before) in ga[t].iter_mut().zip(now).zip(before) {
            *ga = now * before;
        }
        let gh = strip.row(h.grad, len, t - 1);
        add_product(&mut *earlier[t - 1], gh, a, now);
    }
}
