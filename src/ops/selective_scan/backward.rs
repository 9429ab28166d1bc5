//! The backward pass. It runs the recurrence again, keeps the state before every chunk, and then
//! goes back chunk by chunk, so that memory does not grow with B.

use super::cpu::{step, Group, Lanes, Now, Sequence, WIDTH};
use super::SelectiveScan;
use crate::ops::float::Float;
use crate::ops::lanes::{each, load, splat, store, sum};
use multiversion::multiversion;
use rayon::prelude::*;
use std::ops::Range;

/// Steps in a chunk.
const CHUNK: usize = 16;

/// The gradients of one sequence; `a` is packed like the decay rates.
struct Grads<'a, F> {
    u: &'a mut [F],
    delta: &'a mut [F],
    b: &'a mut [F],
    c: &'a mut [F],
    a: &'a mut [Lanes<F>],
}

pub(super) fn backward<F: Float>(scan: &SelectiveScan, ins: &[&[F]], gy: &[F]) -> Vec<Vec<F>> {
    let a = scan.pack(ins[2]);
    let zeros = |like: &[F]| vec![F::zero(); like.len()];
    let (mut u, mut delta, mut b, mut c) =
        (zeros(ins[0]), zeros(ins[1]), zeros(ins[3]), zeros(ins[4]));
    let mut partial = vec![splat(F::zero()); scan.batch * a.len()];
    let (wide, narrow) = (scan.len * scan.channels, scan.len * scan.states);
    (
        u.par_chunks_mut(wide),
        delta.par_chunks_mut(wide),
        b.par_chunks_mut(narrow),
        c.par_chunks_mut(narrow),
    )
        .into_par_iter()
        .zip(partial.par_chunks_mut(a.len()))
        .zip(gy.par_chunks(wide))
        .enumerate()
        .for_each(|(i, (((u, delta, b, c), a_part), gy))| {
            let mut grads = Grads {
                u,
                delta,
                b,
                c,
                a: a_part,
            };
            backward_sequence(scan, &Sequence::of(scan, ins, &a, i), gy, &mut grads);
        });
    let a = scan.unpack_sum(&partial);
    vec![u, delta, a, b, c]
}

/// What the backward pass of a group keeps.
struct Scratch<F> {
    /// The state before each chunk: (chunks, n).
    kept: Vec<Lanes<F>>,
    /// Decays inside a chunk: (CHUNK, decays).
    decay: Vec<Lanes<F>>,
    /// States inside a chunk, the one before it first: (CHUNK + 1, n).
    h: Vec<Lanes<F>>,
    /// exp(δ_{t+1} a) dL/dh_{t+1}: (n).
    carry: Vec<Lanes<F>>,
}

