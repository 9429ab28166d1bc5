//! The wrapping that the released code gives its RNNs: doubled width, a short convolution before
//! the recurrence and a GELU gate behind it.

use super::short_conv::ShortConv;
use super::{Core, MixerSpec, MixerWork, State};
use crate::nn::{linear, project, Cx, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// u ↦ `wout (gelu(g) ⊙ recurrence(conv(x)))` with `g, x = split(win u)`.
pub(super) struct GatedBlock {
    win: Tensor,
    conv: ShortConv,
    wout: Tensor,
    /// Inner width E, usually 2d.
    pub width: usize,
}

/// The arithmetic of a recurrence in this block whose `gates` gates each read all of its input.
pub(super) fn work(spec: &MixerSpec, gates: usize) -> MixerWork {
    let width = spec.inner_width();
    let projections = width * (3 * spec.d_model + gates * width);
    MixerWork::new(Core::GatedScan, [width, 1], projections)
}

impl GatedBlock {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, width) = (spec.d_model, spec.inner_width());
        Ok(Self {
            win: params.weight("win", (2 * width, d), spec.input_std)?,
            conv: ShortConv::new(width, params)?,
            wout: params.weight("wout", (d, width), spec.rnn_output_std)?,
            width,
        })
    }

    /// The rows of `win` for the recurrence's input and for the gate.
    fn halves(&self) -> Result<[Tensor; 2]> {
        let half = |first: usize| self.win.narrow(0, first, self.width);
        Ok([half(self.width)?, half(0)?])
    }

    /// The recurrence's input `(batch, seq_len, E)`, and the gate's `(batch, rows, E)` at the
    /// queried positions.
    pub fn drive(&self, u: &Tensor, cx: &Cx) -> Result<(Tensor, Tensor)> {
        let [input, gate] = self.halves()?;
        let mut maps = project(u, &[(&input, None)], &[(&gate, None)], cx)?;
        let x = self.conv.forward(&maps.all[0])?;
        Ok((x, maps.queried.remove(0)))
    }

    /// The recurrence's output `h` `(.., E)`, times σ(`output`) if given, gated and projected.
    pub fn finish(&self, h: &Tensor, output: Option<&Tensor>, gate: &Tensor) -> Result<Tensor> {
        linear(&ops::gated_readout(h, gate, output)?, &self.wout, None)
    }

    /// State before the first token: h `(batch, E)` and the window `(batch, 3, E)` of past inputs.
    pub fn zero_state(&self, batch: usize) -> Result<State> {
        let h = Tensor::zeros((batch, self.width), self.win.dtype(), self.win.device())?;
        Ok(State(vec![h, self.conv.window(batch)?]))
    }

    /// Size of [`Self::zero_state`] a sequence.
    pub fn state_size(&self) -> usize {
        self.width + self.conv.state_size()
    }

    /// [`Self::drive`] for one token `(batch, d)`: the input and the gate, `(batch, E)` each, and
    /// the moved window.
    pub fn drive_step(&self, x_t: &Tensor, window: &Tensor) -> Result<[Tensor; 3]> {
        let [input, gate] = self.halves()?;
        let (x, window) = self.conv.step(&linear(x_t, &input, None)?, window)?;
        Ok([x, linear(x_t, &gate, None)?, window])
    }
}
