//! Short causal depthwise convolution before a recurrence: y_i = b + Σ_t w_t ⊙ x_{i-taps+1+t}.

use crate::nn::{Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Taps of the kernel in Mamba and Griffin.
const TAPS: usize = 4;

/// Weights `(E, taps)`, the last of which multiplies the current token, and biases `(E)`.
pub(super) struct ShortConv {
    w: Tensor,
    b: Tensor,
}

impl ShortConv {
    pub fn new(width: usize, params: &Params) -> Result<Self> {
        Self::with_taps(TAPS, width, params)
    }

    pub fn with_taps(taps: usize, width: usize, params: &Params) -> Result<Self> {
        let edge = (taps as f64).powf(-0.5);
        let edge = || Init::Uniform(-edge, edge);
        Ok(Self { w: params.get("conv_w", (width, taps), edge())?, b: params.get("conv_b", width, edge())? })
    }

    /// `(batch, seq_len, E)` to the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::causal_conv1d(x, &self.w, Some(&self.b))
    }

    /// Past inputs that an output reads, taps - 1.
    fn past(&self) -> usize {
        self.w.dims()[1] - 1
    }

    /// Initial window of past inputs, zeros `(batch, taps - 1, E)`.
    pub fn window(&self, batch: usize) -> Result<Tensor> {
        let shape = (batch, self.past(), self.b.dim(0)?);
        Tensor::zeros(shape, self.b.dtype(), self.b.device())
    }

    /// Elements of [`Self::window`] per sequence.
    pub fn state_size(&self) -> usize {
        self.past() * self.b.elem_count()
    }

    /// Output `(batch, E)` for the current input `(batch, E)` and the window of past ones, and the next window.
    pub fn step(&self, x_t: &Tensor, window: &Tensor) -> Result<(Tensor, Tensor)> {
        let inputs = Tensor::cat(&[window, &x_t.unsqueeze(1)?], 1)?; // (batch, taps, E)
        let w = self.w.t()?.unsqueeze(0)?; // (1, taps, E)
        let y = inputs.broadcast_mul(&w)?.sum(1)?.broadcast_add(&self.b)?;
        Ok((y, inputs.narrow(1, 1, self.past())?))
    }
}
