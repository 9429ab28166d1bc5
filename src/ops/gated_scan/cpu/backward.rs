//! The backward pass of one strip of channels. It recomputes the recurrence, one chunk of rows at a
//! time, and stores the gates and states of that chunk only.

use super::super::rules::{At, Rule};
use super::super::Scan;
use super::{add, copy, step, StripInputs};
use crate::runtime::autograd::Used;
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, load, map, splat, store, sum_parts, Lanes, LANES};
use crate::runtime::strips::StripRows;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;
use std::ops::Range;

/// Steps per chunk.
const CHUNK: usize = 64;

pub(super) fn backward<R: Rule, F: Float>(scan: &Scan<R>, ins: &[&[F]], out: Used<&[F]>) -> Vec<Vec<F>> {
    let coefficients = scan.coefficients(ins);
    let sizes = &scan.sizes;
    let mut gz = zeros(ins[0].len());
    let mut gx = zeros(ins[1].len());
    let mut gp = zeros(sizes.extent.batch * sizes.extent.width);
    let outs = [&mut gz[..], &mut gx, &mut gp];
    sizes.strips().run(outs, |strip, grads| {
        backward_strip(scan, &scan.strip_inputs(strip, ins, &coefficients), out, grads);
    });
    let mut grads = vec![gz, gx];
    if R::HAS_PARAMETER {
        let gp = sum_parts(&gp, sizes.extent.width);
        grads.push(scan.rule.parameter_grad(ins[2], gp));
    }
    grads
}

/// The buffers of the backward pass of a strip. Each row holds the strip's groups of lanes.
struct GatedScanScratch<F> {
    /// The state before each chunk.
    kept: Vec<Lanes<F>>,
    /// Decays and input scales inside a chunk.
    gates: [Vec<Lanes<F>>; 2],
    /// The state before a chunk, followed by those inside it.
    h: Vec<Lanes<F>>,
    /// The gradient of the state that flows back from later steps.
    carry: Vec<Lanes<F>>,
    /// The gradient of the channels' coefficients.
    gp: Vec<Lanes<F>>,
}

impl<F: Float> GatedScanScratch<F> {
    fn new(ins: &StripInputs<F>) -> Self {
        let rows = ins.len.min(CHUNK);
        let lanes = |rows| ins.strip.lanes(rows);
        Self {
            kept: lanes(ins.len.div_ceil(CHUNK)),
            gates: [lanes(rows), lanes(rows)],
            h: lanes(rows + 1),
            carry: lanes(1),
            gp: lanes(1),
        }
    }
}

#[simd]
fn backward_strip<R: Rule, F: Float>(
    scan: &Scan<R>,
    ins: &StripInputs<F>,
    out: Used<&[F]>,
    [mut gz, mut gx, mut gp]: [StripRows<F>; 3],
) {
    let (sizes, sequence) = (&scan.sizes, ins.strip.sequence);
    let mut scratch = GatedScanScratch::new(ins);
    let mut rows = sizes.rows();
    let end = sizes.time(sequence, rows - 1) + 1; // no gradient comes from later
    keep_states(scan, ins, out.value, end, &mut scratch);
    for start in (0..end).step_by(CHUNK).rev() {
        let times = start..(start + CHUNK).min(end);
        replay(scan.rule, ins, times.clone(), &mut scratch);
        for t in times.rev() {
            while rows > 0 && sizes.time(sequence, rows - 1) == t {
                rows -= 1;
                let gh = ins.strip.row(out.grad, sizes.rows(), rows);
                add(gh, &mut scratch.carry);
            }
            let [gzf, gzi] = &mut gz[2 * t..2 * t + 2] else { unreachable!("two rows were taken") };
            step_back(scan.rule, ins, t, &mut scratch, [gzf, gzi, gx[t]]);
        }
    }
    copy(&scratch.gp, gp[0]);
}

