//! Sixteen numbers that travel together: the unit of work that the compiler turns into vectors.
//!
//! Sixteen whatever the instruction set, so that sums over lanes are the same everywhere.

use super::float::Float;

/// Width of [`Lanes`].
pub(crate) const LANES: usize = 16;

/// Sixteen numbers, usually neighbouring channels.
pub(crate) type Lanes<F> = [F; LANES];

/// One value in every lane.
#[inline(always)]
pub(crate) fn splat<F: Float>(x: F) -> Lanes<F> {
    [x; LANES]
}

/// Up to sixteen numbers; lanes beyond `from` are zero.
#[inline(always)]
pub(crate) fn load<F: Float>(from: &[F]) -> Lanes<F> {
    match from.first_chunk() {
        Some(whole) => *whole,
        None => {
            let mut lanes = splat(F::zero());
            lanes[..from.len()].copy_from_slice(from);
            lanes
        }
    }
}

/// The first `to.len()` lanes, at most sixteen.
#[inline(always)]
pub(crate) fn store<F: Float>(lanes: &Lanes<F>, to: &mut [F]) {
    match to.first_chunk_mut() {
        Some(whole) => *whole = *lanes,
        None => to.copy_from_slice(&lanes[..to.len()]),
    }
}

/// Lane by lane.
#[inline(always)]
pub(crate) fn each<F: Float>(f: impl Fn(usize) -> F) -> Lanes<F> {
    let mut out = splat(F::zero());
    for (i, x) in out.iter_mut().enumerate() {
        *x = f(i);
    }
    out
}

/// The sum over lanes, as a tree of fixed form.
#[inline(always)]
pub(crate) fn sum<F: Float>(x: &Lanes<F>) -> F {
    let mut x = *x;
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            x[i] += x[i + half];
        }
    }
    x[0]
}

/// Σ f over the elements of slices of one length: sixteen running sums, then the tree.
#[inline(always)]
pub(crate) fn total<F: Float, const N: usize>(x: [&[F]; N], f: impl Fn([F; N]) -> F) -> F {
    let parts = x.map(|x| x.as_chunks::<LANES>());
    let mut sums = splat(F::zero());
    for j in 0..parts[0].0.len() {
        let x = parts.map(|(whole, _)| &whole[j]);
        sums = each(|i| sums[i] + f(x.map(|x| x[i])));
    }
    for (i, sum) in sums.iter_mut().enumerate().take(parts[0].1.len()) {
        *sum += f(parts.map(|(_, rest)| rest[i]));
    }
    sum(&sums)
}

/// The largest of some numbers; NaN is passed over.
#[inline(always)]
pub(crate) fn largest<F: Float>(x: &[F]) -> F {
    let (whole, rest) = x.as_chunks::<LANES>();
    let mut lanes = splat(x[0]);
    for x in whole {
        lanes = each(|i| lanes[i].at_least(x[i]));
    }
    let lanes = lanes.iter().chain(rest);
    lanes.fold(x[0], |largest, &x| largest.at_least(x))
}

/// The sum of `parts` of equal length, laid out one after another, in their order.
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
