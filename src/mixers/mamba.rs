//! Mamba (Gu & Dao 2023): S6 at an expanded width E, with a short convolution and SiLU before it and a SiLU gate after
//! it,
//!
//! y = W_out ((S6(x) + D ⊙ x) ⊙ silu(z)),  x = silu(conv(W_x u)),  z = W_z u

use super::gated_block::{GatedInput, BIAS};
use super::short_conv::{CONV_BIAS, CONV_WIDTH};
use super::state_space::{dt_rank, zero_state, SelectiveProjection, BCDT_NORM, BCDT_NORM_EPS, DISCRETIZATION, DT_RANK};
use super::{
    Core, Entry, Family, Growth, Mixer, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State, StateNormPlace,
};
use crate::ltv::Inner;
use crate::nn::{linear, Cx, Init, Params, Scheme};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "mamba",
    equation: "y = W ((S6(x) + D x) ⊙ silu(z)), x = silu(conv(W_x u)), z = W_z u",
    cite: "Gu & Dao 2023",
    variants: &["block"],
    dsf: "N = n E, after its convolution",
    expands: true,
    widens: true,
    released: ReleasedBlock::STATE_SPACE,
    options: &[DT_RANK, DISCRETIZATION, CONV_WIDTH, CONV_BIAS, BIAS, BCDT_NORM, BCDT_NORM_EPS],
    state_norm: StateNormPlace::Free(|spec| spec.inner_width()),
    growth: Growth::STATE_SPACE,
    stem: "mamba",
    authors_init: Some(Scheme::Mamba),
    own_init: &["a_log", "bdt", "conv_b", "conv_w", "dskip", "wdt"],
    uncounted: &["a_log", "conv_w"],
    work: |spec| {
        let (width, n) = (spec.inner_width(), spec.d_state);
        Some(MixerWork::new(Core::SelectiveScan, [width, n], width * (3 * spec.d_model + 2 * dt_rank(spec) + 2 * n)))
    },
    build: |spec, params| Ok(Box::new(Mamba::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct Mamba {
    /// Projections to x and z, and the convolution.
    input: GatedInput,
    selective: SelectiveProjection,
    /// D, `(E)`.
    dskip: Tensor,
    wout: Tensor,
    bout: Option<Tensor>,
}

impl Mamba {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let input = GatedInput::new(spec, params, true)?;
        let (d, width) = (spec.d_model, input.width);
        Ok(Self {
            input,
            selective: SelectiveProjection::new(spec, width, true, params)?,
            dskip: params.get("dskip", width, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
            bout: spec.has(BIAS.name).then(|| params.bias("bout", d, width)).transpose()?,
        })
    }

    /// y `(.., d)` for o, x and z at the queried positions, `(.., E)` each.
    fn output(&self, o: &Tensor, x: &Tensor, z: &Tensor) -> Result<Tensor> {
        let y = ops::add_scaled(o, x, &self.dskip)?;
        linear(&ops::silu_gate(&y, z)?, &self.wout, self.bout.as_ref())
    }
}

impl Mixer for Mamba {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, z) = self.input.project(u, cx)?; // (batch, seq_len, E), (batch, rows, E)
        let (inputs, x) = self.selective.project(&ops::silu(&x)?, cx)?;
        self.output(&inputs.scan(cx)?, &x, &z)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.selective.wb.elem_count() + self.input.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let (x, z) = self.input.project(&u.unsqueeze(0)?, &Cx::eval())?;
        let (inputs, x) = self.selective.project(&ops::silu(&x)?, &Cx::eval())?;
        let gate = ops::silu(&z.squeeze(0)?)?;
        let skip = gate.broadcast_mul(&self.dskip)?;
        let (mut system, x) = (inputs.system(None, skip, Some(&self.wout))?, x.squeeze(0)?);
        if let Some(norm) = &self.selective.norm {
            system = norm.after(system, &x)?;
        }
        system.read = system.read.broadcast_mul(&gate.unsqueeze(2)?)?;
        Ok(Some(Inner {
            system: system.with_offset(self.bout.as_ref())?,
            input: x,
            around: "driven by x = silu(conv(W_x u)), a shift register of past tokens and a nonlinearity before \
                     it; C_i and D_i hold the gate after it, silu(W_z u), the norm if there is one, and the output projection",
        }))
    }
}

impl Recurrent for Mamba {
    /// H `(batch, E, n)` and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = zero_state(&self.selective.wb, batch)?;
        state.0.push(self.input.conv.window(batch)?);
        Ok(state)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [x, z, window] = self.input.step(x_t, &state.0[1])?;
        let x = ops::silu(&x)?.unsqueeze(1)?;
        let (inputs, _) = self.selective.project(&x, &Cx::eval())?;
        let o = inputs.step(state)?;
        state.0.push(window);
        self.output(&o, &x, &z.unsqueeze(1)?)?.squeeze(1)
    }

    fn read(&self, u: &Tensor) -> Result<(Tensor, State)> {
        let (x, z) = self.input.maps(u, &Cx::eval())?;
        let window = self.input.conv.window_after(&x)?;
        let (inputs, x) = self.selective.project(&ops::silu(&self.input.conv.forward(&x)?)?, &Cx::eval())?;
        let (o, mut state) = inputs.read()?;
        state.0.push(window);
        Ok((self.output(&o, &x, &z)?, state))
    }
}
