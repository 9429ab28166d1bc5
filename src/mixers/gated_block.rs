//! Doubled width and a short convolution before a recurrence, as in Mamba; and the wrapping that the released code gives
//! its RNNs, which has a GELU gate behind it too.

use super::short_conv::ShortConv;
use super::{Core, MixerSpec, MixerWork, State};
use crate::nn::{linear, project, Cx, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Two maps of u to an inner width E: one leads through a short convolution into a recurrence, the other gates its
/// output.
pub(super) struct WideInput {
    /// Rows of both maps.
    win: Tensor,
    /// Whether those of the recurrence's input come first.
    input_first: bool,
    pub conv: ShortConv,
    /// Inner width E, usually 2d.
    pub width: usize,
}

impl WideInput {
    pub fn new(spec: &MixerSpec, params: &Params, input_first: bool) -> Result<Self> {
        let (d, width) = (spec.d_model, spec.inner_width());
        Ok(Self {
            win: params.weight("win", (2 * width, d), spec.input_std)?,
            input_first,
            conv: ShortConv::new(width, params)?,
            width,
        })
    }

    /// The rows of `win` for the recurrence's input and for the gate.
    fn halves(&self) -> Result<[Tensor; 2]> {
        let half = |first: bool| {
            let start = if first { 0 } else { self.width };
            self.win.narrow(0, start, self.width)
        };
        Ok([half(self.input_first)?, half(!self.input_first)?])
    }

    /// The recurrence's input `(batch, seq_len, E)`, and the gate's `(batch, rows, E)` at the
    /// queried positions.
    pub fn drive(&self, u: &Tensor, cx: &Cx) -> Result<(Tensor, Tensor)> {
        let [input, gate] = self.halves()?;
        let mut maps = project(u, &[(&input, None)], &[(&gate, None)], cx)?;
        let x = self.conv.forward(&maps.all[0])?;
        Ok((x, maps.queried.remove(0)))
    }

    /// [`Self::drive`] for one token `(batch, d)`: the input and the gate, `(batch, E)` each, and
    /// the moved window.
    pub fn drive_step(&self, x_t: &Tensor, window: &Tensor) -> Result<[Tensor; 3]> {
        let [input, gate] = self.halves()?;
        let (x, window) = self.conv.step(&linear(x_t, &input, None)?, window)?;
        Ok([x, linear(x_t, &gate, None)?, window])
    }
}

/// u ↦ `wout (gelu(g) ⊙ recurrence(conv(x)))` with `g, x = split(win u)`.
pub(super) struct GatedBlock {
    pub input: WideInput,
    /// Output projection `(d, E)`.
    pub wout: Tensor,
}

/// The arithmetic of a recurrence in this block whose `gates` gates each read all of its input.
pub(super) fn work(spec: &MixerSpec, gates: usize) -> MixerWork {
    let width = spec.inner_width();
    let projections = width * (3 * spec.d_model + gates * width);
    MixerWork::new(Core::GatedScan, [width, 1], projections)
}

impl GatedBlock {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let input = WideInput::new(spec, params, false)?;
        let shape = (spec.d_model, input.width);
        Ok(Self {
            wout: params.weight("wout", shape, spec.rnn_output_std)?,
            input,
        })
    }

    /// The recurrence's output `h` `(.., E)`, times σ(`output`) if given, gated and projected.
    pub fn finish(&self, h: &Tensor, output: Option<&Tensor>, gate: &Tensor) -> Result<Tensor> {
        linear(&ops::gated_readout(h, gate, output)?, &self.wout, None)
    }

    /// State before the first token: h `(batch, E)` and the window `(batch, 3, E)` of past inputs.
    pub fn zero_state(&self, batch: usize) -> Result<State> {
        let like = &self.wout;
        let h = Tensor::zeros((batch, self.input.width), like.dtype(), like.device())?;
        Ok(State(vec![h, self.input.conv.window(batch)?]))
    }

    /// Size of [`Self::zero_state`] a sequence.
    pub fn state_size(&self) -> usize {
        self.input.width + self.input.conv.state_size()
    }
}
