//! Kernel of a time-invariant system whose matrix is diagonal plus low rank, by its generating function at roots of
//! unity: S4.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_one, runs_on, Op};
use crate::runtime::shape;
use candle_core::{bail, DType, Result, Shape, Tensor};
use std::f64::consts::PI;

/// y\[c,l\] for l below `len`: the first numbers with the discrete Fourier transform, of `period` numbers,
///
/// K(ω) = e^(iθ/2) Σ c (2i sin(θ/2) - cos(θ/2) (Λ - Σ p pᴴ))⁻¹ b,  ω = e^(-iθ),
///
/// over the states of a channel and their conjugates (Gu et al. 2022, algorithm 1, with numerator and denominator of
/// its fractions multiplied by cos(θ/2), so that ω = -1 needs no limit). The inverse is that of a diagonal matrix and
/// the Woodbury identity. If Λ, p pᴴ and b are multiplied by the time step, and c = C (I - Ā^period), this is C Ā^l B̄ of
/// the system's bilinear discretisation.
///
/// `lambda`, `b`, `c`: real and imaginary parts, (d, m) each, one of each conjugate pair; `p`: (rank, d, m) each, of rank
/// 1 or 2. `period` is even and at least `len`; result (d, len).
pub fn dplr_kernel(
    lambda: [&Tensor; 2],
    p: [&Tensor; 2],
    b: [&Tensor; 2],
    c: [&Tensor; 2],
    [len, period]: [usize; 2],
) -> Result<Tensor> {
    let op = DplrKernel::check([lambda, b, c], p, [len, period])?;
    // A pole near the unit circle has no accuracy in half precision.
    if runs_on(lambda[0]) && lambda[0].dtype() != DType::BF16 {
        apply_one(op, &[lambda, p, b, c].concat())
    } else {
        reference::dplr_kernel(lambda, p, b, c, [len, period])
    }
}

/// Kernel of a system that is diagonal plus low rank; the inputs are the real and imaginary parts of Λ, p, b and c.
struct DplrKernel {
    width: usize,
    states: usize,
    rank: usize,
    len: usize,
    period: usize,
}

impl DplrKernel {
    fn check([lambda, b, c]: [[&Tensor; 2]; 3], p: [&Tensor; 2], [len, period]: [usize; 2]) -> Result<Self> {
        let others = [("Im Λ", lambda[1]), ("Re b", b[0]), ("Im b", b[1]), ("Re c", c[0]), ("Im c", c[1])];
        let [width, states] = shape::kernel(Self::NAME, ("Re Λ", lambda[0]), &others, len)?;
        let [rank, ..]: [usize; 3] = shape::dims(Self::NAME, ("Re p", p[0]))?;
        for named in [("Re p", p[0]), ("Im p", p[1])] {
            shape::expect(Self::NAME, named, ("Re Λ", lambda[0]), &[rank, width, states])?;
        }
        if rank > 2 {
            bail!("{}: p has rank {rank}, at most 2 is possible", Self::NAME);
        }
        if period % 2 == 1 || period < len {
            bail!("{}: a period of {period} must be even and at least the {len} taps", Self::NAME);
        }
        Ok(Self { width, states, rank, len, period })
    }

    /// Number of roots from ω = 1 to -1, of which the others are conjugates.
    fn roots(&self) -> usize {
        self.period / 2 + 1
    }
}

/// cos(θ/2) and sin(θ/2) of root `index` of `period`.
fn half_angle(index: usize, period: usize) -> [f64; 2] {
    let half = PI * index as f64 / period as f64;
    [if 2 * index == period { 0.0 } else { half.cos() }, half.sin()]
}

impl Op for DplrKernel {
    const NAME: &'static str = "dplr_kernel";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.width, self.len).into()]
    }
}

#[cfg(test)]
mod tests;
