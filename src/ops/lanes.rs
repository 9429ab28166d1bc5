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

/// Σ f(i) over 0..count: sixteen running sums, then the tree.
#[inline(always)]
pub(crate) fn total<F: Float>(count: usize, f: impl Fn(usize) -> F) -> F {
    let whole = count - count % LANES;
    let mut sums = splat(F::zero());
    for start in (0..whole).step_by(LANES) {
        sums = each(|i| sums[i] + f(start + i));
    }
    for (i, sum) in (whole..count).zip(&mut sums) {
        *sum += f(i);
    }
    sum(&sums)
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
