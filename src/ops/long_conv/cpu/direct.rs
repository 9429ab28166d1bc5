//! Convolutions with few taps, summed directly.

use super::ConvolutionSums;
use crate::runtime::float::Float;
use crate::runtime::lanes::{by_index, dot};
use dsf_simd::simd;

/// Outputs that are summed together, in the L1 cache.
const BLOCK: usize = 1024;
/// Taps that are summed together, in registers.
const TAPS: usize = 4;

/// The sums over taps.
pub(super) struct Direct {
    pub(super) len: usize,
    pub(super) taps: usize,
}

/// Scratch memory of a thread, reused for one row after another.
pub(super) struct DirectScratch<F> {
    /// A sequence preceded by zeros, so that every tap has an input.
    behind: Vec<F>,
    /// A sequence with zeros after it.
    before: Vec<F>,
}

/// The taps of a channel.
pub(super) struct Taps<F> {
    kernel: Vec<F>,
    /// The last tap first.
    reversed: Vec<F>,
    /// The gradient, summed over the batch.
    sum: Vec<F>,
}

impl<F: Float> ConvolutionSums<F> for Direct {
    type Memory = DirectScratch<F>;
    type Channel = Taps<F>;

    fn memory(&self) -> DirectScratch<F> {
        let padded = vec![F::zero(); self.len + self.taps - 1];
        DirectScratch { behind: padded.clone(), before: padded }
    }

    fn channel(&self) -> Taps<F> {
        let taps = || vec![F::zero(); self.taps];
        Taps { kernel: taps(), reversed: taps(), sum: taps() }
    }

    fn begin(&self, _memory: &mut DirectScratch<F>, channel: &mut Taps<F>, kernel: &[F]) {
        channel.kernel.copy_from_slice(kernel);
        channel.reversed.copy_from_slice(kernel);
        channel.reversed.reverse();
        channel.sum.fill(F::zero());
    }

    fn forward(&self, memory: &mut DirectScratch<F>, channel: &mut Taps<F>, row: &mut [F]) {
        memory.behind[self.taps - 1..].copy_from_slice(row);
        slide(&channel.reversed, &memory.behind, row);
    }

    fn backward(
        &self,
        memory: &mut DirectScratch<F>,
        channel: &mut Taps<F>,
        u: Option<&[F]>,
        gy: &mut [F],
        needs_u: bool,
    ) {
        if let Some(u) = u {
            memory.behind[self.taps - 1..].copy_from_slice(u);
            add_products(gy, &memory.behind, &mut channel.sum);
        }
        if needs_u {
            memory.before[..self.len].copy_from_slice(gy);
            slide(&channel.kernel, &memory.before, gy);
        }
    }

    fn finish(&self, _memory: &mut DirectScratch<F>, channel: &mut Taps<F>, gk: &mut [F]) {
        gk.copy_from_slice(&channel.sum);
    }
}

/// y_t = Σ_i taps_i x_{t+i}; `x` is longer than `y` by one less than there are taps.
#[simd]
fn slide<F: Float>(taps: &[F], x: &[F], y: &mut [F]) {
    let (whole, rest) = taps.as_chunks::<TAPS>();
    for (block, y) in y.chunks_mut(BLOCK).enumerate() {
        let x = &x[block * BLOCK..][..y.len() + taps.len() - 1];
        y.fill(F::zero());
        for (i, taps) in whole.iter().enumerate() {
            add_taps(taps, &x[i * TAPS..], y);
        }
        for (i, &tap) in rest.iter().enumerate() {
            add_taps(&[tap], &x[whole.len() * TAPS + i..], y);
        }
    }
}

/// Adds Σ_i taps_i x_{t+i} to every y_t.
#[inline(always)]
fn add_taps<F: Float, const N: usize>(taps: &[F; N], x: &[F], y: &mut [F]) {
    let x = by_index::<_, N>(|i| &x[i..][..y.len()]);
    for (t, y) in y.iter_mut().enumerate() {
        let mut sum = taps[0] * x[0][t];
        for i in 1..N {
            sum = taps[i].fma(x[i][t], sum);
        }
        *y += sum;
    }
}

/// Adds Σ_t gy_t u_{t-lag} to the sum of each lag; `u` is preceded by one zero less than there are lags.
#[simd]
fn add_products<F: Float>(gy: &[F], u: &[F], sums: &mut [F]) {
    let last = sums.len() - 1;
    for (lag, sum) in sums.iter_mut().enumerate() {
        *sum += dot(gy, &u[last - lag..][..gy.len()]);
    }
}
