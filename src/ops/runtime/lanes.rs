//! Fixed-size groups of numbers, which the compiler turns into vector instructions.
//!
//! Their size does not depend on the instruction set, so sums over lanes have the same bits
//! everywhere.

use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// The lanes of a group: one AVX-512 register of f32.
pub(crate) const LANES: usize = 16;

/// Elements per task of a pass over memory.
const CHUNK: usize = 1 << 16;

/// A group of lanes.
pub(crate) type Lanes<F> = [F; LANES];

/// The initial value of scratch memory that is written before it is read: zero, and in tests NaN.
#[inline(always)]
pub(crate) fn blank<F: Float>() -> F {
    match cfg!(test) {
        true => F::of(f64::NAN),
        false => F::zero(),
    }
}

/// One value in every lane.
#[inline(always)]
pub(crate) fn splat<F: Float, const W: usize>(x: F) -> [F; W] {
    [x; W]
}

/// Loads up to `W` numbers; lanes beyond `from` are zero.
#[inline(always)]
pub(crate) fn load<F: Float, const W: usize>(from: &[F]) -> [F; W] {
    match from.first_chunk() {
        Some(whole) => *whole,
        None => {
            let mut lanes = splat(F::zero());
            lanes[..from.len()].copy_from_slice(from);
            lanes
        }
    }
}

/// Stores the first `to.len()` lanes, at most `W`.
#[inline(always)]
pub(crate) fn store<F: Float, const W: usize>(lanes: &[F; W], to: &mut [F]) {
    match to.first_chunk_mut() {
        Some(whole) => *whole = *lanes,
        None => to.copy_from_slice(&lanes[..to.len()]),
    }
}

/// Computes each lane by its index.
#[inline(always)]
pub(crate) fn each<F: Float, const W: usize>(f: impl Fn(usize) -> F) -> [F; W] {
    let mut out = splat(F::zero());
    for (i, x) in out.iter_mut().enumerate() {
        *x = f(i);
    }
    out
}

/// Returns an array computed by index, like `array::from_fn`. That function and `array::map` may not be inlined, and a
/// function that is called in a loop is compiled only for the lowest instruction set.
#[inline(always)]
pub(crate) fn by_index<T: Copy, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut out = [f(0); N];
    for (i, x) in out.iter_mut().enumerate().skip(1) {
        *x = f(i);
    }
    out
}

/// `f` of each element of a short array; see [`by_index`].
#[inline(always)]
pub(crate) fn map<T: Copy, U: Copy, const N: usize>(x: [T; N], f: impl Fn(T) -> U) -> [U; N] {
    by_index(|i| f(x[i]))
}

/// A row as whole groups of lanes and a remainder shorter than a group.
///
/// A hot loop runs over the whole groups and calls the same function once more for the remainder,
/// padded with zeros: a branch inside the loop would move the lanes through memory.
pub(crate) type Groups<'a, F> = (&'a [Lanes<F>], &'a [F]);

/// The sum over lanes (a power of two of them, at most 32), as a fixed binary tree.
///
/// Each level is a loop of constant length, which the compiler must unroll to vectorise it.
#[inline(always)]
pub(crate) fn sum<F: Float, const W: usize>(x: &[F; W]) -> F {
    const { assert!(W.is_power_of_two() && W <= 32) };
    let mut x = *x;
    fold::<F, W, 16>(&mut x);
    fold::<F, W, 8>(&mut x);
    fold::<F, W, 4>(&mut x);
    fold::<F, W, 2>(&mut x);
    fold::<F, W, 1>(&mut x);
    x[0]
}

/// Adds lanes HALF .. 2 HALF to the first HALF lanes, if there are that many.
#[inline(always)]
fn fold<F: Float, const W: usize, const HALF: usize>(x: &mut [F; W]) {
    if 2 * HALF <= W {
        for i in 0..HALF {
            x[i] += x[i + HALF];
        }
    }
}

/// Σ f over the elements of slices of equal length: [`LANES`] running sums, then the tree.
#[inline(always)]
pub(crate) fn total<F: Float, const N: usize>(x: [&[F]; N], f: impl Fn([F; N]) -> F) -> F {
    let parts = map(x, |x| x.as_chunks::<LANES>());
    let mut sums: Lanes<F> = splat(F::zero());
    for j in 0..parts[0].0.len() {
        let x = map(parts, |(whole, _)| &whole[j]);
        sums = each(|i| sums[i] + f(map(x, |x| x[i])));
    }
    for (i, sum) in sums.iter_mut().enumerate().take(parts[0].1.len()) {
        *sum += f(map(parts, |(_, rest)| rest[i]));
    }
    sum(&sums)
}

