//! One task for each channel, whose sequences lie one after the other: with time as the last axis, both transforms and
//! sums over taps read consecutive numbers.

mod channel;
mod direct;
mod fourier;

use super::LongConv;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::fourier::{fast_size, Fourier};
use crate::runtime::parallel::InParallel;
use crate::runtime::transpose::transpose;
use crate::runtime::zeros::zeros;
use channel::{Channel, ChannelGradients, ConvolutionSums};
use direct::Direct;

/// The most taps for which their sums are faster than transforms.
const FEW: usize = 64;

impl CpuOp for LongConv {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let (u, kernel) = (ins[0], ins[1]);
        let u = transpose(u, self.width);
        let y = match self.by_taps() {
            Some(direct) => self.forward_by(&direct, &u, kernel),
            None => self.forward_by(&Fourier::plan(self.size()), &u, kernel),
        };
        vec![transpose(&y, self.batch * self.len)]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (u, gy) = (transpose(call.ins[0], self.width), transpose(call.only().grad, self.width));
        let (rows, needs) = ([&u[..], call.ins[1], &gy], call.needs_grad);
        let [gu, gk] = match self.by_taps() {
            Some(direct) => self.backward_by(&direct, rows, needs),
            None => self.backward_by(&Fourier::plan(self.size()), rows, needs),
        };
        vec![transpose(&gu, self.batch * self.len), gk]
    }
}

impl LongConv {
    /// Sums over taps, if these are few.
    fn by_taps(&self) -> Option<Direct> {
        (self.reach() <= FEW).then_some(Direct { len: self.len, taps: self.reach() })
    }

    /// A size of transforms at which the end of a convolution does not wrap around to its start.
    fn size(&self) -> usize {
        fast_size(self.len + self.reach() - 1)
    }

    /// y as (d, B, L), from u as (d, B, L).
    fn forward_by<F: Float>(&self, sums: &impl ConvolutionSums<F>, u: &[F], kernel: &[F]) -> Vec<F> {
        let mut y = zeros(u.len());
        let channels = y.chunks_mut(self.batch * self.len);
        let channels = channels.zip(self.channels(u, kernel));
        channels.in_parallel_with(|| sums.memory(), |memory, (y, channel)| sums.forward(memory, channel, y));
        y
    }

    /// The gradients of u, as (d, B, L), and of the kernel, from u and the gradient of y as (d, B, L).
    fn backward_by<F: Float>(
        &self,
        sums: &impl ConvolutionSums<F>,
        [u, kernel, gy]: [&[F]; 3],
        needs_grad: &[bool],
    ) -> [Vec<F>; 2] {
        let mut gu = zeros(u.len());
        let mut gk = zeros(kernel.len());
        let rows = self.batch * self.len;
        let writes = gu.chunks_mut(rows).zip(gk.chunks_mut(self.taps));
        let reads = self.channels(u, kernel).zip(gy.chunks(rows));
        writes.zip(reads).in_parallel_with(
            || sums.memory(),
            |memory, ((gu, gk), (channel, gy))| {
                let gradients = ChannelGradients {
                    u: needs_grad[0].then_some(gu),
                    kernel: needs_grad[1].then_some(&mut gk[..self.reach()]),
                };
                sums.backward(memory, channel, gy, gradients);
            },
        );
        [gu, gk]
    }

    fn channels<'a, F>(&self, u: &'a [F], kernel: &'a [F]) -> impl Iterator<Item = Channel<'a, F>> + use<'a, F> {
        let (len, reach) = (self.len, self.reach());
        let rows = u.chunks(self.batch * len).zip(kernel.chunks(self.taps));
        rows.map(move |(u, kernel)| Channel { len, u, kernel: &kernel[..reach] })
    }

    /// The taps that have an effect.
    fn reach(&self) -> usize {
        self.taps.min(self.len)
    }
}
