//! One block of a classifier on the residual stream.

use super::frame::Frame;
use super::hawk::Hawk;
use super::transformer::Transformer;
use crate::config::{ClassifierConfig, Layout, ModelConfig};
use crate::mixers::{Entry, Mixer};
pub(super) use crate::model::block::Stream;
use crate::nn::{Cx, Init, Params};
use crate::ops::{self, Dropout};
use candle_core::{Result, Tensor};

/// One block.
pub(super) trait Block {
    /// The stream of `(batch, seq_len, d)` behind it.
    fn forward(&self, stream: Stream, cx: &Cx) -> Result<Stream>;

    /// The mixer inside.
    fn mixer(&self) -> &dyn Mixer;
}

/// The block of a layout.
pub(super) fn build(
    model: &ModelConfig,
    config: &ClassifierConfig,
    entry: &Entry,
    params: &Params,
) -> Result<Box<dyn Block>> {
    Ok(match model.layout {
        Layout::Transformer | Layout::Shared => {
            Box::new(Transformer::new(model, config, entry, params)?)
        }
        Layout::Prenorm | Layout::Postnorm => Box::new(Frame::new(model, config, entry, params)?),
        Layout::Hawk => Box::new(Hawk::new(model, config, entry, params)?),
        Layout::Mamba | Layout::Parallel => {
            candle_core::bail!("classifiers have no layout `mamba` or `parallel`")
        }
    })
}

/// λ: a learnt number before the residual beside a mixer, 1 at first.
pub(super) struct Skip(Option<Tensor>);

impl Skip {
    pub fn new(config: &ClassifierConfig, params: &Params) -> Result<Self> {
        let lambda = || params.get("lambda", 1, Init::Constant(1.0));
        Ok(Self(config.lambda_skip.then(lambda).transpose()?))
    }

    /// λ x + dropped(y), left open where nothing is scaled or dropped: a norm then adds on its way.
    pub fn add(&self, x: &Tensor, y: Tensor, mask: Option<Dropout>) -> Result<Stream> {
        let mask = mask.filter(|mask| mask.p > 0.0);
        let (residual, branch) = match (&self.0, mask) {
            (None, None) => (x.clone(), Some(y)),
            (lambda, mask) => (ops::residual(x, &y, mask, lambda.as_ref())?, None),
        };
        Ok(Stream { residual, branch })
    }
}
