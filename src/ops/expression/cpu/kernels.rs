//! Loops over the numbers of a block. Those of the backward pass add to the gradient that is already there.

use crate::expression::{Binary, Unary};
use crate::pointwise::{Pointwise, Sigmoid, Silu, Softplus};
use crate::runtime::float::Float;
use dsf_simd::simd;

/// Numbers that Candle adds at a time.
const LANES: usize = 32;
/// Rows that are summed beside one another.
const ROWS: usize = 8;

#[inline(always)]
fn map<F: Float>(x: &[F], y: &mut [F], f: impl Fn(F) -> F) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = f(x);
    }
}

/// y += f(x, g).
#[inline(always)]
fn add_map<F: Float>(x: &[F], g: &[F], y: &mut [F], f: impl Fn(F, F) -> F) {
    for ((y, &x), &g) in y.iter_mut().zip(x).zip(g) {
        *y += f(x, g);
    }
}

/// y -= f(x, g).
#[inline(always)]
fn sub_map<F: Float>(x: &[F], g: &[F], y: &mut [F], f: impl Fn(F, F) -> F) {
    for ((y, &x), &g) in y.iter_mut().zip(x).zip(g) {
        *y -= f(x, g);
    }
}

#[simd]
pub(super) fn unary<F: Float>(function: Unary, x: &[F], y: &mut [F]) {
    match function {
        Unary::Cos => map(x, y, F::cos_of_std),
        Unary::Exp => map(x, y, F::exp_of_std),
        Unary::Log => map(x, y, F::ln),
        Unary::Neg => map(x, y, |x| -x),
        Unary::Recip => map(x, y, |x| F::one() / x),
        Unary::Sigmoid => map(x, y, Sigmoid::value),
        Unary::Silu => map(x, y, Silu::value),
        Unary::Sin => map(x, y, F::sin_of_std),
        Unary::Softplus => map(x, y, Softplus::value),
        Unary::Sqr => map(x, y, |x| x * x),
        Unary::Sqrt => map(x, y, F::sqrt),
        Unary::Tanh => map(x, y, F::tanh_of_std),
    }
}

/// Passes back the gradient `g` of y = f(x).
#[simd]
pub(super) fn unary_back<F: Float>(function: Unary, [x, y]: [&[F]; 2], g: &[F], to: &mut [F]) {
    match function {
        Unary::Cos => sub_map(x, g, to, |x, g| g * x.sin_of_std()),
        Unary::Exp => add_map(y, g, to, |y, g| g * y),
        Unary::Log => add_map(x, g, to, |x, g| g / x),
        Unary::Neg => sub_map(g, g, to, |g, _| g),
        Unary::Recip => sub_map(x, g, to, |x, g| g / (x * x)),
        Unary::Sigmoid => add_map(y, g, to, |y, g| g * Sigmoid::slope(y, y)),
        Unary::Silu => add_map(x, g, to, |x, g| g * Silu::slope(x, x)),
        Unary::Sin => add_map(x, g, to, |x, g| g * x.cos_of_std()),
        Unary::Softplus => add_map(x, g, to, |x, g| g * Softplus::slope(x, x)),
        Unary::Sqr => add_map(x, g, to, |x, g| x * g * F::of(2.0)),
        Unary::Sqrt => add_map(y, g, to, |y, g| g / y * F::of(0.5)),
        Unary::Tanh => sub_map(y, g, to, |y, g| g * (y * y - F::one())),
    }
}

#[simd]
pub(super) fn affine<F: Float>(x: &[F], [scale, shift]: [F; 2], y: &mut [F]) {
    map(x, y, |x| x * scale + shift);
}

#[simd]
pub(super) fn affine_back<F: Float>(scale: F, g: &[F], to: &mut [F]) {
    add_map(g, g, to, |g, _| g * scale);
}

#[inline(always)]
fn map2<F: Float>(a: &[F], b: &[F], y: &mut [F], f: impl Fn(F, F) -> F) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = f(a, b);
    }
}

#[simd]
pub(super) fn binary<F: Float>(function: Binary, a: &[F], b: &[F], y: &mut [F]) {
    match function {
        Binary::Add => map2(a, b, y, |a, b| a + b),
        Binary::Sub => map2(a, b, y, |a, b| a - b),
        Binary::Mul => map2(a, b, y, |a, b| a * b),
        Binary::Div => map2(a, b, y, |a, b| a / b),
        Binary::SiluGate => map2(a, b, y, |a, b| a * Silu::value(b)),
    }
}

/// Passes back the gradient `g` of f(a, b) to a.
#[simd]
pub(super) fn left_back<F: Float>(function: Binary, b: &[F], g: &[F], to: &mut [F]) {
    match function {
        Binary::Add | Binary::Sub => add_map(g, g, to, |g, _| g),
        Binary::Mul => add_map(b, g, to, |b, g| g * b),
        Binary::Div => add_map(b, g, to, |b, g| g / b),
        Binary::SiluGate => add_map(b, g, to, |b, g| g * Silu::value(b)),
    }
}

