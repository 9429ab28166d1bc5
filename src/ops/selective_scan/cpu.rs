//! The forward pass, one task per sequence. Channels go in groups, and the states of a group stay
//! in cache while time runs.

use super::SelectiveScan;
use crate::ops::float::Float;
use crate::ops::lanes::{each, load, splat, store};
use multiversion::multiversion;
use rayon::prelude::*;
use std::ops::Range;

/// Channels in a group. Two AVX-512 registers: the gradients of b and c take a sum over lanes per
/// state, which wider lanes make rarer (16: 15.5 ms where 32 takes 10.6; 64 gains nothing more).
pub(super) const WIDTH: usize = 32;

/// A number of each channel of a group.
pub(super) type Lanes<F> = [F; WIDTH];

/// The inputs of one sequence, and the packed decay rates that all sequences share.
pub(super) struct Sequence<'a, F> {
    u: &'a [F],
    delta: &'a [F],
    b: &'a [F],
    c: &'a [F],
    a: &'a [Lanes<F>],
}

impl<'a, F: Float> Sequence<'a, F> {
    pub(super) fn of(
        scan: &SelectiveScan,
        ins: &[&'a [F]],
        a: &'a [Lanes<F>],
        index: usize,
    ) -> Self {
        let [u, delta, _, b, c] = ins else {
            unreachable!("five inputs")
        };
        let part = |x: &'a [F], width: usize| &x[index * scan.len * width..][..scan.len * width];
        Self {
            u: part(u, scan.channels),
            delta: part(delta, scan.channels),
            b: part(b, scan.states),
            c: part(c, scan.states),
            a,
        }
    }
}

/// Neighbouring channels.
pub(super) struct Group {
    pub(super) index: usize,
}

/// What a group reads at one step.
pub(super) struct Now<'a, F> {
    pub(super) delta: Lanes<F>,
    pub(super) u: Lanes<F>,
    pub(super) a: &'a [Lanes<F>],
    pub(super) b: &'a [F],
    pub(super) c: &'a [F],
}

impl Group {
    /// Where the group lies in a (len, channels) array at step `t`.
    #[inline(always)]
    pub(super) fn range(&self, scan: &SelectiveScan, t: usize) -> Range<usize> {
        let start = self.index * WIDTH;
        let end = (start + WIDTH).min(scan.channels);
        t * scan.channels + start..t * scan.channels + end
    }

    #[inline(always)]
    pub(super) fn at<'a, F: Float>(
        &self,
        scan: &SelectiveScan,
        seq: &Sequence<'a, F>,
        t: usize,
    ) -> Now<'a, F> {
        let range = self.range(scan, t);
        let row = t * scan.states..(t + 1) * scan.states;
        Now {
            delta: load(&seq.delta[range.clone()]),
            u: load(&seq.u[range]),
            a: &seq.a[self.index * scan.decays..][..scan.decays],
            b: &seq.b[row.clone()],
            c: &seq.c[row],
        }
    }
}

impl<F: Float> Now<'_, F> {
    #[inline(always)]
    pub(super) fn drive(&self) -> Lanes<F> {
        each(|i| self.delta[i] * self.u[i])
    }

    #[inline(always)]
    pub(super) fn decay(&self, a: &Lanes<F>) -> Lanes<F> {
        each(|i| (self.delta[i] * a[i]).exp())
    }
}

impl SelectiveScan {
    pub(super) fn groups(&self) -> impl Iterator<Item = Group> {
        (0..self.channels.div_ceil(WIDTH)).map(|index| Group { index })
    }

    /// (d, decays) to (groups, decays, its channels), zero where there is no channel.
    pub(super) fn pack<F: Float>(&self, a: &[F]) -> Vec<Lanes<F>> {
        let mut packed = vec![splat(F::zero()); self.channels.div_ceil(WIDTH) * self.decays];
        for (i, &a) in a.iter().enumerate() {
            let (channel, k) = (i / self.decays, i % self.decays);
            packed[channel / WIDTH * self.decays + k][channel % WIDTH] = a;
        }
        packed
    }
}

pub(super) fn forward<F: Float>(scan: &SelectiveScan, ins: &[&[F]]) -> Vec<F> {
    let a = scan.pack(ins[2]);
    let mut y = vec![F::zero(); ins[0].len()];
    y.par_chunks_mut(scan.len * scan.channels)
        .enumerate()
        .for_each(|(i, y)| forward_sequence(scan, &Sequence::of(scan, ins, &a, i), y));
    y
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn forward_sequence<F: Float>(scan: &SelectiveScan, seq: &Sequence<F>, y: &mut [F]) {
    let mut h = vec![splat(F::zero()); scan.states];
    for group in scan.groups() {
        h.fill(splat(F::zero()));
        for t in 0..scan.len {
            let out = step(&group.at(scan, seq, t), &mut h);
            store(&out, &mut y[group.range(scan, t)]);
        }
    }
}

/// One step of one group: advances `h` and returns the read-out.
#[inline(always)]
pub(super) fn step<F: Float>(now: &Now<F>, h: &mut [Lanes<F>]) -> Lanes<F> {
    let drive = now.drive();
    let mut y = splat(F::zero());
    let mut advance = |decay: &Lanes<F>, h: &mut Lanes<F>, b: F, c: F| {
        *h = each(|i| decay[i] * h[i] + drive[i] * b);
        y = each(|i| y[i] + h[i] * c);
    };
    let terms = h.iter_mut().zip(now.b).zip(now.c);
    if let [a] = now.a {
        let decay = now.decay(a);
        terms.for_each(|((h, &b), &c)| advance(&decay, h, b, c));
    } else {
        terms
            .zip(now.a)
            .for_each(|(((h, &b), &c), a)| advance(&now.decay(a), h, b, c));
    }
    y
}
