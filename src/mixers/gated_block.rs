//! The wrapping that the released code gives its RNNs: doubled width, a short convolution before
//! the recurrence and a GELU gate behind it.

use super::State;
use crate::config::ModelConfig;
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Taps of the causal convolution.
const KERNEL: usize = 4;

/// u ↦ `wout (gelu(g) ⊙ recurrence(conv(x)))` with `g, x = split(win u)`.
pub(super) struct GatedBlock {
    win: Tensor,
    conv_w: Tensor,
    conv_b: Tensor,
    wout: Tensor,
    /// Inner width E = 2d.
    pub width: usize,
}

impl GatedBlock {
    pub fn new(model: &ModelConfig, params: &Params) -> Result<Self> {
        let (d, width) = (model.d_model, 2 * model.d_model);
        let edge = || Init::Uniform(-0.5, 0.5); // 1/√taps
        Ok(Self {
            win: params.get("win", (2 * width, d), Init::Normal(0.02))?,
            conv_w: params.get("conv_w", (width, KERNEL), edge())?,
            conv_b: params.get("conv_b", width, edge())?,
            wout: params.get("wout", (d, width), Init::Normal(0.02))?,
            width,
        })
    }

    /// The weights of the recurrence's input and of the gate.
    fn halves(&self) -> Result<[Tensor; 2]> {
        let half = |first: usize| self.win.narrow(0, first, self.width);
        Ok([half(self.width)?, half(0)?])
    }

    /// The recurrence's input `(batch, seq_len, E)`, and the gate's `(batch, rows, E)` at the rows
    /// wanted.
    pub fn drive(&self, u: &Tensor, cx: &Cx) -> Result<(Tensor, Tensor)> {
        let [input, gate] = self.halves()?;
        let mut maps = project(u, &[(&input, None)], &[(&gate, None)], cx)?;
        let raw = &maps.everywhere[0];
        let x = ops::causal_conv1d(raw, &self.conv_w, Some(&self.conv_b))?;
        Ok((x, maps.read.remove(0)))
    }

    /// The recurrence's output `h` `(.., E)`, times σ(`output`) if given, gated and projected.
    pub fn finish(&self, h: &Tensor, output: Option<&Tensor>, gate: &Tensor) -> Result<Tensor> {
        linear(&ops::gated_readout(h, gate, output)?, &self.wout, None)
    }

    /// State before the first token: h `(batch, E)` and the window `(batch, 3, E)` of past inputs.
    pub fn zero_state(&self, batch: usize) -> Result<State> {
        let zeros = |shape: &[usize]| Tensor::zeros(shape, self.win.dtype(), self.win.device());
        let window = zeros(&[batch, KERNEL - 1, self.width])?;
        Ok(State(vec![zeros(&[batch, self.width])?, window]))
    }

    /// Size of [`Self::zero_state`] a sequence.
    pub fn state_size(&self) -> usize {
        KERNEL * self.width
    }

    /// [`Self::drive`] for one token `(batch, d)`: the input and the gate, `(batch, E)` each, and
    /// the moved window.
    pub fn drive_step(&self, x_t: &Tensor, window: &Tensor) -> Result<[Tensor; 3]> {
        let [input, gate] = self.halves()?;
        let raw = linear(x_t, &input, None)?.unsqueeze(1)?;
        let seen = Tensor::cat(&[window, &raw], 1)?; // (batch, KERNEL, E)
        let taps = self.conv_w.t()?.unsqueeze(0)?;
        let x = seen
            .broadcast_mul(&taps)?
            .sum(1)?
            .broadcast_add(&self.conv_b)?;
        let window = seen.narrow(1, 1, KERNEL - 1)?;
        Ok([x, linear(x_t, &gate, None)?, window])
    }
}
