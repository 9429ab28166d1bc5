//! A few channels a task, whose sequences are read into the rows of a tile: with time as the last axis, both transforms
//! and sums over taps read consecutive numbers. Each row is replaced by its result.

mod direct;
mod fourier;

use super::LongConv;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::fourier::{fast_size, Fourier};
use crate::runtime::lanes::LANES;
use crate::runtime::parallel::InParallel;
use crate::runtime::strips::StripRows;
use crate::runtime::transpose::{columns_to_rows, rows_to_columns};
use crate::runtime::zeros::zeros;
use direct::Direct;

/// The most taps for which their sums are faster than transforms.
const FEW: usize = 64;

/// Numbers of a tile, which stays in the L2 cache.
const TILE: usize = 1 << 18;

/// The fewest channels of a task, unless they are all: fewer would read a small part of each cache line.
const NARROW: usize = 4;

/// A way to compute the sums of a convolution.
trait ConvolutionSums<F: Float>: Sync {
    /// Scratch memory of a thread, for any number of channels.
    type Memory: Send;
    /// The kernel of one channel, as it is used, and the sums of its gradient.
    type Channel: Send;

    fn memory(&self) -> Self::Memory;

    fn channel(&self) -> Self::Channel;

    /// Makes `channel` that of `kernel`, with a gradient of zero.
    fn begin(&self, memory: &mut Self::Memory, channel: &mut Self::Channel, kernel: &[F]);

    /// Replaces a sequence u by y.
    fn forward(&self, memory: &mut Self::Memory, channel: &mut Self::Channel, u: &mut [F]);

    /// Replaces the gradient of y by that of u, if `needs_u`, and adds to the gradient of the kernel, if there is `u`.
    fn backward(
        &self,
        memory: &mut Self::Memory,
        channel: &mut Self::Channel,
        u: Option<&[F]>,
        gy: &mut [F],
        needs_u: bool,
    );

    /// Writes the gradient of the kernel.
    fn finish(&self, memory: &mut Self::Memory, channel: &mut Self::Channel, gk: &mut [F]);
}

/// Memory of a task: that of its sums, its channels, and tiles for a sequence of each of them.
struct TileMemory<F: Float, S: ConvolutionSums<F>> {
    sums: S::Memory,
    channels: Vec<S::Channel>,
    /// One for u in the forward pass, and for the gradient of y in the backward pass; the other for u there.
    tiles: [Vec<F>; 2],
}

impl<F: Float, S: ConvolutionSums<F>> TileMemory<F, S> {
    /// Memory of `channels` channels, whose rows are `pitch` apart in each of `tiles` tiles.
    fn new(sums: &S, channels: usize, pitch: usize, tiles: usize) -> Self {
        let tile = |i| vec![F::zero(); if i < tiles { channels * pitch } else { 0 }];
        Self {
            sums: sums.memory(),
            channels: (0..channels).map(|_| sums.channel()).collect(),
            tiles: [tile(0), tile(1)],
        }
    }
}

impl CpuOp for LongConv {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![match self.by_taps() {
            Some(direct) => self.forward_by(&direct, [ins[0], ins[1]]),
            None => self.forward_by(&self.by_transforms(), [ins[0], ins[1]]),
        }]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (ins, needs) = ([call.ins[0], call.ins[1], call.only().grad], call.needs_grad);
        match self.by_taps() {
            Some(direct) => self.backward_by(&direct, ins, needs).into(),
            None => self.backward_by(&self.by_transforms(), ins, needs).into(),
        }
    }
}

impl LongConv {
    /// Sums over taps, if these are few.
    fn by_taps(&self) -> Option<Direct> {
        (self.reach() <= FEW).then_some(Direct { len: self.len, taps: self.reach() })
    }

    /// Transforms of a size at which the end of a convolution does not wrap around to its start.
    fn by_transforms<F: Float>(&self) -> Fourier<F> {
        Fourier::plan(fast_size(self.len + self.reach() - 1))
    }

    /// Numbers from one row of a tile to the next: rows a power of two apart would share the sets of a cache.
    fn pitch(&self) -> usize {
        self.len.next_multiple_of(LANES) + LANES
    }

    /// Channels of a task: enough tasks for all threads, of tiles that fit into a cache. No number depends on it.
    fn panel(&self) -> usize {
        let shared = self.width / (2 * rayon::current_num_threads());
        let fitting = TILE / self.pitch();
        shared.min(fitting).clamp(NARROW, LANES).min(self.width)
    }

