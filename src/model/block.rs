//! One block on the residual stream, in the released model's two layouts.

use crate::config::{Layout, ModelConfig, StateMixer};
use crate::mixers::{output_std, Entry, Mixer};
use crate::nn::{Cx, LayerNorm, Mlp, Params};
use candle_core::{Result, Tensor};

/// The residual stream between half blocks.
pub(super) struct Stream {
    pub residual: Tensor,
    /// What the half block before adds to the residual, left to the norm that reads the sum.
    pub branch: Option<Tensor>,
}

impl Stream {
    /// The residual, whole, and `norm` of it.
    pub fn normed(self, norm: &LayerNorm) -> Result<(Tensor, Tensor)> {
        match &self.branch {
            Some(branch) => norm.add(&self.residual, branch),
            None => Ok((self.residual.clone(), norm.forward(&self.residual)?)),
        }
    }

    /// The residual with what is still to be added to it.
    pub fn whole(self) -> Result<Tensor> {
        match self.branch {
            Some(branch) => self.residual + branch,
            None => Ok(self.residual),
        }
    }
}

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
            let mlp = || Mlp::new([d, 4 * d], output_std(config), &params.scope("mlp"));
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

    /// The stream of `(batch, seq_len, d)` behind this block, at the rows that `cx` asks for.
    pub fn forward(&self, stream: Stream, cx: &Cx) -> Result<Stream> {
        let (residual, normed) = stream.normed(&self.norm1)?;
        let mixed = Stream {
            branch: Some(self.mixer.forward(&normed, cx)?),
            residual: cx.select(&residual)?,
        };
        let Some(Second { norm, mlp }) = &self.second else {
            return Ok(mixed);
        };
        let (residual, normed) = mixed.normed(norm)?;
        let branch = match mlp {
            Some(mlp) => mlp.forward(&normed)?,
            None => normed,
        };
        Ok(Stream {
            residual,
            branch: Some(branch),
        })
    }
}
