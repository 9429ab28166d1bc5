//! Expanded width, a short convolution before a recurrence and a gate after it: the input stage of Mamba, and the block
//! that the released code puts around its RNNs,
//!
//! y = W_out (gelu(g) ⊙ recurrence(conv(x))),  g, x = split(W_in u)

use super::short_conv::ShortConv;
use super::{Core, MixerOption, MixerSpec, MixerWork, State, FALSE_OR_TRUE};
use crate::nn::{linear, project, Cx, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Whether the projections into and out of the block have biases.
pub(super) const BIAS: MixerOption = MixerOption {
    name: "bias",
    help: "whether the projections into and out of the block have biases: `false` or `true`",
    ..FALSE_OR_TRUE
};

/// Projections of u to the input x of a recurrence, after a short convolution, and to the gate of its output.
pub(super) struct GatedInput {
    /// Both projections, stacked, `(2E, d)`.
    win: Tensor,
    /// Their biases, `(2E)`.
    bin: Option<Tensor>,
    /// Whether the rows for x come first.
    input_first: bool,
    pub conv: ShortConv,
    /// Inner width E, 2d by default.
    pub width: usize,
}

impl GatedInput {
    pub fn new(spec: &MixerSpec, params: &Params, input_first: bool) -> Result<Self> {
        let (d, width) = (spec.d_model, spec.inner_width());
        Ok(Self {
            win: params.weight("win", (2 * width, d), spec.input_std)?,
            bin: spec.has(BIAS.name).then(|| params.bias("bin", 2 * width, d)).transpose()?,
            input_first,
            conv: ShortConv::of(spec, width, params)?,
            width,
        })
    }

    /// Projections to x and to the gate, `(E, d)` each, and their biases.
    fn halves(&self) -> Result<[(Tensor, Option<Tensor>); 2]> {
        let halves = |rows: &Tensor| ops::split(rows, 0, &[self.width; 2]);
        let w = halves(&self.win)?;
        let b = self.bin.as_ref().map(halves).transpose()?;
        let half = |i: usize| (w[i].clone(), b.as_ref().map(|b| b[i].clone()));
        Ok(if self.input_first { [half(0), half(1)] } else { [half(1), half(0)] })
    }

    /// x `(batch, seq_len, E)`, convolved, and the gate before its activation at the queried positions,
    /// `(batch, rows, E)`.
    pub fn project(&self, u: &Tensor, cx: &Cx) -> Result<(Tensor, Tensor)> {
        let (x, gate) = self.maps(u, cx)?;
        Ok((self.conv.forward(&x)?, gate))
    }

    /// [`Self::project`] with x in front of the convolution.
    pub fn maps(&self, u: &Tensor, cx: &Cx) -> Result<(Tensor, Tensor)> {
        let halves = self.halves()?;
        let [input, gate] = halves.each_ref().map(|(w, b)| (w, b.as_ref()));
        let mut maps = project(u, &[input], &[gate], cx)?;
        Ok((maps.all.remove(0), maps.queried.remove(0)))
    }

    /// [`Self::project`] for one token `(batch, d)`: x and the gate, `(batch, E)` each, and the new window of the
    /// convolution.
    pub fn step(&self, x_t: &Tensor, window: &Tensor) -> Result<[Tensor; 3]> {
        let [x, gate] = self.halves()?.map(|(w, b)| linear(x_t, &w, b.as_ref()));
        let (x, window) = self.conv.step(&x?, window)?;
        Ok([x, gate?, window])
    }
}

/// The block of the released RNNs.
pub(super) struct GatedBlock {
    pub input: GatedInput,
    /// Output projection `(d, E)`.
    pub wout: Tensor,
}

/// Arithmetic of the block around a recurrence with `gates` dense gates of `(E, E)`.
pub(super) fn work(spec: &MixerSpec, gates: usize) -> MixerWork {
    let width = spec.inner_width();
    let projections = width * (3 * spec.d_model + gates * width);
    MixerWork::new(Core::GatedScan, [width, 1], projections)
}

impl GatedBlock {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let input = GatedInput::new(spec, params, false)?;
        let shape = (spec.d_model, input.width);
        Ok(Self { wout: params.weight("wout", shape, spec.rnn_output_std)?, input })
    }

    /// y `(.., d)` for the state h, the output gate's pre-activation, if there is one, and the gate, `(.., E)` each.
    pub fn readout(&self, h: &Tensor, output: Option<&Tensor>, gate: &Tensor) -> Result<Tensor> {
        linear(&ops::gated_readout(h, gate, output)?, &self.wout, None)
    }

    /// Initial state: h `(batch, E)` and the window of past inputs `(batch, 3, E)`.
    pub fn zero_state(&self, batch: usize) -> Result<State> {
        let like = &self.wout;
        let h = Tensor::zeros((batch, self.input.width), like.dtype(), like.device())?;
        Ok(State::new(vec![h, self.input.conv.window(batch)?]))
    }

    /// Elements of [`Self::zero_state`] per sequence.
    pub fn state_size(&self) -> usize {
        self.input.width + self.input.conv.state_size()
    }
}
