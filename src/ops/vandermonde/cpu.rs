//! Powers by groups of lanes: sixteen consecutive ones, multiplied by a^16 for the next group.
//!
//! a^16 comes from products in f64, since its rounding error accumulates with every group. The powers of several states
//! are independent chains, which keep the multipliers busy.

use super::Vandermonde;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{by_index, each, load, splat, store, sum, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// States whose powers are computed together, and the same for gradients, which need four sums each.
const AT_ONCE: usize = 4;
const SUMMED_AT_ONCE: usize = 2;
/// Powers below this count as zero, far above the subnormal numbers, which slow processors down.
const NOTHING: f64 = 1e-33;

impl CpuOp for Vandermonde {
    /// Computes y, one channel after another.
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = zeros(self.width * self.len);
        let channels = y.chunks_exact_mut(self.len).enumerate();
        channels.in_parallel(|(c, y)| kernel(self.channel(ins, c), y));
        vec![y]
    }

    /// The gradients of the four inputs.
    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (ins, gy) = (call.ins, call.only().grad);
        let channels = gy.chunks_exact(self.len).enumerate();
        let found = channels.map_in_parallel(|(c, gy)| {
            let mut grads = vec![F::zero(); 4 * self.states];
            gradients(self.channel(ins, c), gy, &mut grads);
            grads
        });
        let mut grads = [(); 4].map(|()| Vec::with_capacity(self.width * self.states));
        for channel in &found {
            for (grad, part) in grads.iter_mut().zip(channel.chunks_exact(self.states)) {
                grad.extend_from_slice(part);
            }
        }
        grads.into()
    }
}

impl Vandermonde {
    /// The numbers of one channel.
    fn channel<'a, F>(&self, ins: &[&'a [F]], channel: usize) -> [&'a [F]; 4] {
        by_index(|i| &ins[i][channel * self.states..][..self.states])
    }
}

/// A group of lanes of complex numbers.
type Pair<F> = [Lanes<F>; 2];

/// Current powers of some states, and the factors to the next group.
struct Chains<F, const N: usize> {
    now: [Pair<F>; N],
    step: [[F; 2]; N],
    /// Number of groups until all powers count as zero.
    reach: usize,
}

impl<F: Float, const N: usize> Chains<F, N> {
    /// Begins with the first `N` of the given states; missing ones are zero.
    #[inline(always)]
    fn new([re, im]: [&[F]; 2]) -> Self {
        let mut chains = Self { now: [[splat(F::zero()); 2]; N], step: [[F::zero(); 2]; N], reach: 0 };
        for n in 0..re.len().min(N) {
            let mut square = [re[n].to_f64(), im[n].to_f64()];
            let growth = (square[0] * square[0] + square[1] * square[1]).ln() / 2.0;
            chains.reach = chains.reach.max(groups_until_nothing(growth));
            let mut powers = [splat(F::one()), splat(F::zero())];
            for bit in 0..LANES.trailing_zeros() {
                let [x, y] = powers;
                let turned = times(&powers, square.map(F::of));
                let set = |i: usize| i >> bit & 1 == 1;
                powers = [
                    each(|i| if set(i) { turned[0][i] } else { x[i] }),
                    each(|i| if set(i) { turned[1][i] } else { y[i] }),
                ];
                let [x, y] = square;
                square = [x * x - y * y, 2.0 * x * y];
            }
            chains.now[n] = powers;
            chains.step[n] = [F::of(square[0]), F::of(square[1])];
        }
        chains
    }

    /// Returns the powers of state `n`, and advances them to the next group.
    #[inline(always)]
    fn advance(&mut self, n: usize) -> Pair<F> {
        let powers = self.now[n];
        self.now[n] = times(&powers, self.step[n]);
        powers
    }
}

/// Multiplies the complex number of each lane by one factor.
#[inline(always)]
fn times<F: Float>([x, y]: &Pair<F>, [re, im]: [F; 2]) -> Pair<F> {
    [each(|i| x[i].fma(re, -y[i] * im)), each(|i| x[i].fma(im, y[i] * re))]
}

