//! Any mixer after a short convolution, `--short-conv`: y = mixer(silu(conv4(u))).
//!
//! Mamba, Griffin and gated DeltaNet have such a convolution inside. In front of any other mixer it is the control that
//! separates the effect of the shift from that of the transition.

use super::short_conv::ShortConv;
use super::{Carried, Mixer, Recurrent, State};
use crate::ltv::Inner;
use crate::nn::{Cx, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// Scope of the parameters of the convolution.
const SCOPE: &str = "short_conv";

pub(super) struct Convolved {
    conv: ShortConv,
    mixer: Box<dyn Mixer>,
}

impl Convolved {
    /// `mixer` after a convolution of `width` channels.
    pub fn new(mixer: Box<dyn Mixer>, width: usize, params: &Params) -> Result<Self> {
        Ok(Self { conv: ShortConv::new(width, &params.scope(SCOPE))?, mixer })
    }

    /// x = silu(conv4(u)) for u `(batch, seq_len, d)`.
    fn shifted(&self, u: &Tensor) -> Result<Tensor> {
        ops::silu(&self.conv.forward(u)?)
    }

    /// x `(seq_len, d)` for u `(seq_len, d)`.
    fn shifted_sequence(&self, u: &Tensor) -> Result<Tensor> {
        self.shifted(&u.unsqueeze(0)?)?.squeeze(0)
    }
}

impl Mixer for Convolved {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        self.forward_with(u, &mut Carried::default(), cx)
    }

    fn forward_with(&self, u: &Tensor, carried: &mut Carried, cx: &Cx) -> Result<Tensor> {
        self.mixer.forward_with(&self.shifted(u)?, carried, cx)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        self.mixer.state_size(seq_len) + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        self.mixer.recurrent().map(|_| self as &dyn Recurrent)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let x = self.shifted_sequence(u)?;
        if let Some(system) = self.mixer.ltv(&x)? {
            let around =
                "driven by x = silu(conv4(u)), a shift register of three steps and a nonlinearity in front of it";
            return Ok(Some(Inner { system, input: x, around }));
        }
        let inner = self.mixer.inner(&x)?;
        let around =
            "driven by the input that the mixer computes from silu(conv4(u)), a shift register of three steps and \
                      nonlinearities in front of it; C_i and D_i hold what the mixer does after its state";
        Ok(inner.map(|inner| Inner { around, ..inner }))
    }

    fn without_system(&self) -> &'static str {
        self.mixer.without_system()
    }
}

impl Recurrent for Convolved {
    /// State of the mixer, then the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = self.step_form()?.init(batch)?;
        state.0.push(self.conv.window(batch)?);
        Ok(state)
    }

    fn step(&self, u_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        self.step_with(u_t, at, state, &mut Carried::default())
    }

    fn read(&self, u: &Tensor) -> Result<(Tensor, State)> {
        self.read_with(u, &mut Carried::default())
    }

    fn read_with(&self, u: &Tensor, carried: &mut Carried) -> Result<(Tensor, State)> {
        let (y, mut state) = self.step_form()?.read_with(&self.shifted(u)?, carried)?;
        state.0.push(self.conv.window_after(u)?);
        Ok((y, state))
    }

    fn step_with(&self, u_t: &Tensor, at: usize, state: &mut State, carried: &mut Carried) -> Result<Tensor> {
        let window = state.0.pop().expect("the window is the last tensor");
        let (x_t, window) = self.conv.step(u_t, &window)?;
        let y_t = self.step_form()?.step_with(&ops::silu(&x_t)?, at, state, carried)?;
        state.0.push(window);
        Ok(y_t)
    }
}

impl Convolved {
    /// Recurrent form of the mixer.
    fn step_form(&self) -> Result<&dyn Recurrent> {
        self.mixer.recurrent().ok_or_else(|| candle_core::Error::Msg("the mixer has no recurrent form".to_owned()))
    }
}
