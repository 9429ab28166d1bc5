//! Each lane holds one channel; sections are processed one after another at each step.
//!
//! The backward pass stores the states of every [`SPAN`]th step and recomputes those in between.

use super::Cascade;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Steps between stored states.
const SPAN: usize = 32;

impl CpuOp for Cascade {
    /// Computes y, one group of channels after another.
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = zeros(self.width * self.len);
        let groups = y.chunks_mut(LANES * self.len).enumerate();
        groups.in_parallel(|(group, y)| response(&self.group(ins, group), y, self.len));
        vec![y]
    }

    /// The gradients of the three inputs.
    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (ins, gy) = (call.ins, call.only().grad);
        let mut grads = [(); 3].map(|()| zeros(self.width * self.states));
        let [ga, gb, gw] = &mut grads;
        let each = LANES * self.states;
        let parts = ga.chunks_mut(each).zip(gb.chunks_mut(each)).zip(gw.chunks_mut(each));
        parts.zip(gy.chunks(LANES * self.len)).enumerate().in_parallel(|(group, (((ga, gb), gw), gy))| {
            gradients(&self.group(ins, group), gy, self.len, [ga, gb, gw]);
        });
        grads.into()
    }
}

/// The sections of a group of channels: a, b and w of each.
type Sections<F> = Vec<[Lanes<F>; 3]>;

impl Cascade {
    fn group<F: Float>(&self, ins: &[&[F]], group: usize) -> Sections<F> {
        let first = group * LANES;
        let count = LANES.min(self.width - first);
        let one = |x: &[F], i: usize| {
            let mut lanes: Lanes<F> = splat(F::zero());
            for (c, lane) in lanes.iter_mut().enumerate().take(count) {
                *lane = x[(first + c) * self.states + i];
            }
            lanes
        };
        let section = |i| [one(ins[0], i), one(ins[1], i), one(ins[2], i)];
        (0..self.states).map(section).collect()
    }
}

/// Input of the first section at step `l`.
#[inline(always)]
fn impulse<F: Float>(l: usize) -> Lanes<F> {
    splat(if l == 0 { F::one() } else { F::zero() })
}

/// Advances a section's state and the signal by one step.
#[inline(always)]
fn advance<F: Float>([a, b, _]: &[Lanes<F>; 3], state: &mut Lanes<F>, left: &mut Lanes<F>) {
    let x: Lanes<F> = each(|c| a[c].fma(state[c], b[c] * left[c]));
    *left = each(|c| left[c] - state[c] - x[c]);
    *state = x;
}

/// Writes y of some channels, `len` numbers each.
#[simd]
fn response<F: Float>(sections: &[[Lanes<F>; 3]], y: &mut [F], len: usize) {
    let mut states: Vec<Lanes<F>> = vec![splat(F::zero()); sections.len()];
    for l in 0..len {
        let mut left: Lanes<F> = impulse(l);
        let mut sum: Lanes<F> = splat(F::zero());
        for (section, state) in sections.iter().zip(&mut states) {
            advance(section, state, &mut left);
            let [_, _, w] = section;
            sum = each(|c| w[c].fma(state[c], sum[c]));
        }
        for (c, y) in y.chunks_exact_mut(len).enumerate() {
            y[l] = sum[c];
        }
    }
}

/// Writes the gradients of a, b and w of some channels.
///
/// Let g be the gradient of x_l,i and e that of t_l,i+1. Then g is the sum of the contribution from step l + 1, w gy_l
/// and -e; e of the previous section is e + b g, and the previous state gets a g - e.
#[simd]
fn gradients<F: Float>(sections: &[[Lanes<F>; 3]], gy: &[F], len: usize, to: [&mut [F]; 3]) {
    let count = sections.len();
    let zeros = || -> Vec<Lanes<F>> { vec![splat(F::zero()); count] };
    let mut stored = Vec::with_capacity(len.div_ceil(SPAN) * count);
    let mut states = zeros();
    for l in 0..len {
        if l % SPAN == 0 {
            stored.extend_from_slice(&states);
        }
        let mut left: Lanes<F> = impulse(l);
        for (section, state) in sections.iter().zip(&mut states) {
            advance(section, state, &mut left);
        }
    }
    // For each section and step of a span: the previous state, and the input of the section.
    let mut span: Vec<[Lanes<F>; 2]> = vec![[splat(F::zero()); 2]; SPAN * count];
    let mut sums: Vec<[Lanes<F>; 3]> = vec![[splat(F::zero()); 3]; count];
    let mut later = zeros();
    for (first, start) in (0..len).step_by(SPAN).zip(stored.chunks_exact(count)).rev() {
        let last = len.min(first + SPAN);
        states.copy_from_slice(start);
        for (l, step) in (first..last).zip(span.chunks_exact_mut(count)) {
            let mut left: Lanes<F> = impulse(l);
            for ((section, state), kept) in sections.iter().zip(&mut states).zip(step) {
                *kept = [*state, left];
                advance(section, state, &mut left);
            }
        }
        for (l, step) in (first..last).zip(span.chunks_exact(count)).rev() {
            let mut of_y: Lanes<F> = splat(F::zero());
            for (lane, gy) in of_y.iter_mut().zip(gy.chunks_exact(len)) {
                *lane = gy[l];
            }
            let mut of_left: Lanes<F> = splat(F::zero());
            for i in (0..count).rev() {
                let [a, b, w] = &sections[i];
                let [state, left] = &step[i];
                let later = &mut later[i];
                let [ga, gb, gw] = &mut sums[i];
                let g: Lanes<F> = each(|c| w[c].fma(of_y[c], later[c]) - of_left[c]);
                *ga = each(|c| g[c].fma(state[c], ga[c]));
                *gb = each(|c| g[c].fma(left[c], gb[c]));
                *gw = each(|c| of_y[c].fma(a[c].fma(state[c], b[c] * left[c]), gw[c]));
                *later = each(|c| a[c].fma(g[c], -of_left[c]));
                of_left = each(|c| b[c].fma(g[c], of_left[c]));
            }
        }
    }
    for (which, to) in to.into_iter().enumerate() {
        for (c, to) in to.chunks_exact_mut(count).enumerate() {
            for (to, sums) in to.iter_mut().zip(&sums) {
                *to = sums[which][c];
            }
        }
    }
}