/// Σ x y, in the order of [`total`].
#[inline(always)]
pub(crate) fn dot<F: Float>(x: &[F], y: &[F]) -> F {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let mut sums: Lanes<F> = splat(F::zero());
    for (x, y) in x.iter().zip(y) {
        sums = each(|i| x[i].fma(y[i], sums[i]));
    }
    for ((sum, &x), &y) in sums.iter_mut().zip(x_rest).zip(y_rest) {
        *sum = x.fma(y, *sum);
    }
    sum(&sums)
}

/// The maximum; NaN is ignored.
#[inline(always)]
pub(crate) fn largest<F: Float>(x: &[F]) -> F {
    largest_of(x, |x| x)
}

/// The maximum of f over the elements; NaN is ignored.
#[inline(always)]
pub(crate) fn largest_of<F: Float>(x: &[F], f: impl Fn(F) -> F) -> F {
    let (whole, rest) = x.as_chunks::<LANES>();
    let mut lanes: Lanes<F> = splat(f(x[0]));
    for x in whole {
        lanes = each(|i| lanes[i].at_least(f(x[i])));
    }
    let rest = rest.iter().map(|&x| f(x));
    let lanes = lanes.into_iter().chain(rest);
    lanes.fold(f(x[0]), |largest, x| largest.at_least(x))
}

/// Computes a tensor from `x` in parallel: `f` maps chunks of `from` numbers to chunks of `to`.
pub(crate) fn map_chunks<F: Float>(x: &[F], [from, to]: [usize; 2], f: impl Fn(&[F], &mut [F]) + Sync) -> Vec<F> {
    let mut y = zeros(x.len() * to / from);
    let chunks = y.chunks_mut(to).zip(x.chunks(from));
    chunks.in_parallel(|(y, x)| f(x, y));
    y
}

/// The gradient of `x` and that of a parameter of `width` numbers, in parallel. `f` gets a chunk
/// of `x` and of `grad`, of the given lengths, the chunk of the gradient of `x` to write, and the
/// zeros to which it adds the chunk's gradient of the parameter.
pub(crate) fn map_chunks_with_sums<F: Float>(
    [x, grad]: [&[F]; 2],
    [of_x, of_grad]: [usize; 2],
    width: usize,
    f: impl Fn([&[F]; 2], &mut [F], &mut [F]) + Sync,
) -> [Vec<F>; 2] {
    let mut gx = zeros(x.len());
    let mut parts = zeros(x.len().div_ceil(of_x) * width);
    gx.chunks_mut(of_x)
        .zip(parts.chunks_mut(width))
        .zip(x.chunks(of_x).zip(grad.chunks(of_grad)))
        .in_parallel(|((gx, part), (x, grad))| f([x, grad], gx, part));
    [gx, sum_parts(&parts, width)]
}

/// The sum of consecutive `parts` of length `len`, added in their order.
pub(crate) fn sum_parts<F: Float>(parts: &[F], len: usize) -> Vec<F> {
    let (first, rest) = parts.split_at(len);
    let mut total = first.to_vec();
    for part in rest.chunks_exact(len) {
        for (total, &part) in total.iter_mut().zip(part) {
            *total += part;
        }
    }
    total
}

/// `to += from`, element by element.
pub(crate) fn add_to<F: Float>(to: &mut [F], from: &[F]) {
    to.chunks_mut(CHUNK).zip(from.chunks(CHUNK)).in_parallel(|(to, from)| add_chunk(to, from));
}

/// [`add_to`] on the calling thread.
#[simd]
pub(crate) fn add_chunk<F: Float>(to: &mut [F], from: &[F]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

/// Adds `bias` to every row.
#[simd]
pub(crate) fn add_to_rows<F: Float>(y: &mut [F], bias: &[F]) {
    for row in y.chunks_exact_mut(bias.len()) {
        for (y, &bias) in row.iter_mut().zip(bias) {
            *y += bias;
        }
    }
}

/// Adds every row to `sums`.
#[simd]
pub(crate) fn sum_rows<F: Float>(rows: &[F], sums: &mut [F]) {
    for row in rows.chunks_exact(sums.len()) {
        for (sum, &x) in sums.iter_mut().zip(row) {
            *sum += x;
        }
    }
}
