//! Short causal depthwise convolution before a recurrence: y_i = b + Σ_t w_t ⊙ x_{i-taps+1+t}.

use super::{in_range, MixerOption, MixerSpec, FALSE_OR_TRUE};
use crate::nn::{Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Taps of the kernel in Mamba and Griffin.
const TAPS: usize = 4;

/// Number of taps.
pub(super) const CONV_WIDTH: MixerOption = MixerOption {
    name: "conv_width",
    help: "tokens that the short convolution reads, the current one included: `4`, or any number from 2 to 64",
    default: |_| "4",
    accepts: |v| in_range(v, 2..=64),
    implied: true,
    ..MixerOption::DEFAULT
};

/// Whether there are biases.
pub(super) const CONV_BIAS: MixerOption = MixerOption {
    name: "conv_bias",
    help: "whether the short convolution has biases: `true` or `false`",
    default: |_| "true",
    ..FALSE_OR_TRUE
};

/// Weights `(E, taps)`, the last of which multiplies the current token, and biases `(E)`.
pub(super) struct ShortConv {
    w: Tensor,
    b: Option<Tensor>,
}

impl ShortConv {
    pub fn new(width: usize, params: &Params) -> Result<Self> {
        Self::with_taps(TAPS, width, params)
    }

    /// [`Self::of`] with normal initial weights, whose sum over the taps has this variance, and biases of 0.
    pub fn with_variance(variance: f64, spec: &MixerSpec, width: usize, params: &Params) -> Result<Self> {
        let taps = spec.parsed(CONV_WIDTH.name).unwrap_or(TAPS);
        let std = (variance / taps as f64).sqrt();
        Ok(Self {
            w: params.get("conv_w", (width, taps), Init::Normal(std))?,
            b: Some(params.get("conv_b", width, Init::Constant(0.0))?),
        })
    }

    /// Convolution with the taps and biases that the options of `spec` give it.
    pub fn of(spec: &MixerSpec, width: usize, params: &Params) -> Result<Self> {
        let taps = spec.parsed(CONV_WIDTH.name).unwrap_or(TAPS);
        let biased = spec.option(CONV_BIAS.name) != Some("false");
        Self::build(taps, biased, width, params)
    }

    pub fn with_taps(taps: usize, width: usize, params: &Params) -> Result<Self> {
        Self::build(taps, true, width, params)
    }

    fn build(taps: usize, biased: bool, width: usize, params: &Params) -> Result<Self> {
        let edge = (taps as f64).powf(-0.5);
        let edge = || Init::Uniform(-edge, edge);
        let w = params.get("conv_w", (width, taps), edge())?;
        let b = biased.then(|| params.get("conv_b", width, edge())).transpose()?;
        Ok(Self { w, b })
    }

    /// `(batch, seq_len, E)` to the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::causal_conv1d(x, &self.w, self.b.as_ref())
    }

    /// Past inputs that an output reads, taps - 1.
    fn past(&self) -> usize {
        self.w.dims()[1] - 1
    }

    /// Initial window of past inputs, zeros `(batch, taps - 1, E)`.
    pub fn window(&self, batch: usize) -> Result<Tensor> {
        let shape = (batch, self.past(), self.w.dim(0)?);
        Tensor::zeros(shape, self.w.dtype(), self.w.device())
    }

    /// Window behind x `(batch, seq_len, E)`, the first inputs of each sequence.
    pub fn window_behind(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, seq_len, _) = x.dims3()?;
        let first = self.window(batch)?;
        Tensor::cat(&[&first, &x.to_dtype(first.dtype())?], 1)?.narrow(1, seq_len, self.past())?.contiguous()
    }

    /// Elements of [`Self::window`] per sequence.
    pub fn state_size(&self) -> usize {
        self.past() * self.w.dims()[0]
    }

    /// Output `(batch, E)` for the current input `(batch, E)` and the window of past ones, and the next window.
    pub fn step(&self, x_t: &Tensor, window: &Tensor) -> Result<(Tensor, Tensor)> {
        let inputs = Tensor::cat(&[window, &x_t.unsqueeze(1)?], 1)?; // (batch, taps, E)
        let w = self.w.t()?.unsqueeze(0)?; // (1, taps, E)
        let y = inputs.broadcast_mul(&w)?.sum(1)?;
        let y = match &self.b {
            Some(b) => y.broadcast_add(b)?,
            None => y,
        };
        Ok((y, inputs.narrow(1, 1, self.past())?))
    }
}
