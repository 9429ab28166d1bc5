//! The forward pass of one strip of channels, row after row.

mod backward;

use super::rules::{At, Rule};
use super::{Scan, ScanSizes};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, load, map, splat, store, Lanes, LANES};
use crate::runtime::strips::{Strip, StripRows, Strips};
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// The inputs of a strip.
pub(super) struct StripInputs<'a, F> {
    pub(super) strip: Strip,
    pub(super) len: usize,
    z: &'a [F],
    x: &'a [F],
    coefficients: &'a [F],
}

impl<R: Rule> CpuOp for Scan<R> {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let coefficients = self.coefficients(ins);
        let sizes = &self.sizes;
        let mut h = zeros(sizes.extent.batch * sizes.rows() * sizes.extent.width);
        sizes.strips().run([&mut h], |strip, [h]| {
            forward_strip(self, &self.strip_inputs(strip, ins, &coefficients), h);
        });
        vec![h]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        backward::backward(self, call.ins, call.only())
    }
}

impl<'a, F: Float> StripInputs<'a, F> {
    /// The inputs at step `t`: z_f, z_i, the channels' coefficients, x. z is an array of (B, 2L,
    /// N).
    #[inline(always)]
    pub(super) fn at(&self, t: usize) -> [&'a [F]; 4] {
        let z = |i: usize| self.strip.row(self.z, 2 * self.len, 2 * t + i);
        let x = self.strip.row(self.x, self.len, t);
        [z(0), z(1), self.coefficients, x]
    }

    /// The number of groups of lanes.
    pub(super) fn groups(&self) -> usize {
        self.strip.channels.div_ceil(LANES)
    }
}

impl<R: Rule> Scan<R> {
    pub(super) fn coefficients<F: Float>(&self, ins: &[&[F]]) -> Vec<F> {
        self.rule.coefficients(ins.get(2).copied(), self.sizes.extent.width)
    }

    pub(super) fn strip_inputs<'a, F>(
        &self,
        strip: Strip,
        ins: &[&'a [F]],
        coefficients: &'a [F],
    ) -> StripInputs<'a, F> {
        StripInputs { strip, len: self.sizes.extent.len, z: ins[0], x: ins[1], coefficients: strip.of(coefficients) }
    }
}

#[simd]
fn forward_strip<R: Rule, F: Float>(scan: &Scan<R>, ins: &StripInputs<F>, h: StripRows<F>) {
    let mut state = ins.strip.lanes(1);
    let mut t = 0;
    for (row, h) in h.into_iter().enumerate() {
        while t <= scan.sizes.time(ins.strip.sequence, row) {
            step(scan.rule, ins, t, &mut state, |_, _| {});
            t += 1;
        }
        copy(&state, h);
    }
}

/// Advances the states by step `t`; calls `keep` with each group's gates.
#[inline(always)]
pub(super) fn step<R: Rule, F: Float>(
    rule: R,
    ins: &StripInputs<F>,
    t: usize,
    state: &mut [Lanes<F>],
    mut keep: impl FnMut(usize, [Lanes<F>; 2]),
) {
    let rows = map(ins.at(t), |row| row.as_chunks());
    let whole = rows[0].0.len();
    for g in 0..whole {
        let now = map(rows, |(whole, _)| &whole[g]);
        keep(g, advance(rule, now, &mut state[g]));
    }
    if let Some(state) = state.get_mut(whole) {
        let now = map(rows, |(_, rest)| load(rest));
        keep(whole, advance(rule, now.each_ref(), state));
    }
}

/// One step of a group; returns its gates.
#[inline(always)]
fn advance<R: Rule, F: Float>(rule: R, [zf, zi, p, x]: [&Lanes<F>; 4], h: &mut Lanes<F>) -> [Lanes<F>; 2] {
    let mut f: Lanes<F> = splat(F::zero());
    let mut s: Lanes<F> = splat(F::zero());
    for i in 0..LANES {
        let at = At { zf: zf[i], zi: zi[i], p: p[i] };
        [f[i], s[i]] = rule.gates(at);
    }
    *h = each(|i| f[i].fma(h[i], s[i] * x[i]));
    [f, s]
}

#[inline(always)]
pub(super) fn copy<F: Float>(from: &[Lanes<F>], row: &mut [F]) {
    let (whole, rest) = row.as_chunks_mut();
    whole.copy_from_slice(&from[..whole.len()]);
    if let Some(from) = from.get(whole.len()) {
        store(from, rest);
    }
}

#[inline(always)]
pub(super) fn add<F: Float>(row: &[F], to: &mut [Lanes<F>]) {
    for (x, to) in row.iter().zip(to.as_flattened_mut()) {
        *to += *x;
    }
}

impl ScanSizes {
    /// The time of state `row` of a sequence.
    #[inline(always)]
    fn time(&self, sequence: usize, row: usize) -> usize {
        match &self.selected {
            Some(selected) => selected.known[sequence * selected.rows + row],
            None => row,
        }
    }

    fn strips(&self) -> Strips {
        Strips::new(self.extent.batch, self.extent.width)
    }
}