    /// y (B, L, d).
    fn forward_by<F: Float, S: ConvolutionSums<F>>(&self, sums: &S, [u, kernel]: [&[F]; 2]) -> Vec<F> {
        let mut y = zeros(u.len());
        let (pitch, panel) = (self.pitch(), self.panel());
        let tasks = self.columns(&mut y, panel).into_iter().zip(kernel.chunks(panel * self.taps)).enumerate();
        tasks.in_parallel_with(
            || TileMemory::new(sums, panel, pitch, 1),
            |TileMemory { sums: memory, channels, tiles: [tile, _] }, (task, (mut y, kernels))| {
                self.begin(sums, memory, channels, kernels);
                let wide = kernels.len() / self.taps;
                let tile = &mut tile[..wide * pitch];
                for (u, y) in u.chunks(self.len * self.width).zip(y.chunks_mut(self.len)) {
                    columns_to_rows(u, self.width, task * panel, tile, pitch);
                    for (channel, row) in channels.iter_mut().zip(tile.chunks_mut(pitch)) {
                        sums.forward(memory, channel, &mut row[..self.len]);
                    }
                    rows_to_columns(tile, pitch, y);
                }
            },
        );
        y
    }

    /// The gradients of u (B, L, d) and of the kernel (d, K).
    fn backward_by<F: Float, S: ConvolutionSums<F>>(
        &self,
        sums: &S,
        [u, kernel, gy]: [&[F]; 3],
        needs_grad: &[bool],
    ) -> [Vec<F>; 2] {
        let (mut gu, mut gk) = (zeros(u.len()), zeros(kernel.len()));
        let (pitch, panel) = (self.pitch(), self.panel());
        let kernels = kernel.chunks(panel * self.taps).zip(gk.chunks_mut(panel * self.taps));
        let tasks = self.columns(&mut gu, panel).into_iter().zip(kernels).enumerate();
        tasks.in_parallel_with(
            || TileMemory::new(sums, panel, pitch, 2),
            |TileMemory { sums: memory, channels, tiles }, (task, (mut gu, (kernels, gk)))| {
                self.begin(sums, memory, channels, kernels);
                let wide = kernels.len() / self.taps;
                let [gy_rows, u_rows] = tiles.each_mut().map(|tile| &mut tile[..wide * pitch]);
                let sequences = u.chunks(self.len * self.width).zip(gy.chunks(self.len * self.width));
                for ((u, gy), gu) in sequences.zip(gu.chunks_mut(self.len)) {
                    columns_to_rows(gy, self.width, task * panel, gy_rows, pitch);
                    if needs_grad[1] {
                        columns_to_rows(u, self.width, task * panel, u_rows, pitch);
                    }
                    let rows = gy_rows.chunks_mut(pitch).zip(u_rows.chunks(pitch));
                    for (channel, (gy, u)) in channels.iter_mut().zip(rows) {
                        let u = needs_grad[1].then_some(&u[..self.len]);
                        sums.backward(memory, channel, u, &mut gy[..self.len], needs_grad[0]);
                    }
                    if needs_grad[0] {
                        rows_to_columns(gy_rows, pitch, gu);
                    }
                }
                if needs_grad[1] {
                    for (channel, gk) in channels.iter_mut().zip(gk.chunks_mut(self.taps)) {
                        sums.finish(memory, channel, &mut gk[..self.reach()]);
                    }
                }
            },
        );
        [gu, gk]
    }

    fn begin<F: Float, S: ConvolutionSums<F>>(
        &self,
        sums: &S,
        memory: &mut S::Memory,
        channels: &mut [S::Channel],
        kernels: &[F],
    ) {
        for (channel, kernel) in channels.iter_mut().zip(kernels.chunks(self.taps)) {
            sums.begin(memory, channel, &kernel[..self.reach()]);
        }
    }

    /// The rows of x (B, L, d) in pieces of `panel` channels, by channels.
    fn columns<'a, F>(&self, x: &'a mut [F], panel: usize) -> Vec<StripRows<'a, F>> {
        let rows = self.batch * self.len;
        let mut columns: Vec<StripRows<F>> =
            (0..self.width.div_ceil(panel)).map(|_| Vec::with_capacity(rows)).collect();
        for row in x.chunks_mut(self.width) {
            for (column, piece) in columns.iter_mut().zip(row.chunks_mut(panel)) {
                column.push(piece);
            }
        }
        columns
    }
}
