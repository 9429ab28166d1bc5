//! Sums over the states by groups of lanes, one root in each lane, and one Fourier transform per channel.
//!
//! With z = 2i sin(θ/2) and κ = cos(θ/2), a state λ and its conjugate contribute
//!
//! v / (z - κλ) + v̄ / (z - κλ̄) = (z X + κ Y) / ((z - κλ)(z - κλ̄)),  X = 2 Re v,  Y = -2 Re(v λ̄)
//!
//! to each of the sums over states: one reciprocal for all of them, and real weights. The real part of the denominator
//! is a product of a sum and a difference plus a square, which does not cancel next to a pole.

use super::{half_angle, DplrKernel};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::fourier::{Coefficient, Fourier, Spectrum, Workspace};
use crate::runtime::lanes::{by_index, each, splat, sum, Lanes, LANES};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Vectors on one side of the sums, for rank 1 and for rank 2: c or b, and those of p.
const OF_RANK_1: usize = 2;
const OF_RANK_2: usize = 3;

impl CpuOp for DplrKernel {
    /// Computes y, one channel after another.
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        match self.rank {
            1 => self.kernels::<F, OF_RANK_1>(ins),
            _ => self.kernels::<F, OF_RANK_2>(ins),
        }
    }

    /// The gradients of the eight inputs.
    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (ins, gy) = (call.ins, call.only().grad);
        match self.rank {
            1 => self.gradients::<F, OF_RANK_1>(ins, gy),
            _ => self.gradients::<F, OF_RANK_2>(ins, gy),
        }
    }
}

/// Complex numbers in lanes.
type ComplexLanes<F> = [Lanes<F>; 2];

/// A complex number.
type ComplexScalar<F> = [F; 2];

/// Roots of unity in the lanes of a group.
struct RootGroup<F> {
    /// cos(θ/2)
    cos: Lanes<F>,
    /// 2 sin(θ/2)
    sin: Lanes<F>,
}

/// A state of a channel, its vectors to the left (c and conjugates of p) and to the right (b and p) of the inverse, and
/// the weights X and Y of their products.
#[derive(Clone, Copy)]
struct Mode<F, const S: usize> {
    lambda: ComplexScalar<F>,
    left: [ComplexScalar<F>; S],
    right: [ComplexScalar<F>; S],
    x: [[F; S]; S],
    y: [[F; S]; S],
}

/// Scratch memory of a thread.
struct RootScratch<F: Float, const S: usize> {
    spectrum: Spectrum<F>,
    space: Workspace<F>,
    values: Vec<ComplexLanes<F>>,
    weights: Vec<[[ComplexLanes<F>; S]; S]>,
}

impl DplrKernel {
    fn kernels<F: Float, const S: usize>(&self, ins: &[&[F]]) -> Vec<Vec<F>> {
        let (roots, fourier) = (self.groups(), Fourier::plan(self.period));
        let mut y = zeros(self.width * self.len);
        let channels = y.chunks_exact_mut(self.len).enumerate();
        channels.in_parallel_with(
            || RootScratch::<F, S>::new(&fourier, roots.len()),
            |RootScratch { spectrum, space, values, .. }, (c, y)| {
                transfer(&self.modes::<F, S>(ins, c), &roots, values);
                join::<F>(values, spectrum);
                fourier.invert(spectrum, y, space);
            },
        );
        vec![y]
    }

    fn gradients<F: Float, const S: usize>(&self, ins: &[&[F]], gy: &[F]) -> Vec<Vec<F>> {
        let (roots, fourier) = (self.groups(), Fourier::plan(self.period));
        let scale = F::one() / F::of(self.period as f64);
        let found = gy.chunks_exact(self.len).enumerate().map_in_parallel_with(
            || RootScratch::<F, S>::new(&fourier, roots.len()),
            |RootScratch { spectrum, space, values, weights }, (c, gy)| {
                fourier.transform(gy, spectrum, space);
                split::<F>(spectrum, values, scale);
                let mut modes = self.modes::<F, S>(ins, c);
                weigh(&modes, &roots, values, weights);
                slopes(&mut modes, &roots, weights);
                modes
            },
        );
        let of = |number: &dyn Fn(&Mode<F, S>) -> F| -> Vec<F> { found.iter().flatten().map(number).collect() };
        let p = |part: usize| (1..S).flat_map(|i| of(&|mode| mode.right[i][part])).collect();
        let both = |number: &dyn Fn(&Mode<F, S>) -> ComplexScalar<F>| [0, 1].map(|part| of(&|mode| number(mode)[part]));
        let [lambda, b, c] = [both(&|mode| mode.lambda), both(&|mode| mode.right[0]), both(&|mode| mode.left[0])];
        [lambda, [p(0), p(1)], b, c].concat()
    }

