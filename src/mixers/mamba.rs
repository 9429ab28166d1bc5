//! Mamba, the layer around S6 as its authors train it (Gu & Dao 2023): doubled width, a short
//! convolution with SiLU before the state and a SiLU gate behind it.

use super::short_conv::ShortConv;
use super::state_space::{step_rank, Selective, DT_RANK};
use super::{Core, Entry, Family, Mixer, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "mamba",
    equation: "y = W ((S6(x) + D x) ⊙ silu(z)), x = silu(conv(W_x u)), z = W_z u",
    cite: "Gu & Dao 2023",
    variants: &["block"],
    dsf: "no (none is derived here)",
    heads: false,
    expands: true,
    widens: true,
    rotary: false,
    family: Family::StateSpace,
    released: ReleasedBlock::STATE_SPACE,
    options: &[DT_RANK],
    stem: "mamba",
    work: |spec| {
        let (width, n) = (spec.inner_width(), spec.d_state);
        Some(MixerWork::new(
            Core::SelectiveScan,
            [width, n],
            width * (3 * spec.d_model + 2 * step_rank(spec) + 2 * n),
        ))
    },
    build: |spec, params| Ok(Box::new(Mamba::new(spec, params)?)),
};

struct Mamba {
    /// Rows of x, then of z.
    win: Tensor,
    conv: ShortConv,
    core: Selective,
    dskip: Tensor,
    wout: Tensor,
    width: usize,
}

impl Mamba {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, width) = (spec.d_model, spec.inner_width());
        Ok(Self {
            win: params.weight("win", (2 * width, d), spec.input_std)?,
            conv: ShortConv::new(width, params)?,
            core: Selective::new(spec, width, true, params)?,
            dskip: params.get("dskip", width, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
            width,
        })
    }

    /// The rows of `win` for x and for the gate z.
    fn halves(&self) -> Result<[Tensor; 2]> {
        let half = |first: usize| self.win.narrow(0, first, self.width);
        Ok([half(0)?, half(self.width)?])
    }

    /// o, x and the gate z at the queried positions, `(.., E)`, to `(.., d)`.
    fn finish(&self, o: &Tensor, x: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let y = ops::add_scaled(o, x, &self.dskip)?;
        linear(&(y * ops::silu(gate)?)?, &self.wout, None)
    }
}

impl Mixer for Mamba {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let [input, gate] = self.halves()?;
        let maps = project(u, &[(&input, None)], &[(&gate, None)], cx)?;
        let x = ops::silu(&self.conv.forward(&maps.all[0])?)?;
        let (drive, selected) = self.core.drive(&x, cx)?;
        self.finish(&drive.scan(cx)?, &selected, &maps.queried[0])
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.core.a_log.elem_count() + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }
}

impl Recurrent for Mamba {
    /// The state `(batch, E, n)` and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = self.core.zero_state(batch)?;
        state.0.push(self.conv.window(batch)?);
        Ok(state)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [input, gate] = self.halves()?;
        let (x, window) = self.conv.step(&linear(x_t, &input, None)?, &state.0[1])?;
        let x = ops::silu(&x)?.unsqueeze(1)?;
        let (drive, _) = self.core.drive(&x, &Cx::eval())?;
        let o = drive.step(state)?;
        state.0.push(window);
        let gate = linear(x_t, &gate, None)?.unsqueeze(1)?;
        self.finish(&o, &x, &gate)?.squeeze(1)
    }
}
