//! Blocks of a state, which are computed together in registers.

use crate::runtime::float::Float;
use crate::runtime::lanes::{each, Lanes, LANES};

/// Rows or columns of a state that are computed together.
pub(crate) const BLOCK: usize = 4;

/// Blocks in a group of lanes.
pub(crate) const IN_GROUP: usize = LANES / BLOCK;

/// A block of a state: one group of lanes of each of its rows or columns.
pub(crate) type StateBlock<F> = [Lanes<F>; BLOCK];

/// Each group of a block by its index, without a loop: the compiler would take the groups, not the
/// lanes, for the elements of its vectors.
#[inline(always)]
pub(crate) fn each_group<F: Float>(f: impl Fn(usize) -> Lanes<F>) -> StateBlock<F> {
    const { assert!(BLOCK == 4) };
    [f(0), f(1), f(2), f(3)]
}

/// Returns the sum over the groups of a block, each multiplied by its factor.
#[inline(always)]
pub(crate) fn weighted<F: Float>(x: &StateBlock<F>, by: &[F; BLOCK]) -> Lanes<F> {
    each(|i| x[0][i].fma(by[0], x[1][i] * by[1]) + x[2][i].fma(by[2], x[3][i] * by[3]))
}

/// Returns the sum over the groups of the products of two blocks.
#[inline(always)]
pub(crate) fn product<F: Float>(x: &StateBlock<F>, y: &StateBlock<F>) -> Lanes<F> {
    each(|i| x[0][i].fma(y[0][i], x[1][i] * y[1][i]) + x[2][i].fma(y[2][i], x[3][i] * y[3][i]))
}

/// Flushes a vanishing number to zero. Decays would otherwise reduce it to a subnormal number and, by rounding, leave
/// it there, where arithmetic is a hundred times slower.
#[inline(always)]
pub(crate) fn without_trace<F: Float>(x: F) -> F {
    if x.abs() < F::of(1e-35) {
        F::zero()
    } else {
        x
    }
}

/// [`without_trace`] of a block.
#[inline(always)]
pub(crate) fn without_traces<F: Float>(x: &StateBlock<F>) -> StateBlock<F> {
    each_group(|n| each(|i| without_trace(x[n][i])))
}

/// The groups as blocks of numbers: rows or columns of the state that are computed together.
#[inline(always)]
pub(crate) fn blocks<F>(x: &[Lanes<F>]) -> &[[F; BLOCK]] {
    x.as_flattened().as_chunks().0
}
