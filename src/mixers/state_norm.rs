//! RMS norm of each head after the state of a core, `--state-norm`: o ⊙ g / √(mean(o²) + ε) in front of the output
//! gate and the output map.
//!
//! RetNet, GLA, DeltaNet, RWKV and Mamba-2 have such a norm. Behind the state of any other mixer it is the control that
//! separates the effect of the norm from that of the transition.

use super::{Carried, Mixer, MixerSpec, Recurrent};
use crate::ltv::{Inner, Ltv};
use crate::nn::{Cx, Init, Params};
use crate::ops::Expression;
use candle_core::{Result, Tensor, D};

/// Place for a norm after the state of a mixer.
#[derive(Clone, Copy)]
pub enum StateNormPlace {
    /// It has none there and takes one of this width.
    Free(fn(&MixerSpec) -> usize),
    /// It has none there in its first variant and takes one of this width; its other variants have one.
    FreeInFirst(fn(&MixerSpec) -> usize),
    /// It takes none, with the reason as the end of a sentence about the mixer.
    No(&'static str),
}

impl StateNormPlace {
    /// Place for a norm as wide as the residual stream.
    pub(super) const OF_WIDTH_D: Self = Self::Free(|spec| spec.d_model);
    /// Mixers with a norm of their own.
    pub(super) const TAKEN: Self = Self::No("has a norm after its state already");
    /// Mixers whose state, alone, reaches no output gate or output map.
    pub(super) const MISSING: Self = Self::No("has no output gate or output map that reads its state alone");
}

/// Scope of its parameters.
const SCOPE: &str = "state_norm";

/// ε, as small as the square of what a fresh S6 with Mamba's steps reads from its state: a larger one would leave it
/// small.
const EPS: f64 = 1e-10;

/// The rest of a mixer with such a norm.
pub(super) const AROUND: &str =
    "driven by u; C_i holds the scale of the norm after the state, which is not linear in the state, and what follows it";

/// Norm of all heads.
#[derive(Clone)]
pub(super) struct StateNorm {
    /// Gain g of each channel.
    gain: Tensor,
    heads: usize,
}

impl StateNorm {
    /// Norm of `width` channels; `None` if `spec` has none.
    pub fn new(spec: &MixerSpec, width: usize, params: &Params) -> Result<Option<Self>> {
        if !spec.state_norm {
            return Ok(None);
        }
        let params = params.scope(SCOPE).with_origin("Zhang & Sennrich 2019");
        Ok(Some(Self { gain: params.get("weight", width, Init::Constant(1.0))?, heads: spec.n_heads }))
    }

    /// Factor of o `(.., width)`, of the same shape.
    pub fn scale(&self, o: &Tensor) -> Result<Tensor> {
        let width = self.gain.elem_count();
        let by_head = o.reshape(((), self.heads, width / self.heads))?;
        let scale = rms_scale(&by_head, EPS)?.broadcast_as(by_head.shape())?;
        let scale = scale.contiguous()?.reshape(o.shape())?;
        scale.broadcast_mul(&self.gain.to_dtype(o.dtype())?)
    }

    /// Normed o, of its shape.
    pub fn forward(&self, o: &Tensor) -> Result<Tensor> {
        o * self.scale(o)?
    }

    /// `system` with this norm after the states of its channels, along its input u `(seq_len, inputs)`.
    pub fn after(&self, system: Ltv, u: &Tensor) -> Result<Ltv> {
        let scale = self.scale(&system.state_outputs(u)?)?;
        Ok(Ltv { read: system.read.broadcast_mul(&scale.unsqueeze(2)?)?, ..system })
    }
}

/// 1/√(mean(x²) + ε) over the last axis, which stays with size 1: the scale of an RMS norm.
pub(super) fn rms_scale(x: &Tensor, eps: f64) -> Result<Tensor> {
    rms_scale_of(&Expression::of(x), x.dim(D::Minus1)?, eps).tensor()
}

/// [`rms_scale`] of an expression whose last axis has `width` elements.
pub(super) fn rms_scale_of(x: &Expression, width: usize, eps: f64) -> Expression {
    (x.sqr().row_sum() * (1.0 / width as f64) + eps).sqrt().recip()
}

/// A mixer whose forward pass and steps apply a norm that its system lacks.
pub(super) struct Normed {
    pub mixer: Box<dyn Mixer>,
    pub norm: StateNorm,
}

impl Mixer for Normed {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        self.mixer.forward(u, cx)
    }

    fn forward_with(&self, u: &Tensor, carried: &mut Carried, cx: &Cx) -> Result<Tensor> {
        self.mixer.forward_with(u, carried, cx)
    }

    fn state_size(&self, seq_len: usize) -> usize {
        self.mixer.state_size(seq_len)
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        self.mixer.recurrent()
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        match self.mixer.ltv(u)? {
            Some(system) => Ok(Some(Inner { system: self.norm.after(system, u)?, input: u.clone(), around: AROUND })),
            None => self.mixer.inner(u),
        }
    }

    fn without_system(&self) -> &'static str {
        self.mixer.without_system()
    }
}
