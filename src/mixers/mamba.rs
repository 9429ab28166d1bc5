//! Mamba, the layer around S6 as its authors train it (Gu & Dao 2023): doubled width, a short
//! convolution with SiLU before the state and a SiLU gate behind it.

use super::gated_block::WideInput;
use super::state_space::{step_rank, zero_state, Selective, DT_RANK};
use super::{
    Core, Entry, Family, Growth, Mixer, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State,
};
use crate::ltv::Inner;
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "mamba",
    equation: "y = W ((S6(x) + D x) ⊙ silu(z)), x = silu(conv(W_x u)), z = W_z u",
    cite: "Gu & Dao 2023",
    variants: &["block"],
    dsf: "N = n E, behind its convolution",
    expands: true,
    widens: true,
    released: ReleasedBlock::STATE_SPACE,
    options: &[DT_RANK],
    growth: Growth::STATE_SPACE,
    stem: "mamba",
    own_init: &["a_log", "bdt", "conv_b", "conv_w", "dskip", "wdt"],
    uncounted: &["a_log", "conv_w"],
    work: |spec| {
        let (width, n) = (spec.inner_width(), spec.d_state);
        Some(MixerWork::new(
            Core::SelectiveScan,
            [width, n],
            width * (3 * spec.d_model + 2 * step_rank(spec) + 2 * n),
        ))
    },
    build: |spec, params| Ok(Box::new(Mamba::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct Mamba {
    /// To x, and to the gate z.
    input: WideInput,
    core: Selective,
    dskip: Tensor,
    wout: Tensor,
}

impl Mamba {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let input = WideInput::new(spec, params, true)?;
        let (d, width) = (spec.d_model, input.width);
        Ok(Self {
            input,
            core: Selective::new(spec, width, true, params)?,
            dskip: params.get("dskip", width, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
        })
    }

    /// o, x and the gate z at the queried positions, `(.., E)`, to `(.., d)`.
    fn finish(&self, o: &Tensor, x: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let y = ops::add_scaled(o, x, &self.dskip)?;
        linear(&(y * ops::silu(gate)?)?, &self.wout, None)
    }
}

impl Mixer for Mamba {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, gate) = self.input.drive(u, cx)?;
        let (drive, selected) = self.core.drive(&ops::silu(&x)?, cx)?;
        self.finish(&drive.scan(cx)?, &selected, &gate)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.core.wb.elem_count() + self.input.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let (x, gate) = self.input.drive(&u.unsqueeze(0)?, &Cx::eval())?;
        let (drive, x) = self.core.drive(&ops::silu(&x)?, &Cx::eval())?;
        let gate = ops::silu(&gate.squeeze(0)?)?;
        let skip = gate.broadcast_mul(&self.dskip)?;
        let mut system = drive.system(None, skip, Some(&self.wout))?;
        system.read = system.read.broadcast_mul(&gate.unsqueeze(2)?)?;
        Ok(Some(Inner {
            system,
            input: x.squeeze(0)?,
            around: "driven by x = silu(conv4(W_x u)), a shift register of three steps and a nonlinearity in front of \
                     it; C_i and D_i hold the gate behind it, silu(W_z u), and the output projection",
        }))
    }
}

impl Recurrent for Mamba {
    /// The state `(batch, E, n)` and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = zero_state(&self.core.wb, batch)?;
        state.0.push(self.input.conv.window(batch)?);
        Ok(state)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [x, gate, window] = self.input.drive_step(x_t, &state.0[1])?;
        let x = ops::silu(&x)?.unsqueeze(1)?;
        let (drive, _) = self.core.drive(&x, &Cx::eval())?;
        let o = drive.step(state)?;
        state.0.push(window);
        self.finish(&o, &x, &gate.unsqueeze(1)?)?.squeeze(1)
    }
}