/// Number of groups of lanes until a power whose logarithm grows by `growth` per exponent is below [`NOTHING`].
#[inline(always)]
fn groups_until_nothing(growth: f64) -> usize {
    if growth < 0.0 {
        (NOTHING.ln() / growth) as usize / LANES + 1
    } else {
        usize::MAX
    }
}

/// Computes one channel of y.
#[simd]
fn kernel<F: Float>([a_re, a_im, w_re, w_im]: [&[F]; 4], y: &mut [F]) {
    let mut sums: Vec<Lanes<F>> = vec![splat(F::zero()); y.len().div_ceil(LANES)];
    for first in (0..a_re.len()).step_by(AT_ONCE) {
        let mut chains = Chains::<F, AT_ONCE>::new([&a_re[first..], &a_im[first..]]);
        let (w_re, w_im) = (&w_re[first..], &w_im[first..]);
        for n in 0..w_re.len().min(AT_ONCE) {
            chains.now[n] = times(&chains.now[n], [w_re[n], w_im[n]]);
        }
        let reach = chains.reach.min(sums.len());
        for sum in &mut sums[..reach] {
            // Written out, since a closure of this size would not be inlined.
            let [a, b] = [chains.advance(0)[0], chains.advance(1)[0]];
            let [c, d] = [chains.advance(2)[0], chains.advance(3)[0]];
            *sum = each(|i| sum[i] + ((a[i] + b[i]) + (c[i] + d[i])));
        }
    }
    for (sum, y) in sums.iter().zip(y.chunks_mut(LANES)) {
        store(sum, y);
    }
}

/// Computes the gradients of one channel, one input after another. With S = Σ_l g_l a^l and T = Σ_l g_{l+1} (l + 1)
/// a^l, the gradient of w is the conjugate of S, and that of a the conjugate of w T.
#[simd]
fn gradients<F: Float>([a_re, a_im, w_re, w_im]: [&[F]; 4], gy: &[F], to: &mut [F]) {
    let states = a_re.len();
    let slopes: Vec<F> = (1..gy.len()).map(|l| F::of(l as f64) * gy[l]).collect();
    let groups = gy.len().div_ceil(LANES);
    let lanes = |x: &[F]| -> Vec<Lanes<F>> {
        let mut lanes: Vec<Lanes<F>> = x.chunks(LANES).map(load).collect();
        lanes.resize(groups, splat(F::zero()));
        lanes
    };
    let (values, slopes) = (lanes(gy), lanes(&slopes));
    for first in (0..states).step_by(SUMMED_AT_ONCE) {
        let mut chains = Chains::<F, SUMMED_AT_ONCE>::new([&a_re[first..], &a_im[first..]]);
        let mut sums: [[Lanes<F>; 4]; SUMMED_AT_ONCE] = [[splat(F::zero()); 4]; SUMMED_AT_ONCE];
        let reach = chains.reach.min(groups);
        for (g, slope) in values[..reach].iter().zip(&slopes) {
            for (n, sums) in sums.iter_mut().enumerate() {
                let [x, y] = chains.advance(n);
                *sums = [
                    each(|i| g[i].fma(x[i], sums[0][i])),
                    each(|i| g[i].fma(y[i], sums[1][i])),
                    each(|i| slope[i].fma(x[i], sums[2][i])),
                    each(|i| slope[i].fma(y[i], sums[3][i])),
                ];
            }
        }
        for (k, sums) in (first..states).zip(&sums) {
            let [s_re, s_im, t_re, t_im] = [sum(&sums[0]), sum(&sums[1]), sum(&sums[2]), sum(&sums[3])];
            let found = [w_re[k] * t_re - w_im[k] * t_im, -(w_re[k] * t_im + w_im[k] * t_re), s_re, -s_im];
            for (i, found) in found.into_iter().enumerate() {
                to[i * states + k] = found;
            }
        }
    }
}
