//! The gated state space layer (Mehta et al. 2022): a diagonal state space model over fewer channels than the input has, inside a
//! gated unit that is wider. Its authors take DSS without its softmax, which is S4D, and share A among channels; here each channel
//! has its own, as in S4D. They widen the unit to 4 d, which is `--expand 4`.

use super::diagonal::{Diagonal, Frequencies, Rule};
use super::{
    Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent,
    ReleasedBlock, State,
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
        accepts: |v| v == "auto" || v.parse::<usize>().is_ok_and(|w| (1..=1 << 16).contains(&w)),
        ..MixerOption::DEFAULT
    }],
    growth: Growth::Exact {
        zeroed: &["c_re", "c_im"],
        scaled: &[],
    },
    stem: "gss",
    own_init: &["a_im", "a_re_log", "c_im", "c_re", "dskip", "log_dt"],
    uncounted: &["a_im", "a_re_log", "c_im", "c_re"],
    work: |spec| {
        let (d, width, inner) = (spec.d_model, width(spec), spec.inner_width());
        Some(MixerWork::new(
            Core::LongConvolution,
            [width, 2 * spec.d_state],
            d * width + inner * (2 * d + width),
        ))
    },
    build: |spec, params| Ok(Box::new(Gss::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

/// Channels of the state space model.
fn width(spec: &MixerSpec) -> usize {
    let given = spec.option("width").and_then(|width| width.parse().ok());
    given.unwrap_or(spec.d_model.div_ceil(4))
}

struct Gss {
    /// To the state space model's input, `(width, d)`.
    wx: Tensor,
    /// To the gate, `(E, d)`.
    wv: Tensor,
    /// From its output to the gated unit, `(E, width)`.
    wy: Tensor,
    wout: Tensor,
    system: Diagonal,
    dskip: Tensor,
}

impl Gss {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, width, inner) = (spec.d_model, width(spec), spec.inner_width());
        let narrow = MixerSpec {
            d_model: width,
            ..*spec
        };
        Ok(Self {
            wx: params.weight("wx", (width, d), spec.input_std)?,
            wv: params.weight("wv", (inner, d), spec.input_std)?,
            wy: params.weight("wy", (inner, width), spec.input_std)?,
            wout: params.weight("wout", (d, inner), spec.output_std)?,
            system: Diagonal::new(&narrow, Frequencies::Linear, Rule::Hold, params)?,
            dskip: params.get("dskip", width, Init::Normal(1.0))?,
        })
    }

    /// y for what the state gives, x and W_v u at the same positions.
    fn finish(&self, o: &Tensor, x: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let o = linear(&ops::add_scaled(o, x, &self.dskip)?, &self.wy, None)?;
        linear(&(o * ops::gelu(gate)?)?, &self.wout, None)
    }
}

impl Mixer for Gss {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let maps = project(u, &[(&self.wx, None)], &[(&self.wv, None)], cx)?;
        let x = ops::gelu(&maps.all[0])?;
        let o = ops::long_conv(&x, &self.system.kernel(u.dim(1)?)?)?;
        self.finish(&cx.select(&o)?, &cx.select(&x)?, &maps.queried[0])
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.system.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "what drives its state is a GELU of a map of the input, and a gate stands between two maps of what the state gives"
    }
}

impl Recurrent for Gss {
    fn init(&self, batch: usize) -> Result<State> {
        self.system.zero_state(batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let x = ops::gelu(&linear(x_t, &self.wx, None)?)?;
        let (o, h) = self.system.step(&x, &state.0[0])?;
        *state = State(vec![h]);
        self.finish(&o, &x, &linear(x_t, &self.wv, None)?)
    }
}