    /// Roots from 1 to -1; lanes beyond them hold 1.
    fn groups<F: Float>(&self) -> Vec<RootGroup<F>> {
        let count = self.roots();
        let of = |root: usize| half_angle(if root < count { root } else { 0 }, self.period);
        let group = |first: usize| RootGroup {
            cos: each(|i| F::of(of(first + i)[0])),
            sin: each(|i| F::of(2.0 * of(first + i)[1])),
        };
        (0..count).step_by(LANES).map(group).collect()
    }

    fn modes<F: Float, const S: usize>(&self, ins: &[&[F]], channel: usize) -> Vec<Mode<F, S>> {
        let mode = |k: usize| {
            let at = |input: usize, row: usize| -> ComplexScalar<F> {
                by_index(|part| ins[2 * input + part][row * self.states + k])
            };
            let of_rank = |i: usize| at(1, (i - 1) * self.width + channel);
            let lambda = at(0, channel);
            let left = by_index(|i| if i == 0 { at(3, channel) } else { conjugate(of_rank(i)) });
            let right = by_index(|j| if j == 0 { at(2, channel) } else { of_rank(j) });
            let two = F::of(2.0);
            let v = |i: usize, j: usize| product(left[i], right[j]);
            Mode {
                lambda,
                left,
                right,
                x: by_index(|i| by_index(|j| two * v(i, j)[0])),
                y: by_index(|i| by_index(|j| -two * product(v(i, j), conjugate(lambda))[0])),
            }
        };
        (0..self.states).map(mode).collect()
    }
}

impl<F: Float, const S: usize> RootScratch<F, S> {
    fn new(fourier: &Fourier<F>, groups: usize) -> Self {
        let zero = [splat(F::zero()); 2];
        Self {
            spectrum: fourier.spectrum(),
            space: fourier.workspace(),
            values: vec![zero; groups],
            weights: vec![[[zero; S]; S]; groups],
        }
    }
}

/// Copies lanes to the coefficients of a spectrum.
fn join<F: Float>(values: &[ComplexLanes<F>], spectrum: &mut [Coefficient<F>]) {
    for ([re, im], to) in values.iter().zip(spectrum.chunks_mut(LANES)) {
        for (i, to) in to.iter_mut().enumerate() {
            (to.re, to.im) = (re[i].peel(), im[i].peel());
        }
    }
}

/// The gradients of the values at the roots, from the spectrum of that of y: conjugates times `scale`, doubled where a
/// root stands for its conjugate as well; zero in lanes beyond the roots.
fn split<F: Float>(spectrum: &[Coefficient<F>], values: &mut [ComplexLanes<F>], scale: F) {
    let last = spectrum.len() - 1;
    for (group, value) in values.iter_mut().enumerate() {
        *value = [splat(F::zero()); 2];
        for (i, from) in spectrum[group * LANES..].iter().take(LANES).enumerate() {
            let index = group * LANES + i;
            let scale = if index == 0 || index == last { scale } else { scale + scale };
            value[0][i] = F::wrap(from.re) * scale;
            value[1][i] = -F::wrap(from.im) * scale;
        }
    }
}

fn conjugate<F: Float>([re, im]: ComplexScalar<F>) -> ComplexScalar<F> {
    [re, -im]
}

fn product<F: Float>([a, b]: ComplexScalar<F>, [x, y]: ComplexScalar<F>) -> ComplexScalar<F> {
    [a * x - b * y, a * y + b * x]
}

#[inline(always)]
fn times<F: Float>([a, b]: &ComplexLanes<F>, [x, y]: &ComplexLanes<F>) -> ComplexLanes<F> {
    [each(|i| a[i].fma(x[i], -(b[i] * y[i]))), each(|i| a[i].fma(y[i], b[i] * x[i]))]
}

#[inline(always)]
fn plus<F: Float>(x: &ComplexLanes<F>, y: &ComplexLanes<F>) -> ComplexLanes<F> {
    by_index(|part| each(|i| x[part][i] + y[part][i]))
}