/// Passes back the gradient `g` of f(a, b) to b.
#[simd]
pub(super) fn right_back<F: Float>(function: Binary, [a, b]: [&[F]; 2], g: &[F], to: &mut [F]) {
    match function {
        Binary::Add => add_map(g, g, to, |g, _| g),
        Binary::Sub => sub_map(g, g, to, |g, _| g),
        Binary::Mul => add_map(a, g, to, |a, g| g * a),
        Binary::Div => {
            for (((to, &a), &b), &g) in to.iter_mut().zip(a).zip(b).zip(g) {
                *to -= g * a / (b * b);
            }
        }
        Binary::SiluGate => {
            for (((to, &a), &b), &g) in to.iter_mut().zip(a).zip(b).zip(g) {
                *to += g * a * Silu::slope(b, b);
            }
        }
    }
}

#[simd]
pub(super) fn add<F: Float>(x: &[F], y: &mut [F]) {
    add_map(x, x, y, |x, _| x);
}

/// Repeats each number of `x` `width` times.
#[simd]
pub(super) fn repeat_each<F: Float>(x: &[F], width: usize, y: &mut [F]) {
    for (&x, y) in x.iter().zip(y.chunks_exact_mut(width)) {
        y.fill(x);
    }
}

/// Adds each number of `x` to `width` numbers.
#[simd]
pub(super) fn add_each<F: Float>(x: &[F], width: usize, y: &mut [F]) {
    for (&x, y) in x.iter().zip(y.chunks_exact_mut(width)) {
        y.iter_mut().for_each(|y| *y += x);
    }
}

/// Writes elements `first` and later of repetitions of `x`.
pub(super) fn repeat<F: Float>(x: &[F], first: usize, y: &mut [F]) {
    if let [x] = x {
        return y.fill(*x);
    }
    let mut rest = y;
    let mut from = first % x.len();
    while !rest.is_empty() {
        let (part, behind) = rest.split_at_mut(rest.len().min(x.len() - from));
        part.copy_from_slice(&x[from..][..part.len()]);
        (rest, from) = (behind, 0);
    }
}

/// Sums of rows of `width` numbers, with the bits of Candle's.
pub(super) fn row_sums<F: Float>(x: &[F], width: usize, y: &mut [F]) {
    sum_rows::<F, false>(x, width, in_lanes::<F>(width), y);
}

/// Adds sums of rows.
pub(super) fn add_row_sums<F: Float>(x: &[F], width: usize, y: &mut [F]) {
    sum_rows::<F, true>(x, width, in_lanes::<F>(width), y);
}

/// Whether Candle sums rows in lanes.
fn in_lanes<F: Float>(width: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    let can = std::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    let can = cfg!(target_arch = "aarch64");
    can && width >= LANES && size_of::<F>() == size_of::<f32>()
}

#[inline(always)]
fn put<F: Float, const ADD: bool>(sum: F, y: &mut F) {
    *y = if ADD { *y + sum } else { sum };
}

#[simd]
fn sum_rows<F: Float, const ADD: bool>(x: &[F], width: usize, in_lanes: bool, y: &mut [F]) {
    if in_lanes {
        for (x, y) in x.chunks_exact(width).zip(y) {
            put::<F, ADD>(sum_in_lanes(x), y);
        }
        return;
    }
    let (groups, rest) = y.as_chunks_mut::<ROWS>();
    let (x, x_rest) = x.split_at(groups.len() * ROWS * width);
    for (x, y) in x.chunks_exact(ROWS * width).zip(groups) {
        let mut sums = [F::zero(); ROWS];
        for i in 0..width {
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum += x[row * width + i];
            }
        }
        for (sum, y) in sums.into_iter().zip(y) {
            put::<F, ADD>(sum, y);
        }
    }
    for (x, y) in x_rest.chunks_exact(width).zip(rest) {
        let mut sum = F::zero();
        x.iter().for_each(|&x| sum += x);
        put::<F, ADD>(sum, y);
    }
}

/// Σ x in the order of Candle's vector instructions: lanes, then a tree over them, then what is left.
#[inline(always)]
fn sum_in_lanes<F: Float>(x: &[F]) -> F {
    /// Numbers of a register.
    const REGISTER: usize = if cfg!(target_arch = "aarch64") { 4 } else { 8 };
    let (whole, rest) = x.as_chunks::<LANES>();
    let mut sums = [F::zero(); LANES];
    for x in whole {
        for (sum, &x) in sums.iter_mut().zip(x) {
            *sum += x;
        }
    }
    let mut apart = REGISTER;
    while apart < LANES {
        for first in (0..LANES).step_by(2 * apart) {
            for i in first..first + REGISTER {
                sums[i] += sums[i + apart];
            }
        }
        apart *= 2;
    }
    if REGISTER == 8 {
        for i in 0..4 {
            sums[i] += sums[i + 4];
        }
    }
    let mut sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    rest.iter().for_each(|&x| sum += x);
    sum
}

/// Sums of columns `first` and later of rows of `width` numbers.
#[simd]
pub(super) fn column_sums<F: Float>(x: &[F], width: usize, first: usize, sums: &mut [F]) {
    for x in x.chunks_exact(width) {
        for (sum, &x) in sums.iter_mut().zip(&x[first..]) {
            *sum += x;
        }
    }
}
