//! The causal convolution of every channel with a kernel of its own that may be as long as the sequence, for S4, DSS,
//! H3, Hyena and their kin.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// y\[b,t,c\] = Σ_{j ≤ t} kernel\[c,t-j\] u\[b,j,c\].
///
/// `u`: (B, L, d); `kernel`: (d, K), lag 0 first; result (B, L, d). Lags beyond the sequence have no effect and no
/// gradient. Kernels with more than a few taps use Fourier transforms: each output then depends on later inputs of its
/// channel by rounding errors, and by values that are not finite.
pub fn long_conv(u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    let conv = LongConv::check(u, kernel)?;
    apply_or(conv, &[u, kernel], |_| reference::long_conv(u, kernel))
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

impl Op for LongConv {
    const NAME: &'static str = "long_conv";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.len, self.width).into()]
    }
}

#[cfg(test)]
mod tests;
