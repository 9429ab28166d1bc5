//! Legendre memory unit (Voelker et al. 2019) in its parallel form (Chilkuri & Eliasmith 2021): a fixed linear system
//! holds the last θ tokens as coefficients of Legendre polynomials, without feedback from the output, which the variant
//! `recurrent` ([`LmuCell`]) has,
//!
//! m_i = Ā m_{i-1} + B̄ (W_u u_i + b_u),  y_i = tanh(W_m m_i + W_x u_i + b)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | m | memory, n coefficients of each input signal | `(batch, inputs, n)` |
//! | Ā, B̄ | zero-order hold of the delay system over one token | `(n, n)`, `(n, 1)` |
//! | θ | length of the memory in tokens | option |

use super::delay_system::{inputs, theta, DelaySystem};
use super::lmu_cell::LmuCell;
use super::{in_range, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State};
use crate::nn::{linear, Cx, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "lmu",
    equation: "m_i = Ā m_{i-1} + B̄ (W_u u_i + b_u), y_i = tanh(W_m m_i + W_x u_i + b)",
    cite: "Voelker et al. 2019, Chilkuri & Eliasmith 2021",
    variants: &["parallel", "recurrent"],
    dsf: "no (a tanh around its state)",
    expands: true,
    options: &[
        MixerOption {
            name: "theta",
            help: "length of the memory in tokens, θ: `64`, from 1 to 16777216",
            default: |_| "64",
            accepts: |v| v.parse().is_ok_and(|theta: f64| (1.0..=f64::from(1 << 24)).contains(&theta)),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "inputs",
            help: "input signals per token, with n coefficients each: `1` as published, up to 4096",
            default: |_| "1",
            accepts: |v| in_range(v, 1..=4096),
            ..MixerOption::DEFAULT
        },
    ],
    growth: Growth::No("Ā is dense: every coefficient depends on the order n of the series"),
    stem: "lmu",
    own_init: &["eh", "em", "ex", "uh", "um", "ux"],
    work: |spec| {
        // Sequential with its recurrent path: no throughput of the machine bounds its time.
        if is_recurrent(spec) {
            return None;
        }
        let (d, inputs, n) = (spec.d_model, inputs(spec), spec.d_state);
        Some(MixerWork::new(Core::LongConvolution, [inputs, n], d * (inputs + inputs * n + d)))
    },
    build: |spec, params| match is_recurrent(spec) {
        true => Ok(Box::new(LmuCell::new(spec, params)?)),
        false => Ok(Box::new(Lmu::new(spec, params)?)),
    },
    ..Entry::of(Family::StateSpace)
};

fn is_recurrent(spec: &MixerSpec) -> bool {
    spec.variant == "recurrent"
}

struct Lmu {
    /// Projection to the input signals, `(inputs, d)`.
    wu: Tensor,
    bu: Tensor,
    /// Projection of the memory, the coefficients of one signal side by side, `(d, inputs · n)`.
    wm: Tensor,
    wx: Tensor,
    bout: Tensor,
    delay: DelaySystem,
}

impl Lmu {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, inputs, n) = (spec.d_model, inputs(spec), spec.d_state);
        Ok(Self {
            wu: params.weight("wu", (inputs, d), spec.input_std)?,
            bu: params.bias("bu", inputs, d)?,
            wm: params.weight("wm", (d, inputs * n), spec.input_std)?,
            wx: params.weight("wx", (d, d), spec.input_std)?,
            bout: params.bias("bout", d, d)?,
            delay: DelaySystem::new(n, theta(spec), params),
        })
    }

    /// y for m `(.., inputs · n)` and u `(.., d)`.
    fn readout(&self, m: &Tensor, u: &Tensor) -> Result<Tensor> {
        let wx_u = linear(u, &self.wx, Some(&self.bout))?;
        ops::tanh(&(linear(m, &self.wm, None)? + wx_u)?)
    }
}

impl Mixer for Lmu {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = u.dims3()?;
        let (inputs, n) = (self.bu.elem_count(), self.delay.order);
        let x = linear(u, &self.wu, Some(&self.bu))?.unsqueeze(3)?; // (batch, seq_len, inputs, 1)
        let x = x.broadcast_as((batch, seq_len, inputs, n))?.contiguous()?;
        let kernel = self.delay.kernel_like(seq_len, &self.bu)?;
        let kernel = Tensor::cat(&vec![&kernel; inputs], 0)?; // (inputs · n, seq_len)
        let m = ops::long_conv(&x.flatten_from(2)?, &kernel)?; // (batch, seq_len, inputs · n)
        self.readout(&cx.select(&m)?, &cx.select(u)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.bu.elem_count() * self.delay.order
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "the tanh of its output is not linear in the state, and its Λ_i is a dense matrix"
    }
}

impl Recurrent for Lmu {
    /// m `(batch, inputs, n)`.
    fn init(&self, batch: usize) -> Result<State> {
        let shape = (batch, self.bu.elem_count(), self.delay.order);
        let zeros = Tensor::zeros(shape, self.bu.dtype(), self.bu.device())?;
        Ok(State::new(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let m = self.delay.advance(&state.0[0], &linear(x_t, &self.wu, Some(&self.bu))?)?;
        let y = self.readout(&m.flatten_from(1)?, x_t)?;
        *state = State::new(vec![m]);
        Ok(y)
    }
}
