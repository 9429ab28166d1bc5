//! Launches of the kernels of `cuda/long_conv.cu` for few taps or short sequences, and by [`fft`] otherwise.

mod fft;

use super::LongConv;
use crate::gpu::sizes::long_conv::{CHANNELS, CHUNK, RUN, RUNS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use crate::runtime::sums::sum_parts;
use candle_core::{DType, Result};
use fft::{ByFft, Fft};

/// Outputs and threads of a block.
const OUTPUTS: usize = RUN * RUNS;
const THREADS: usize = CHANNELS * RUNS;
/// The number of blocks that occupies a large GPU.
const ENOUGH: usize = 512;
/// Instructions for three multiply-adds: a thread reads 23 numbers for 64.
const FOR_THREE: usize = 4;

impl CudaOp for LongConv {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let [u, kernel] = [call.ins[0], call.ins[1]];
        let y = match self.by_fft(call.gpu) {
            Some(fft) => fft.convolve(u, kernel, Time::Ahead),
            None => self.convolve(call.gpu, u, kernel, Time::Ahead),
        };
        Ok(vec![y?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, [u, kernel], gy) = (call.gpu, [call.ins[0], call.ins[1]], call.only().grad);
        let fft = self.by_fft(gpu);
        let gu = call.needs_grad[0].then(|| match &fft {
            Some(fft) => fft.convolve(gy, kernel, Time::Mirrored),
            None => self.convolve(gpu, gy, kernel, Time::Mirrored),
        });
        let gk = call.needs_grad[1].then(|| match &fft {
            Some(fft) => fft.gradient(u, gy),
            None => self.gradient(gpu, u, gy),
        });
        Ok(vec![gu.transpose()?, gk.transpose()?])
    }
}

/// The direction of time.
#[derive(Clone, Copy)]
enum Time {
    Ahead,
    Mirrored,
}

impl Time {
    fn is_mirrored(self) -> bool {
        matches!(self, Self::Mirrored)
    }
}

impl LongConv {
    /// Transforms, if they take fewer instructions than the sums over taps. They are so long that neither a convolution
    /// nor a correlation wraps around into its result.
    fn by_fft<'a>(&'a self, gpu: &'a Gpu) -> Option<ByFft<'a>> {
        let fft = Fft::of(self.taps.max(self.len + self.reach() - 1))?;
        (fft.instructions() < self.instructions()).then_some(ByFft { conv: self, fft, gpu })
    }

    /// Instructions of the sums for one channel of a sequence: blocks sum over whole chunks of taps.
    fn instructions(&self) -> usize {
        let tiles = (0..self.len).step_by(OUTPUTS);
        let taps = tiles.map(|first| self.taps.min(first + OUTPUTS).next_multiple_of(CHUNK));
        OUTPUTS * taps.sum::<usize>() / 3 * FOR_THREE
    }

    fn grid(&self, tiles: usize, pieces: usize) -> Grid {
        Grid { blocks: [tiles, self.width.div_ceil(CHANNELS), pieces], threads: THREADS, shared: 0 }
    }

    /// The convolution of `x` with the kernel, in one direction of time.
    fn convolve(&self, gpu: &Gpu, x: View, kernel: View, time: Time) -> Result<Buffer> {
        let mut y = gpu.alloc(x.dtype(), x.len())?;
        let grid = self.grid(self.batch * self.len.div_ceil(OUTPUTS), 1);
        let sizes = [self.len, self.width, self.taps].map(Arg::from);
        let mut args = vec![x.into(), kernel.into(), (&mut y).into()];
        args.extend(sizes);
        args.push(time.is_mirrored().into());
        gpu.launch(Kernel::of(Self::NAME, Self::NAME, x.dtype()), grid, &args)?;
        Ok(y)
    }

    /// Returns the gradient of the kernel, from partial sums over groups of sequences that leave enough blocks.
    fn gradient(&self, gpu: &Gpu, u: View, gy: View) -> Result<Buffer> {
        let tiles = self.taps.div_ceil(OUTPUTS);
        let blocks = tiles * self.width.div_ceil(CHANNELS);
        let each = self.batch.div_ceil(ENOUGH.div_ceil(blocks));
        let pieces = self.batch.div_ceil(each);
        let mut parts = gpu.alloc(DType::F32, pieces * self.width * self.taps)?;
        let sizes = [self.batch, self.len, self.width, self.taps, each].map(Arg::from);
        let mut args = vec![u.into(), gy.into(), (&mut parts).into()];
        args.extend(sizes);
        let kernel = Kernel::of(Self::NAME, "long_conv_kernel", u.dtype());
        gpu.launch(kernel, self.grid(tiles, pieces), &args)?;
        sum_parts(gpu, &parts, self.width * self.taps)
    }
}
