//! The released block around state space models: the gated unit behind the mixer is what mixes
//! channels, there is no second half.

use super::block::{Block, Skip, Stream};
use crate::config::{ClassifierConfig, Layout, ModelConfig, StateMixer};
use crate::mixers::{Entry, Mixer};
use crate::nn::{linear, Cx, LayerNorm, Params};
use crate::ops::{self, Glu};
use candle_core::{Result, Tensor};

pub(super) struct Frame {
    norm: LayerNorm,
    prenorm: bool,
    mixer: Box<dyn Mixer>,
    /// d to 2d, with its bias.
    glu: Option<[Tensor; 2]>,
    skip: Skip,
    dropout: f64,
}

impl Frame {
    pub fn new(
        model: &ModelConfig,
        config: &ClassifierConfig,
        entry: &Entry,
        params: &Params,
    ) -> Result<Self> {
        let d = model.d_model;
        let glu = || -> Result<[Tensor; 2]> {
            let params = params.scope("glu");
            Ok([
                params.weight("w", (2 * d, d), 1.0)?,
                params.bias("b", 2 * d, d)?,
            ])
        };
        Ok(Self {
            norm: LayerNorm::new(d, &params.scope("norm1"))?,
            prenorm: model.layout == Layout::Prenorm,
            mixer: (entry.build)(model, &params.scope("mixer"))?,
            glu: (model.state_mixer == StateMixer::Glu)
                .then(glu)
                .transpose()?,
            skip: Skip::new(config, params)?,
            dropout: config.dropout,
        })
    }
}

impl Block for Frame {
    fn forward(&self, stream: Stream, cx: &Cx) -> Result<Stream> {
        let (x, seen) = if self.prenorm {
            stream.normed(&self.norm)?
        } else {
            let x = stream.whole()?;
            (x.clone(), x)
        };
        let v = ops::gelu(&self.mixer.forward(&seen, cx)?)?;
        let v = cx.dropout(&v, "mixer", self.dropout)?;
        let v = match &self.glu {
            Some([w, b]) => ops::glu(&linear(&v, w, Some(b))?, Glu::Sigmoid)?,
            None => v,
        };
        let sum = self.skip.add(&x, v, cx.mask("glu", self.dropout))?;
        if self.prenorm {
            return Ok(sum);
        }
        Ok(Stream {
            residual: sum.normed(&self.norm)?.1,
            branch: None,
        })
    }

    fn mixer(&self) -> &dyn Mixer {
        &*self.mixer
    }
}
