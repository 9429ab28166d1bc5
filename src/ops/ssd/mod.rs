//! The selective scan in which all states of a channel share one decay: SSD, Mamba-2.

mod launch;
mod reference;

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::chunked::{Chunked, Decay, Inputs, Times};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, load, splat, store, sum_parts, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::zeros;
use candle_core::{Result, Shape, Tensor};
use dsf_simd::simd;

/// y_t\[c\] = Σ_k h_t\[c,k\] c_t\[k\] with h_t\[c,k\] = exp(δ_t\[c\] a\[c\]) h_{t-1}\[c,k\] + δ_t\[c\] u_t\[c\] b_t\[k\].
///
/// `u`, `delta`: (B, L, d); `a`: (d); `b`: (B, L, n); `c`: (B, L, n), result (B, L, d). With
/// `positions`, (B, R) of u32 that ascend within each sequence, `c` is (B, R, n) at these steps,
/// and the result (B, R, d). This is [`selective_scan`](crate::selective_scan()) with one decay per
/// channel, computed by matrix products: Dao & Gu 2024, with the decay inside each channel. The
/// decay must not grow: δ a <= 0. Beyond 64 steps, either pass stores one state per 64 steps, for
/// as many sequences as fit into a fixed amount of memory.
pub fn ssd(
    u: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    positions: Option<&Tensor>,
) -> Result<Tensor> {
    let ins = [u, delta, a, b, c];
    let op = Ssd::check(ins, positions)?;
    if runs_on(u) {
        apply_one(op, &ins)
    } else {
        reference::ssd(ins, positions)
    }
}

struct Ssd {
    sums: Chunked,
    /// The times of the rows, for kernels.
    positions: Option<Tensor>,
}

impl Ssd {
    const OP: &'static str = "ssd";

    fn check([u, delta, a, b, c]: [&Tensor; 5], positions: Option<&Tensor>) -> Result<Self> {
        let [batch, len, channels] = shape::dims(Self::OP, ("u", u))?;
        let [_, _, states] = shape::dims(Self::OP, ("b", b))?;
        let [_, rows, _] = shape::dims(Self::OP, ("c", c))?;
        let times = match positions {
            Some(positions) => {
                let (by, of) = (("c", [batch, rows]), ("u", len));
                let times = shape::ascending(Self::OP, positions, by, of, 0)?;
                Times::lists(times, rows, 1)
            }
            None => Times::all(len),
        };
        let by = ("u", u);
        shape::expect(Self::OP, ("delta", delta), by, &[batch, len, channels])?;
        shape::parameter(Self::OP, ("a", a), by, &[channels])?;
        shape::expect(Self::OP, ("b", b), by, &[batch, len, states])?;
        shape::expect(Self::OP, ("c", c), ("b", b), &[batch, times.rows, states])?;
        let sums = Chunked { sequences: batch, len, channels, states, times };
        let positions = positions.map(Tensor::contiguous).transpose()?;
        Ok(Self { sums, positions })
    }
}

impl FusedOp for Ssd {
    const NAME: &'static str = Self::OP;

    fn out_shapes(&self) -> Vec<Shape> {
        let op = &self.sums;
        vec![(op.sequences, op.times.rows, op.channels).into()]
    }

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

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        launch::forward(self, call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        launch::backward(self, call)
    }
}

/// Steps per partial sum of the gradient of a.
const SLAB: usize = 64;

fn inputs<'a, F>(ins: &[&'a [F]]) -> Inputs<'a, F> {
    let [u, delta, a, b, c] = *ins else { unreachable!("five inputs") };
    let decay = Some(Decay { step: delta, rate: a });
    Inputs { b, c, x: u, decay }
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

#[cfg(test)]
mod tests;
