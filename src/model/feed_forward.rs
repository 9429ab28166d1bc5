//! Second half of a block. It acts on each position alone, except for the token shift of RWKV.

use super::spec::{BlockSpec, FeedForward};
use crate::config::{Activation, ModelConfig};
use crate::mixers::{token_shift, MixerSpec};
use crate::nn::{linear, Init, Mlp, Params};
use crate::ops::{self, Dropout, Glu};
use candle_core::{Result, Tensor};

/// Parameters of a second half.
pub(super) enum Half {
    Identity,
    Mlp(Mlp),
    GatedMlp {
        /// Weights `(2m, d)` and `(d, m)`.
        maps: [Tensor; 2],
        /// Biases `(2m)` and `(d)`.
        biases: Option<[Tensor; 2]>,
        glu: Glu,
    },
    ChannelMix(ChannelMix),
    /// W_v relu(W_k x)² of RWKV-7, where x interpolates between a token and its predecessor.
    ShiftedMlp {
        /// Weights of the predecessor, `(d)`.
        mu: Tensor,
        /// W_k `(m, d)` and W_v `(d, m)`.
        maps: [Tensor; 2],
    },
}

/// Channel mixing of RWKV-4: σ(W_r x_r) ⊙ W_v relu(W_k x_k)², where x_r and x_k interpolate between a token and its
/// predecessor.
pub(super) struct ChannelMix {
    /// Weights of the current token in x_k and x_r, `(d)` each.
    mu: [Tensor; 2],
    /// W_k `(m, d)`, W_r `(d, d)` and W_v `(d, m)`.
    maps: [Tensor; 3],
}

impl Half {
    /// Creates the half of `spec` in layer `layer`, counted from 0.
    pub fn new(
        kind: FeedForward,
        model: &ModelConfig,
        layer: usize,
        spec: &BlockSpec,
        params: &Params,
    ) -> Result<Self> {
        let (d, m) = (model.d_model, spec.mlp_width);
        let mixer = MixerSpec::from(model);
        Ok(match kind {
            FeedForward::Identity => Self::Identity,
            FeedForward::Mlp => {
                let stds = [mixer.input_std, mixer.output_std];
                Self::Mlp(Mlp::new([d, m], stds, (spec.activation, spec.bias.unwrap_or(true)), params)?)
            }
            FeedForward::GatedMlp => {
                let biases = || -> Result<[Tensor; 2]> {
                    Ok([params.bias("grow_b", 2 * m, d)?, params.bias("shrink_b", d, m)?])
                };
                Self::GatedMlp {
                    maps: [
                        params.weight("grow", (2 * m, d), mixer.input_std)?,
                        params.weight("shrink", (d, m), mixer.output_std)?,
                    ],
                    biases: spec.bias.unwrap_or(false).then(biases).transpose()?,
                    glu: match spec.activation {
                        Activation::Gelu => Glu::Gelu,
                        Activation::GeluTanh => Glu::GeluTanh,
                        Activation::Silu => Glu::Silu,
                        Activation::Identity => Glu::Bilinear,
                    },
                }
            }
            FeedForward::ChannelMix => {
                // Deeper layers interpolate less, as in the authors' code.
                let less = 1.0 - layer as f64 / model.n_layers.max(1) as f64;
                let mix = move |i: usize, _: &mut _| (i as f64 / d as f64).powf(less);
                let mu = |name| params.get(name, d, Init::Each(&mix));
                Self::ChannelMix(ChannelMix {
                    mu: [mu("mu_k")?, mu("mu_r")?],
                    maps: [
                        params.weight("wk", (m, d), mixer.input_std)?,
                        params.weight("wr", (d, d), mixer.input_std)?,
                        params.weight("wv", (d, m), mixer.output_std)?,
                    ],
                })
            }
            FeedForward::ShiftedMlp => {
                let less = 1.0 - layer as f64 / model.n_layers.max(1) as f64;
                let mix = move |i: usize, _: &mut _| 1.0 - (i as f64 / d as f64).powf(less.powi(4));
                Self::ShiftedMlp {
                    mu: params.get("mu_k", d, Init::Each(&mix))?,
                    maps: [
                        params.weight("wk", (m, d), mixer.input_std)?,
                        params.weight("wv", (d, m), mixer.output_std)?,
                    ],
                }
            }
        })
    }

    /// Whether the output at a position depends on the token before it, too.
    pub fn reads_previous(&self) -> bool {
        matches!(self, Self::ChannelMix(_) | Self::ShiftedMlp { .. })
    }

    /// Output for u `(.., d)` with the dropout masks of the hidden layer and of the result. `previous` `(batch, d)` is
    /// the input of the token before a single one, `None` for whole sequences.
    pub fn forward(&self, u: &Tensor, previous: Option<&Tensor>, masks: [Option<Dropout>; 2]) -> Result<Tensor> {
        let [_, of_result] = masks;
        let y = match self {
            Self::Identity => return Ok(u.clone()),
            Self::Mlp(mlp) => return mlp.forward(u, masks),
            Self::GatedMlp { maps: [grow, shrink], biases, glu } => {
                let [grow_b, shrink_b] =
                    biases.as_ref().map_or([None, None], |[grow, shrink]| [Some(grow), Some(shrink)]);
                let hidden = ops::glu(&linear(u, grow, grow_b)?, *glu)?;
                linear(&hidden, shrink, shrink_b)?
            }
            Self::ChannelMix(mix) => mix.forward(u, previous)?,
            Self::ShiftedMlp { mu, maps: [grow, shrink] } => {
                let mixed = token_shift::lerp(u, &token_before(u, previous)?, mu)?;
                linear(&linear(&mixed, grow, None)?.relu()?.sqr()?, shrink, None)?
            }
        };
        match of_result {
            Some(mask) => ops::dropout(&y, mask),
            None => Ok(y),
        }
    }
}

/// Token before each of u `(.., d)`: `previous` for a single token, and u shifted by one for whole sequences.
fn token_before(u: &Tensor, previous: Option<&Tensor>) -> Result<Tensor> {
    match previous {
        Some(before) => Ok(before.clone()),
        None => ops::shift(u),
    }
}

impl ChannelMix {
    fn forward(&self, u: &Tensor, previous: Option<&Tensor>) -> Result<Tensor> {
        let before = token_before(u, previous)?;
        let [k, r] = [0, 1].map(|i| linear(&token_shift::lerp(&before, u, &self.mu[i])?, &self.maps[i], None));
        let value = linear(&k?.relu()?.sqr()?, &self.maps[2], None)?;
        ops::sigmoid(&r?)? * value
    }
}
