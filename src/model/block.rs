//! One block on the residual stream, in the released model's two layouts.

use crate::config::{Layout, ModelConfig, StateMixer};
use crate::mixers::{output_std, Entry, Mixer};
use crate::nn::{Cx, LayerNorm, Mlp, Params};
use candle_core::{Result, Tensor};

pub(super) struct Block {
    norm1: LayerNorm,
    pub mixer: Box<dyn Mixer>,
    second: Option<Second>,
}

/// The second half of the `transformer` layout.
struct Second {
    norm: LayerNorm,
    /// Without it the normed residual itself is added: identity is not "nothing".
    mlp: Option<Mlp>,
}

impl Block {
    pub fn new(config: &ModelConfig, entry: &Entry, params: &Params) -> Result<Self> {
        let d = config.d_model;
        let second = || -> Result<Second> {
            let mlp = || Mlp::new(d, output_std(config), &params.scope("mlp"));
            Ok(Second {
                norm: LayerNorm::new(d, &params.scope("norm2"))?,
                mlp: (config.state_mixer == StateMixer::Mlp)
                    .then(mlp)
                    .transpose()?,
            })
        };
        Ok(Self {
            norm1: LayerNorm::new(d, &params.scope("norm1"))?,
            mixer: (entry.build)(config, &params.scope("mixer"))?,
            second: (config.layout == Layout::Transformer)
                .then(second)
                .transpose()?,
        })
    }

    /// Residual `(batch, seq_len, d)` to residual `(batch, rows, d)`.
    pub fn forward(&self, residual: &Tensor, cx: &Cx) -> Result<Tensor> {
        let mixed = self.mixer.forward(&self.norm1.forward(residual)?, cx)?;
        let residual = (cx.select(residual)? + mixed)?;
        let Some(Second { norm, mlp }) = &self.second else {
            return Ok(residual);
        };
        let normed = norm.forward(&residual)?;
        match mlp {
            Some(mlp) => residual + mlp.forward(&normed)?,
            None => residual + normed,
        }
    }
}
