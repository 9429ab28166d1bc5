//! The short causal depthwise convolution in front of recurrences.

use crate::nn::{Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Taps of the kernel, as Mamba and Griffin have them.
const KERNEL: usize = 4;

/// Weights `(E, taps)` and biases `(E)`; the last tap meets the current step.
pub(super) struct ShortConv {
    w: Tensor,
    b: Tensor,
}

impl ShortConv {
    pub fn new(width: usize, params: &Params) -> Result<Self> {
        Self::with_taps(KERNEL, width, params)
    }

    pub fn with_taps(taps: usize, width: usize, params: &Params) -> Result<Self> {
        let edge = (taps as f64).powf(-0.5);
        let edge = || Init::Uniform(-edge, edge);
        Ok(Self {
            w: params.get("conv_w", (width, taps), edge())?,
            b: params.get("conv_b", width, edge())?,
        })
    }

    /// `(batch, seq_len, E)` to the same shape.
    pub fn forward(&self, raw: &Tensor) -> Result<Tensor> {
        ops::causal_conv1d(raw, &self.w, Some(&self.b))
    }

    /// Inputs before the present one that it reads.
    fn reach(&self) -> usize {
        self.w.dims()[1] - 1
    }

    /// The inputs `(batch, taps - 1, E)` before the first token.
    pub fn window(&self, batch: usize) -> Result<Tensor> {
        let shape = (batch, self.reach(), self.b.dim(0)?);
        Tensor::zeros(shape, self.b.dtype(), self.b.device())
    }

    /// Size of [`Self::window`] a sequence.
    pub fn state_size(&self) -> usize {
        self.reach() * self.b.elem_count()
    }

    /// One token `(batch, E)` behind the inputs in `window`: the output and the moved window.
    pub fn step(&self, raw: &Tensor, window: &Tensor) -> Result<(Tensor, Tensor)> {
        let inputs = Tensor::cat(&[window, &raw.unsqueeze(1)?], 1)?; // (batch, taps, E)
        let taps = self.w.t()?.unsqueeze(0)?;
        let x = inputs
            .broadcast_mul(&taps)?
            .sum(1)?
            .broadcast_add(&self.b)?;
        Ok((x, inputs.narrow(1, 1, self.reach())?))
    }
}