/// z E and κ E with E = 1 / ((z - κλ)(z - κλ̄)), and E.
#[inline(always)]
fn resolvent<F: Float>([re, im]: ComplexScalar<F>, RootGroup { cos, sin }: &RootGroup<F>) -> [ComplexLanes<F>; 3] {
    let scaled: Lanes<F> = each(|i| cos[i] * re);
    let real: Lanes<F> = each(|i| (cos[i].fma(im, -sin[i]) * cos[i].fma(im, sin[i])) + scaled[i] * scaled[i]);
    let imaginary: Lanes<F> = each(|i| F::of(2.0) * scaled[i] * sin[i]);
    let norm: Lanes<F> = each(|i| F::one() / real[i].fma(real[i], imaginary[i] * imaginary[i]));
    // The imaginary part of the denominator is -2κ Re λ 2 sin(θ/2).
    let (x, y): (Lanes<F>, Lanes<F>) = (each(|i| real[i] * norm[i]), each(|i| imaginary[i] * norm[i]));
    let of_z = [each(|i| -(sin[i] * y[i])), each(|i| sin[i] * x[i])];
    let of_cos = [each(|i| cos[i] * x[i]), each(|i| cos[i] * y[i])];
    [of_z, of_cos, [x, y]]
}

/// Sums over states, for each vector on the left and on the right.
#[inline(always)]
fn sums<F: Float, const S: usize>(modes: &[Mode<F, S>], root: &RootGroup<F>) -> [[ComplexLanes<F>; S]; S] {
    let mut sums = [[[splat(F::zero()); 2]; S]; S];
    for mode in modes {
        let [of_z, of_cos, _] = resolvent(mode.lambda, root);
        for (sums, (x, y)) in sums.iter_mut().zip(mode.x.iter().zip(&mode.y)) {
            for (sum, (&x, &y)) in sums.iter_mut().zip(x.iter().zip(y)) {
                *sum = by_index(|part| each(|t| of_z[part][t].fma(x, of_cos[part][t].fma(y, sum[part][t]))));
            }
        }
    }
    sums
}

/// Woodbury identity: c (z - κA)⁻¹ b, and the factors α and β with which a change of the sums r changes it by
/// Σ α_i dr_ij β_j.
#[inline(always)]
fn woodbury<F: Float, const S: usize>(
    mut r: [[ComplexLanes<F>; S]; S],
    cos: &Lanes<F>,
) -> (ComplexLanes<F>, [[ComplexLanes<F>; S]; 2]) {
    let zero = [splat(F::zero()); 2];
    let mut factors = [[[zero; S]; S]; 2];
    for last in (1..S).rev() {
        let [re, im] = r[last][last];
        let (re, im): (Lanes<F>, Lanes<F>) = (each(|t| re[t].fma(cos[t], F::one())), each(|t| im[t] * cos[t]));
        let norm: Lanes<F> = each(|t| -cos[t] / re[t].fma(re[t], im[t] * im[t]));
        let scale = [each(|t| re[t] * norm[t]), each(|t| -(im[t] * norm[t]))];
        for i in 0..last {
            factors[0][last][i] = times(&r[i][last], &scale);
            factors[1][last][i] = times(&r[last][i], &scale);
        }
        for row in r.iter_mut().take(last) {
            let by = row[last];
            for (sum, factor) in row.iter_mut().take(last).zip(&factors[1][last]) {
                *sum = plus(sum, &times(&by, factor));
            }
        }
    }
    let mut sides = [[[splat(F::one()), splat(F::zero())]; S]; 2];
    for (side, factors) in sides.iter_mut().zip(&factors) {
        for i in 1..S {
            side[i] = zero;
            for j in 0..i {
                side[i] = plus(&side[i], &times(&factors[i][j], &side[j]));
            }
        }
    }
    (r[0][0], sides)
}

/// e^(iθ/2)
#[inline(always)]
fn half_turn<F: Float>(root: &RootGroup<F>) -> ComplexLanes<F> {
    [root.cos, each(|i| F::of(0.5) * root.sin[i])]
}

/// Writes the transform of one channel's kernel.
#[simd]
fn transfer<F: Float, const S: usize>(modes: &[Mode<F, S>], roots: &[RootGroup<F>], to: &mut [ComplexLanes<F>]) {
    for (root, to) in roots.iter().zip(to) {
        let (value, _) = woodbury(sums(modes, root), &root.cos);
        *to = times(&half_turn(root), &value);
    }
}

