//! S4D (Gu et al. 2022): a diagonal time-invariant state space model per channel, trained as a convolution as long as
//! the sequence. Its symbols are those of [`diagonal`](super::diagonal). The first half of a variant's name is its
//! initial A (S4D-Lin or Inv), unless the option `start` gives another, and the second its rule of discretisation.

use super::diagonal::{DiagonalSsm, Discretisation, Start};
use super::{Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State};
use crate::ltv::Ltv;
use crate::nn::{Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "s4d",
    equation: "h_i = Ā h_{i-1} + B̄ u_i, y_i = 2 Re(C h_i) + D u_i per channel, A diagonal",
    cite: "Gu et al. 2022",
    variants: &["lin_zoh", "inv_zoh", "lin_bilinear", "inv_bilinear", "lin_euler", "inv_euler"],
    dsf: "N = 2n d",
    expands: true,
    released: ReleasedBlock::CHANNEL_BY_CHANNEL,
    options: &[MixerOption {
        name: "start",
        help: "initial A: that of the `variant`'s name, or `legs` (S4D-LegS) or `real` (S4D-Real)",
        default: |_| "variant",
        accepts: |v| ["variant", "legs", "real"].contains(&v),
        implied: true,
        ..MixerOption::DEFAULT
    }],
    growth: Growth::Exact { zeroed: &["c_re", "c_im"], scaled: &[] },
    stem: "s4d",
    own_init: &["a_im", "a_re_log", "c_im", "c_re", "dskip", "log_dt"],
    uncounted: &["a_im", "a_re_log", "c_im", "c_re"],
    work: |spec| Some(MixerWork::new(Core::LongConvolution, [spec.d_model, 2 * spec.d_state], 0)),
    build: |spec, params| Ok(Box::new(S4d::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct S4d {
    ssm: DiagonalSsm,
    /// D, `(d)`.
    dskip: Tensor,
}

impl S4d {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (start, rule) = spec.variant.split_once('_').unwrap_or((spec.variant, "zoh"));
        let start = match (spec.option("start"), start) {
            (Some("legs"), _) => Start::Legs,
            (Some("real"), _) => Start::Real,
            (_, "inv") => Start::Inverse,
            _ => Start::Linear,
        };
        let discretisation = match rule {
            "bilinear" => Discretisation::Bilinear,
            "euler" => Discretisation::Euler,
            _ => Discretisation::Zoh,
        };
        Ok(Self {
            ssm: DiagonalSsm::new(spec, start, discretisation, params)?,
            dskip: params.get("dskip", spec.d_model, Init::Normal(1.0))?,
        })
    }
}

impl Mixer for S4d {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let y = ops::long_conv(u, &self.ssm.kernel(u.dim(1)?)?)?;
        ops::add_scaled(&cx.select(&y)?, &cx.select(u)?, &self.dskip)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.ssm.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let (seq_len, d) = u.dims2()?;
        let eye = Tensor::eye(d, u.dtype(), u.device())?;
        Ok(Some(Ltv {
            value: Some(Tensor::cat(&[&eye, &eye], 0)?),
            output: Some(Tensor::cat(&[&eye, &eye], 1)?),
            direct: Some(eye.broadcast_mul(&self.dskip)?),
            ..self.ssm.system(seq_len)?
        }))
    }
}

impl Recurrent for S4d {
    fn init(&self, batch: usize) -> Result<State> {
        self.ssm.zero_state(batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (y, h) = self.ssm.step(x_t, &state.0[0])?;
        *state = State::new(vec![h]);
        ops::add_scaled(&y, x_t, &self.dskip)
    }
}
