//! Norm, mixer, add, norm, feed-forward, add. In the released classifier both norms of a block are
//! one set of weights.

use super::block::{Block, Skip, Stream};
use crate::config::{ClassifierConfig, Layout, ModelConfig};
use crate::mixers::{Entry, Mixer};
use crate::nn::{Cx, LayerNorm, Mlp, Params};
use candle_core::Result;

pub(super) struct Transformer {
    norm1: LayerNorm,
    /// `None` is the first once more.
    norm2: Option<LayerNorm>,
    mixer: Box<dyn Mixer>,
    mlp: Mlp,
    skip: Skip,
    dropout: f64,
}

impl Transformer {
    pub fn new(
        model: &ModelConfig,
        config: &ClassifierConfig,
        entry: &Entry,
        params: &Params,
    ) -> Result<Self> {
        let d = model.d_model;
        let norm2 = || LayerNorm::new(d, &params.scope("norm2"));
        let own = model.layout == Layout::Transformer;
        Ok(Self {
            norm1: LayerNorm::new(d, &params.scope("norm1"))?,
            norm2: own.then(norm2).transpose()?,
            mixer: (entry.build)(model, &params.scope("mixer"))?,
            mlp: Mlp::new([d, config.mlp_width], [1.0; 2], &params.scope("mlp"))?,
            skip: Skip::new(config, params)?,
            dropout: config.dropout,
        })
    }
}

impl Block for Transformer {
    fn forward(&self, stream: Stream, cx: &Cx) -> Result<Stream> {
        let (residual, normed) = stream.normed(&self.norm1)?;
        let mixed = self.mixer.forward(&normed, cx)?;
        let mask = cx.mask("mixer", self.dropout);
        let norm2 = self.norm2.as_ref().unwrap_or(&self.norm1);
        let (residual, normed) = self.skip.add(&residual, mixed, mask)?.normed(norm2)?;
        let branch = self.mlp.forward_dropped(&normed, self.dropout, cx)?;
        Ok(Stream {
            residual,
            branch: Some(branch),
        })
    }

    fn mixer(&self) -> &dyn Mixer {
        &*self.mixer
    }
}
