//! The released block around the RG-LRU (Hawk; De et al. 2024): RMS norms, and dropout behind sums.

use super::block::{Block, Stream};
use crate::config::{ClassifierConfig, ModelConfig};
use crate::mixers::{Entry, Mixer};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops::{self, Glu};
use candle_core::{Result, Tensor};

pub(super) struct Hawk {
    /// Of the norm before the mixer and of the one before the feed-forward half.
    gammas: [Tensor; 2],
    mixer: Box<dyn Mixer>,
    grow: Tensor,
    shrink: Tensor,
    dropout: f64,
}

impl Hawk {
    pub fn new(
        model: &ModelConfig,
        config: &ClassifierConfig,
        entry: &Entry,
        params: &Params,
    ) -> Result<Self> {
        let (d, hidden) = (model.d_model, config.mlp_width);
        let gamma = |name: &str| params.scope(name).get("weight", d, Init::Constant(1.0));
        let mlp = params.scope("mlp");
        Ok(Self {
            gammas: [gamma("norm1")?, gamma("norm2")?],
            mixer: (entry.build)(model, &params.scope("mixer"))?,
            grow: mlp.weight("grow", (2 * hidden, d), 1.0)?,
            shrink: mlp.weight("shrink", (d, hidden), 1.0)?,
            dropout: config.dropout,
        })
    }
}

impl Block for Hawk {
    fn forward(&self, stream: Stream, cx: &Cx) -> Result<Stream> {
        let x = stream.whole()?;
        let mixed = self
            .mixer
            .forward(&ops::rms_norm(&x, &self.gammas[0])?, cx)?;
        let x = cx.dropout(&(x + mixed)?, "mixer", self.dropout)?;
        let grown = linear(&ops::rms_norm(&x, &self.gammas[1])?, &self.grow, None)?;
        let mixed = linear(&ops::glu(&grown, Glu::Gelu)?, &self.shrink, None)?;
        Ok(Stream {
            residual: cx.dropout(&(x + mixed)?, "mlp", self.dropout)?,
            branch: None,
        })
    }

    fn mixer(&self) -> &dyn Mixer {
        &*self.mixer
    }
}
