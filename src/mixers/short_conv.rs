//! Short causal depthwise convolution before a recurrence: y_i = b + Σ_t w_t ⊙ x_{i-taps+1+t}.

use super::{in_range, MixerOption, MixerSpec, FALSE_OR_TRUE};
use crate::nn::{Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Taps of the kernel in Mamba and Griffin.
const TAPS: usize = 4;

/// Option for the number of taps.
pub(super) const CONV_WIDTH: MixerOption = MixerOption {
    name: "conv_width",
    help: "taps of the short convolution, including the current token: `4`, or any number from 2 to 64",
    default: |_| "4",
    accepts: |v| in_range(v, 2..=64),
    implied: true,
    ..MixerOption::DEFAULT
};

/// Option for biases.
pub(super) const CONV_BIAS: MixerOption = MixerOption {
    name: "conv_bias",
    help: "whether the short convolution has biases: `true` or `false`",
    default: |_| "true",
    ..FALSE_OR_TRUE
};

/// Weights `(E, taps)` and biases `(E)`. The last tap multiplies the current token.
pub(super) struct ShortConv {
    w: Tensor,
    b: Option<Tensor>,
}

impl ShortConv {
    pub fn new(width: usize, params: &Params) -> Result<Self> {
        Self::with_taps(TAPS, width, params)
    }

    /// [`Self::of`] with biases of 0 and normally distributed initial weights, such that the sum over the taps of a
    /// channel has the given variance.
    pub fn with_variance(variance: f64, spec: &MixerSpec, width: usize, params: &Params) -> Result<Self> {
        let taps = spec.parsed(CONV_WIDTH.name).unwrap_or(TAPS);
        let std = (variance / taps as f64).sqrt();
        Ok(Self {
            w: params.get("conv_w", (width, taps), Init::Normal(std))?,
            b: Some(params.get("conv_b", width, Init::Constant(0.0))?),
        })
    }

    /// Convolution with the number of taps of the option `conv_width`, and with biases unless `conv_bias` is `false`.
    pub fn of(spec: &MixerSpec, width: usize, params: &Params) -> Result<Self> {
        let taps = spec.parsed(CONV_WIDTH.name).unwrap_or(TAPS);
        let biased = spec.option(CONV_BIAS.name) != Some("false");
        Self::build(taps, biased, width, params)
    }

    pub fn with_taps(taps: usize, width: usize, params: &Params) -> Result<Self> {
        Self::build(taps, true, width, params)
    }

    fn build(taps: usize, biased: bool, width: usize, params: &Params) -> Result<Self> {
        // The default of PyTorch's `nn.Conv1d`.
        let bound = (taps as f64).powf(-0.5);
        let init = || Init::Uniform(-bound, bound);
        let w = params.get("conv_w", (width, taps), init())?;
        let b = biased.then(|| params.get("conv_b", width, init())).transpose()?;
        Ok(Self { w, b })
    }

    /// y `(batch, seq_len, E)` for x of the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::causal_conv1d(x, &self.w, self.b.as_ref())
    }

    /// Number of past inputs that an output depends on, taps - 1.
    fn past(&self) -> usize {
        self.w.dims()[1] - 1
    }

    /// Initial window of past inputs, zeros `(batch, taps - 1, E)`.
    pub fn window(&self, batch: usize) -> Result<Tensor> {
        let shape = (batch, self.past(), self.w.dim(0)?);
        Tensor::zeros(shape, self.w.dtype(), self.w.device())
    }

    /// Window after x `(batch, seq_len, E)`, the inputs from the start of each sequence.
    pub fn window_after(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, seq_len, _) = x.dims3()?;
        let first = self.window(batch)?;
        Tensor::cat(&[&first, &x.to_dtype(first.dtype())?], 1)?.narrow(1, seq_len, self.past())?.contiguous()
    }

    /// Number of elements of the window per sequence.
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