impl<F: Float> Scratch<F> {
    fn new(scan: &SelectiveScan) -> Self {
        let zeros = |count| vec![splat(F::zero()); count];
        Self {
            kept: zeros(scan.len.div_ceil(CHUNK) * scan.states),
            decay: zeros(CHUNK * scan.decays),
            h: zeros((CHUNK + 1) * scan.states),
            carry: zeros(scan.states),
        }
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn backward_sequence<F: Float>(
    scan: &SelectiveScan,
    seq: &Sequence<F>,
    gy: &[F],
    grads: &mut Grads<F>,
) {
    let mut scratch = Scratch::new(scan);
    for group in scan.groups() {
        keep_states(scan, seq, &group, &mut scratch);
        scratch.carry.fill(splat(F::zero()));
        let ga = &mut grads.a[group.index * scan.decays..][..scan.decays];
        for chunk in (0..scan.len.div_ceil(CHUNK)).rev() {
            let times = chunk * CHUNK..((chunk + 1) * CHUNK).min(scan.len);
            replay(scan, seq, &group, times.clone(), &mut scratch);
            for t in times.clone().rev() {
                let (range, row) = (group.range(scan, t), t * scan.states..(t + 1) * scan.states);
                let back = Back {
                    gy: load(&gy[range.clone()]),
                    ga: &mut *ga,
                    gb: &mut grads.b[row.clone()],
                    gc: &mut grads.c[row],
                };
                let (gu, gdelta) =
                    step_back(&group.at(scan, seq, t), back, t - times.start, &mut scratch);
                store(&gu, &mut grads.u[range.clone()]);
                store(&gdelta, &mut grads.delta[range]);
            }
        }
    }
}

/// Runs the recurrence once and keeps the state before every chunk.
#[inline(always)]
fn keep_states<F: Float>(
    scan: &SelectiveScan,
    seq: &Sequence<F>,
    group: &Group,
    scratch: &mut Scratch<F>,
) {
    let h = &mut scratch.carry;
    h.fill(splat(F::zero()));
    for (chunk, kept) in scratch.kept.chunks_exact_mut(scan.states).enumerate() {
        kept.copy_from_slice(h);
        for t in chunk * CHUNK..((chunk + 1) * CHUNK).min(scan.len) {
            step(&group.at(scan, seq, t), h);
        }
    }
}

/// Runs one chunk again and writes its decays and states.
#[inline(always)]
fn replay<F: Float>(
    scan: &SelectiveScan,
    seq: &Sequence<F>,
    group: &Group,
    times: Range<usize>,
    scratch: &mut Scratch<F>,
) {
    let n = scan.states;
    scratch.h[..n].copy_from_slice(&scratch.kept[times.start / CHUNK * n..][..n]);
    for (j, t) in times.enumerate() {
        let now = group.at(scan, seq, t);
        let drive = now.drive();
        let decays = &mut scratch.decay[j * scan.decays..][..scan.decays];
        for (decay, a) in decays.iter_mut().zip(now.a) {
            *decay = now.decay(a);
        }
        let (before, after) = scratch.h.split_at_mut((j + 1) * n);
        let before = &before[j * n..];
        for (k, ((after, before), &b)) in after.iter_mut().zip(before).zip(now.b).enumerate() {
            let decay = &decays[k.min(scan.decays - 1)];
            *after = each(|i| decay[i] * before[i] + drive[i] * b);
        }
    }
}

/// The gradients that one step back reads and adds to.
struct Back<'a, F> {
    gy: Lanes<F>,
    ga: &'a mut [Lanes<F>],
    gb: &'a mut [F],
    gc: &'a mut [F],
}

/// One step back of one group, the `j`-th of its chunk; returns the gradients of u_t and δ_t.
#[inline(always)]
fn step_back<F: Float>(
    now: &Now<F>,
    back: Back<F>,
    j: usize,
    scratch: &mut Scratch<F>,
) -> (Lanes<F>, Lanes<F>) {
    let (n, decays) = (now.b.len(), now.a.len());
    let Back { gy, ga, gb, gc } = back;
    let drive = now.drive();
    let decay = &scratch.decay[j * decays..][..decays];
    let (before, after) = scratch.h[j * n..][..2 * n].split_at(n);
    let carry = &mut scratch.carry[..n];
    let mut along_b: Lanes<F> = splat(F::zero());
    let mut along_a: Lanes<F> = splat(F::zero());
    for k in 0..n {
        let r = k.min(decays - 1);
        let (b, c) = (now.b[k], now.c[k]);
        let gh: Lanes<F> = each(|i| gy[i] * c + carry[k][i]);
        let of_c: Lanes<F> = each(|i| gy[i] * after[k][i]);
        let of_b: Lanes<F> = each(|i| gh[i] * drive[i]);
        gc[k] += sum(&of_c);
        gb[k] += sum(&of_b);
        along_b = each(|i| along_b[i] + gh[i] * b);
        carry[k] = each(|i| gh[i] * decay[r][i]);
        let exponent: Lanes<F> = each(|i| carry[k][i] * before[k][i]); // dL/d(δ a)
        along_a = each(|i| along_a[i] + exponent[i] * now.a[r][i]);
        ga[r] = each(|i| ga[r][i] + exponent[i] * now.delta[i]);
    }
    let gu = each(|i| now.delta[i] * along_b[i]);
    let gdelta = each(|i| along_a[i] + now.u[i] * along_b[i]);
    (gu, gdelta)
}

impl SelectiveScan {
    /// The reverse of `pack`, of the sum over sequences in their order.
    fn unpack_sum<F: Float>(&self, partial: &[Lanes<F>]) -> Vec<F> {
        let (first, rest) = partial.split_at(partial.len() / self.batch);
        let mut total = first.to_vec();
        for part in rest.chunks_exact(first.len()) {
            for (total, part) in total.iter_mut().zip(part) {
                *total = each(|i| total[i] + part[i]);
            }
        }
        let entry = |i: usize| {
            let (channel, k) = (i / self.decays, i % self.decays);
            total[channel / WIDTH * self.decays + k][channel % WIDTH]
        };
        (0..self.channels * self.decays).map(entry).collect()
    }
}
