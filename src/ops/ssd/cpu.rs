//! Passes on the CPU.

use super::Ssd;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::chunked::{Decay, Inputs};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, load, splat, store, sum_parts, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Steps per partial sum of the gradient of a.
const SLAB: usize = 64;

impl CpuOp for Ssd {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![self.sums.forward(&inputs(ins))]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let grads = self.sums.backward(&inputs(call.ins), call.only().grad);
        // Converted in place to the gradients of u and δ, a slab of steps at a time.
        let (mut u, mut delta) = (grads.v, grads.exponent);
        let d = self.sums.channels;
        let slab = SLAB * d;
        let mut parts = zeros(call.ins[0].len().div_ceil(slab) * d);
        let grads_of_slabs = u.chunks_mut(slab).zip(delta.chunks_mut(slab));
        grads_of_slabs
            .zip(parts.chunks_mut(d))
            .zip(call.ins[0].chunks(slab).zip(call.ins[1].chunks(slab)))
            .in_parallel(|(((gu, gd), part), (u, delta))| {
                of_inputs(u, delta, call.ins[2], (gu, gd, part));
            });
        vec![u, delta, sum_parts(&parts, d), grads.b, grads.c]
    }
}

/// Converts the gradients of v = δ u and of the exponent δ a, of some steps, to those of u and δ,
/// and sums that of a.
#[simd]
fn of_inputs<F: Float>(u: &[F], delta: &[F], a: &[F], (value, exponent, g_a): (&mut [F], &mut [F], &mut [F])) {
    let d = a.len();
    for start in (0..d).step_by(LANES) {
        let rate: Lanes<F> = load(&a[start..]);
        let mut total: Lanes<F> = splat(F::zero());
        for row in (0..u.len()).step_by(d) {
            let here = row + start..row + (start + LANES).min(d);
            let (u, delta): (Lanes<F>, Lanes<F>) = (load(&u[here.clone()]), load(&delta[here.clone()]));
            let (v, e): (Lanes<F>, Lanes<F>) = (load(&value[here.clone()]), load(&exponent[here.clone()]));
            total = each(|i| delta[i].fma(e[i], total[i]));
            let of_u: Lanes<F> = each(|i| delta[i] * v[i]);
            let of_delta: Lanes<F> = each(|i| rate[i].fma(e[i], u[i] * v[i]));
            store(&of_u, &mut value[here.clone()]);
            store(&of_delta, &mut exponent[here]);
        }
        store(&total, &mut g_a[start..(start + LANES).min(d)]);
    }
}

fn inputs<'a, F>(ins: &[&'a [F]]) -> Inputs<'a, F> {
    let [u, delta, a, b, c] = *ins else { unreachable!("five inputs") };
    let decay = Some(Decay { step: delta, rate: a });
    Inputs { b, c, x: u, decay }
}
