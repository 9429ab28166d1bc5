//! Passes on the CPU.

use super::{table, Rotary, ROWS};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

impl CpuOp for Rotary {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let table = table(&self.known, self.dims, self.base);
        let y = self.rotate_rows(ins[0], &table, false);
        vec![y, table]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        vec![self.rotate_rows(call.only().grad, call.saved[0], true)]
    }
}

impl Rotary {
    /// Rotates every row of `x`, by the negative angles if `back`.
    fn rotate_rows<F: Float>(&self, x: &[F], table: &[F], back: bool) -> Vec<F> {
        let sign = if back { -F::one() } else { F::one() };
        let count = self.known.len();
        let mut y = zeros(x.len());
        y.chunks_mut(ROWS * self.channels).zip(x.chunks(ROWS * self.channels)).enumerate().in_parallel(
            |(task, (y, x))| {
                let rows = y.chunks_exact_mut(self.channels);
                for (row, (y, x)) in rows.zip(x.chunks_exact(self.channels)).enumerate() {
                    let position = (task * ROWS + row) % count;
                    let angles = &table[position * self.dims..][..self.dims];
                    rotate(x, angles, sign, self.width, y);
                }
            },
        );
        y
    }
}

/// Rotates the heads of a row by `angles`, given as cosines and then sines; the sines are
/// multiplied by `sign`.
#[simd]
fn rotate<F: Float>(x: &[F], angles: &[F], sign: F, width: usize, y: &mut [F]) {
    let (cos, sin) = angles.split_at(angles.len() / 2);
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let ((a, x), (rotated_a, y)) = (x.split_at(cos.len()), y.split_at_mut(cos.len()));
        let ((b, x), (rotated_b, y)) = (x.split_at(cos.len()), y.split_at_mut(cos.len()));
        let angles = cos.iter().zip(sin);
        let rotated = rotated_a.iter_mut().zip(rotated_b);
        for (((rotated_a, rotated_b), (&a, &b)), (&cos, &sin)) in rotated.zip(a.iter().zip(b)).zip(angles) {
            let sin = sign * sin;
            *rotated_a = a.fma(cos, -b * sin);
            *rotated_b = b.fma(cos, a * sin);
        }
        y.copy_from_slice(x);
    }
}