/// Writes the gradients of the sums over states, from those of the transform.
#[simd]
fn weigh<F: Float, const S: usize>(
    modes: &[Mode<F, S>],
    roots: &[RootGroup<F>],
    of_values: &[ComplexLanes<F>],
    to: &mut [[[ComplexLanes<F>; S]; S]],
) {
    for ((root, of_value), to) in roots.iter().zip(of_values).zip(to) {
        let (_, [left, right]) = woodbury(sums(modes, root), &root.cos);
        let turned = times(&half_turn(root), of_value);
        for i in 0..S {
            let of_left = times(&turned, &left[i]);
            for j in 0..S {
                to[i][j] = times(&of_left, &right[j]);
            }
        }
    }
}

/// Replaces the numbers of the states by their gradients.
#[simd]
fn slopes<F: Float, const S: usize>(
    modes: &mut [Mode<F, S>],
    roots: &[RootGroup<F>],
    weights: &[[[ComplexLanes<F>; S]; S]],
) {
    for mode in modes {
        let nothing: Lanes<F> = splat(F::zero());
        let (mut of_x, mut of_y) = ([[nothing; S]; S], [[nothing; S]; S]);
        let (mut of_square, mut of_product) = (nothing, nothing);
        for (root, weights) in roots.iter().zip(weights) {
            let [of_z, of_cos, inverse] = resolvent(mode.lambda, root);
            let (mut by_x, mut by_y) = ([nothing; 2], [nothing; 2]);
            for i in 0..S {
                for j in 0..S {
                    let [re, im] = &weights[i][j];
                    let (x, y) = (mode.x[i][j], mode.y[i][j]);
                    by_x = [each(|t| re[t].fma(x, by_x[0][t])), each(|t| im[t].fma(x, by_x[1][t]))];
                    by_y = [each(|t| re[t].fma(y, by_y[0][t])), each(|t| im[t].fma(y, by_y[1][t]))];
                    let (of_x, of_y) = (&mut of_x[i][j], &mut of_y[i][j]);
                    *of_x = each(|t| re[t].fma(of_z[0][t], (-im[t]).fma(of_z[1][t], of_x[t])));
                    *of_y = each(|t| re[t].fma(of_cos[0][t], (-im[t]).fma(of_cos[1][t], of_y[t])));
                }
            }
            let [re, im] = times(&plus(&times(&by_x, &of_z), &times(&by_y, &of_cos)), &inverse);
            let RootGroup { cos, sin } = root;
            of_square = each(|t| (cos[t] * cos[t]).fma(re[t], of_square[t]));
            of_product = each(|t| (cos[t] * sin[t]).fma(im[t], of_product[t]));
        }
        let of = |sums: &[[Lanes<F>; S]; S]| -> [[F; S]; S] { by_index(|i| by_index(|j| sum(&sums[i][j]))) };
        mode.differentiate(of(&of_x), of(&of_y), [sum(&of_square), sum(&of_product)]);
    }
}

impl<F: Float, const S: usize> Mode<F, S> {
    /// Replaces λ and the vectors by their gradients, given those of X and Y, and the sums of κ² Re and of 2 κ sin(θ/2)
    /// Im of that of the denominator, negated. The gradient of p is that of its place on the right.
    #[inline(always)]
    fn differentiate(&mut self, of_x: [[F; S]; S], of_y: [[F; S]; S], [square, product_of]: [F; 2]) {
        let two = F::of(2.0);
        let [a, b] = self.lambda;
        let mut of_lambda = [-two * (a * square + product_of), -two * (b * square)];
        let mut of_left = [[F::zero(); 2]; S];
        let mut of_right = of_left;
        for i in 0..S {
            for j in 0..S {
                let (left, right) = (self.left[i], self.right[j]);
                let v = product(left, right);
                of_lambda = by_index(|part| of_lambda[part] - two * of_y[i][j] * v[part]);
                // Gradient of v: the change of the loss is the real part of its product with a change of v.
                let of_v = [two * (of_x[i][j] - of_y[i][j] * a), two * of_y[i][j] * b];
                let (more_left, more_right) = (product(right, of_v), product(left, of_v));
                of_left[i] = by_index(|part| of_left[i][part] + more_left[part]);
                of_right[j] = by_index(|part| of_right[j][part] + more_right[part]);
            }
        }
        self.lambda = of_lambda;
        self.left[0] = conjugate(of_left[0]);
        self.right[0] = conjugate(of_right[0]);
        for i in 1..S {
            // p is on the right, and its conjugate on the left.
            self.right[i] = [of_right[i][0] + of_left[i][0], of_left[i][1] - of_right[i][1]];
        }
    }
}
