//! Gated state space layer (Mehta et al. 2022): S4D at a reduced width inside a gated unit of an expanded width,
//!
//! y = W_out ((W_y S4D(x)) ⊙ gelu(W_v u)),  x = gelu(W_x u)
//!
//! The authors use DSS without its softmax, which is S4D, and share A among channels; here each channel has its own.
//! Their gated unit has the width 4 d, which is `--expand 4`.

use super::diagonal::{DiagonalSsm, Discretisation, Start};
use super::{
    in_range, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State,
};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "gss",
    equation: "y = W ((W_y S4D(x)) ⊙ gelu(W_v u)), x = gelu(W_x u)",
    cite: "Mehta et al. 2022",
    dsf: "no (gated between two maps)",
    expands: true,
    widens: true,
    released: ReleasedBlock::STATE_SPACE,
    options: &[MixerOption {
        name: "width",
        help: "channels of the state space model: `auto` is d/4, as published, up to 65536",
        default: |_| "auto",
        accepts: |v| v == "auto" || in_range(v, 1..=1 << 16),
        ..MixerOption::DEFAULT
    }],
    growth: Growth::Exact { zeroed: &["c_re", "c_im"], scaled: &[] },
    stem: "gss",
    own_init: &["a_im", "a_re_log", "c_im", "c_re", "dskip", "log_dt"],
    uncounted: &["a_im", "a_re_log", "c_im", "c_re"],
    work: |spec| {
        let (d, width, inner) = (spec.d_model, width(spec), spec.inner_width());
        Some(MixerWork::new(Core::LongConvolution, [width, 2 * spec.d_state], d * width + inner * (2 * d + width)))
    },
    build: |spec, params| Ok(Box::new(Gss::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

/// Channels of the state space model.
fn width(spec: &MixerSpec) -> usize {
    spec.parsed("width").unwrap_or(spec.d_model.div_ceil(4))
}

struct Gss {
    /// Projection to the input of the state space model, `(width, d)`.
    wx: Tensor,
    /// Projection to the gate, `(E, d)`.
    wv: Tensor,
    /// Projection of the output of the state space model, `(E, width)`.
    wy: Tensor,
    wout: Tensor,
    ssm: DiagonalSsm,
    /// D, `(width)`.
    dskip: Tensor,
}

impl Gss {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, width, inner) = (spec.d_model, width(spec), spec.inner_width());
        let narrow = MixerSpec { d_model: width, ..*spec };
        Ok(Self {
            wx: params.weight("wx", (width, d), spec.input_std)?,
            wv: params.weight("wv", (inner, d), spec.input_std)?,
            wy: params.weight("wy", (inner, width), spec.input_std)?,
            wout: params.weight("wout", (d, inner), spec.output_std)?,
            ssm: DiagonalSsm::new(&narrow, Start::Linear, Discretisation::Zoh, params)?,
            dskip: params.get("dskip", width, Init::Normal(1.0))?,
        })
    }

    /// y `(.., d)` for the output o of the state space model, x, and W_v u at the same positions.
    fn readout(&self, o: &Tensor, x: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let o = linear(&ops::add_scaled(o, x, &self.dskip)?, &self.wy, None)?;
        linear(&(o * ops::gelu(gate)?)?, &self.wout, None)
    }
}

impl Mixer for Gss {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let maps = project(u, &[(&self.wx, None)], &[(&self.wv, None)], cx)?;
        let x = ops::gelu(&maps.all[0])?; // (batch, seq_len, width)
        let o = ops::long_conv(&x, &self.ssm.kernel(u.dim(1)?)?)?;
        self.readout(&cx.select(&o)?, &cx.select(&x)?, &maps.queried[0])
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.ssm.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "the input of its state is a GELU of a projection, and a gate stands between two projections of its output"
    }
}

impl Recurrent for Gss {
    fn init(&self, batch: usize) -> Result<State> {
        self.ssm.zero_state(batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let x = ops::gelu(&linear(x_t, &self.wx, None)?)?;
        let (o, h) = self.ssm.step(&x, &state.0[0])?;
        *state = State::new(vec![h]);
        self.readout(&o, &x, &linear(x_t, &self.wv, None)?)
    }
}