/// Stores the state before each chunk that ends by `end`: read from the output if that holds every
/// state, otherwise recomputed.
#[inline(always)]
fn keep_states<R: Rule, F: Float>(
    scan: &Scan<R>,
    ins: &StripInputs<F>,
    h: &[F],
    end: usize,
    scratch: &mut GatedScanScratch<F>,
) {
    let groups = ins.groups();
    let chunks = scratch.kept.chunks_exact_mut(groups).enumerate();
    let chunks = chunks.skip(1).take(end.saturating_sub(1) / CHUNK);
    let state = &mut scratch.h[..groups];
    state.fill(splat(F::zero()));
    for (chunk, kept) in chunks {
        if scan.sizes.selected.is_none() {
            let row = ins.strip.row(h, ins.len, chunk * CHUNK - 1);
            kept.fill(splat(F::zero()));
            add(row, kept);
        } else {
            for t in (chunk - 1) * CHUNK..chunk * CHUNK {
                step(scan.rule, ins, t, state, |_, _| {});
            }
            kept.copy_from_slice(state);
        }
    }
}

/// Recomputes the gates and states of one chunk.
#[inline(always)]
fn replay<R: Rule, F: Float>(rule: R, ins: &StripInputs<F>, times: Range<usize>, scratch: &mut GatedScanScratch<F>) {
    let groups = ins.groups();
    let GatedScanScratch { kept, gates: [f, s], h, carry: _, gp: _ } = scratch;
    let before = &kept[times.start / CHUNK * groups..][..groups];
    h[..groups].copy_from_slice(before);
    for (j, t) in times.enumerate() {
        let (first, rest) = h.split_at_mut((j + 1) * groups);
        let state = &mut rest[..groups];
        state.copy_from_slice(&first[j * groups..]);
        step(rule, ins, t, state, |g, gates| {
            [f[j * groups + g], s[j * groups + g]] = gates;
        });
    }
}

/// One step of the backward pass; `to` are the rows of the gradients of z_f, z_i and x.
#[inline(always)]
fn step_back<R: Rule, F: Float>(
    rule: R,
    ins: &StripInputs<F>,
    t: usize,
    scratch: &mut GatedScanScratch<F>,
    to: [&mut [F]; 3],
) {
    let groups = ins.groups();
    let j = t % CHUNK * groups;
    let GatedScanScratch { gates: [f, s], h, carry, gp, .. } = scratch;
    let kept = [&f[j..][..groups], &s[j..][..groups], &h[j..][..groups]];
    let (carry, gp) = (&mut carry[..groups], &mut gp[..groups]);
    let rows = map(ins.at(t), |row| row.as_chunks());
    let whole = rows[0].0.len();
    let [gzf, gzi, gx] = to;
    let [gzf, gzi, gx] = [gzf.as_chunks_mut(), gzi.as_chunks_mut(), gx.as_chunks_mut()];
    for g in 0..whole {
        let now = map(rows, |(whole, _)| &whole[g]);
        let kept = map(kept, |kept| &kept[g]);
        [gzf.0[g], gzi.0[g], gx.0[g]] = retreat(rule, now, kept, &mut carry[g], &mut gp[g]);
    }
    if whole < groups {
        let now = map(rows, |(_, rest)| load(rest));
        let kept = map(kept, |kept| &kept[whole]);
        let (carry, gp) = (&mut carry[whole], &mut gp[whole]);
        let grads = retreat(rule, now.each_ref(), kept, carry, gp);
        store(&grads[0], gzf.1);
        store(&grads[1], gzi.1);
        store(&grads[2], gx.1);
    }
}

/// One step of the backward pass of a group, given its gates and its previous state; returns the
/// gradients of z_f, z_i and x.
#[inline(always)]
fn retreat<R: Rule, F: Float>(
    rule: R,
    [zf, zi, p, x]: [&Lanes<F>; 4],
    [f, s, before]: [&Lanes<F>; 3],
    carry: &mut Lanes<F>,
    gp: &mut Lanes<F>,
) -> [Lanes<F>; 3] {
    let gh = *carry;
    let mut gzf: Lanes<F> = splat(F::zero());
    let mut gzi: Lanes<F> = splat(F::zero());
    let mut of_p: Lanes<F> = splat(F::zero());
    for i in 0..LANES {
        let at = At { zf: zf[i], zi: zi[i], p: p[i] };
        let of_gates = [gh[i] * before[i], gh[i] * x[i]];
        [gzf[i], gzi[i], of_p[i]] = rule.slopes(at, [f[i], s[i]], of_gates);
    }
    *carry = each(|i| gh[i] * f[i]);
    if R::HAS_PARAMETER {
        *gp = each(|i| gp[i] + of_p[i]);
    }
    [gzf, gzi, each(|i| gh[i] * s[i])]
}
