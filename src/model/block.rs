//! One block on the residual stream, in the released model's two layouts and in Pythia's.

use crate::config::{Layout, ModelConfig, StateMixer};
use crate::mixers::{input_std, output_std, Entry, Mixer, Recurrent, State};
use crate::nn::{Cx, LayerNorm, Mlp, Params};
use crate::ops;
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
    /// Whether the second half reads what the mixer reads, and not what the mixer makes of it.
    parallel: bool,
}

/// The second half of the layouts `transformer` and `parallel`.
struct Second {
    norm: LayerNorm,
    /// Without it the normed residual itself is added: identity is not "nothing".
    mlp: Option<Mlp>,
}

impl Second {
    fn new(config: &ModelConfig, params: &Params) -> Result<Self> {
        let d = config.d_model;
        let width = config.language.as_ref().map_or(4 * d, |l| l.mlp_width);
        let stds = [input_std(config), output_std(config)];
        let mlp = || Mlp::new([d, width], stds, &params.scope("mlp"));
        Ok(Self {
            norm: LayerNorm::new(d, &params.scope("norm2"))?,
            mlp: (config.state_mixer == StateMixer::Mlp)
                .then(mlp)
                .transpose()?,
        })
    }

    fn forward(&self, normed: Tensor) -> Result<Tensor> {
        match &self.mlp {
            Some(mlp) => mlp.forward(&normed),
            None => Ok(normed),
        }
    }
}

impl Block {
    pub fn new(config: &ModelConfig, entry: &Entry, params: &Params) -> Result<Self> {
        let parallel = config.layout == Layout::Parallel;
        let halves = parallel || config.layout == Layout::Transformer;
        Ok(Self {
            norm1: LayerNorm::new(config.d_model, &params.scope("norm1"))?,
            mixer: (entry.build)(config, &params.scope("mixer"))?,
            second: halves.then(|| Second::new(config, params)).transpose()?,
            parallel,
        })
    }

    /// The stream of `(batch, seq_len, d)` behind this block, at the rows that `cx` asks for.
    pub fn forward(&self, stream: Stream, cx: &Cx) -> Result<Stream> {
        self.around(stream, cx, |x| self.mixer.forward(x, cx))
    }

    /// [`Self::forward`] for token `at` of each sequence, `(batch, d)`; `mixer` is this block's.
    pub fn step(
        &self,
        stream: Stream,
        mixer: &dyn Recurrent,
        at: usize,
        state: &mut State,
    ) -> Result<Stream> {
        self.around(stream, &Cx::eval(), |x| mixer.step(x, at, state))
    }

    fn around(
        &self,
        stream: Stream,
        cx: &Cx,
        mix: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Stream> {
        let (residual, normed) = stream.normed(&self.norm1)?;
        let (mixed, residual) = (mix(&normed)?, cx.select(&residual)?);
        match &self.second {
            None => Ok(Stream {
                residual,
                branch: Some(mixed),
            }),
            Some(second) if self.parallel => {
                let beside = second.forward(second.norm.forward(&residual)?)?;
                Ok(Stream {
                    residual,
                    branch: Some(ops::residual(&beside, &mixed, None, None)?),
                })
            }
            Some(second) => {
                let (residual, normed) = second.norm.add(&residual, &mixed)?;
                Ok(Stream {
                    residual,
                    branch: Some(second.forward(normed)?),
                })
            }
        }
    }
}
