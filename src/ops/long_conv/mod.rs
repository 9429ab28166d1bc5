//! The causal convolution of every channel with a kernel of its own that may be as long as the sequence, for S4, DSS,
//! H3, Hyena and their kin.

mod channel;
mod cpu;
mod direct;
mod fourier;
mod launch;
mod reference;

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// y\[b,t,c\] = Σ_{j ≤ t} kernel\[c,t-j\] u\[b,j,c\].
///
/// `u`: (B, L, d); `kernel`: (d, K), lag 0 first; result (B, L, d). Lags beyond the sequence have no effect and no
/// gradient. On the CPU, kernels with more than a few taps use Fourier transforms: each output then depends on later
/// inputs of its channel by rounding errors, and by values that are not finite.
pub fn long_conv(u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    let conv = LongConv::check(u, kernel)?;
    if runs_on(u) {
        apply_one(conv, &[u, kernel])
    } else {
        reference::long_conv(u, kernel)
    }
}

struct LongConv {
    batch: usize,
    len: usize,
    width: usize,
    taps: usize,
}

impl LongConv {
    fn check(u: &Tensor, kernel: &Tensor) -> Result<Self> {
        let [batch, len, width] = shape::dims(Self::NAME, ("u", u))?;
        let [_, taps] = shape::dims(Self::NAME, ("kernel", kernel))?;
        shape::parameter(Self::NAME, ("kernel", kernel), ("u", u), &[width, taps])?;
        Ok(Self { batch, len, width, taps })
    }

    /// The taps that have an effect.
    fn reach(&self) -> usize {
        self.taps.min(self.len)
    }
}

impl FusedOp for LongConv {
    const NAME: &'static str = "long_conv";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.len, self.width).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![cpu::forward(self, ins[0], ins[1])]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        cpu::backward(self, call)
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        launch::forward(self, call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        launch::backward(self, call)
    }
}

#[cfg(test)]
mod tests;
