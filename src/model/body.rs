//! The blocks of a network and the norm behind them: what language models and classifiers share.

use super::block::{Block, Residual};
use super::spec::BodySpec;
use crate::config::ModelConfig;
use crate::mixers::State;
use crate::nn::{Cx, Norm, Params, Rows};
use candle_core::{bail, Result, Tensor};

pub(super) struct Body {
    blocks: Vec<Block>,
    norm_f: Option<Norm>,
}

impl Body {
    /// Parameters under `layers.0`, `layers.1` and so on, and `norm_f`.
    pub fn new(model: &ModelConfig, spec: &BodySpec, params: &Params) -> Result<Self> {
        let layers = params.scope("layers");
        let blocks =
            (0..model.n_layers).map(|i| Block::new(model, i, &spec.block, &layers.scope(i)));
        let norm_f = || Norm::new(spec.block.norm, model.d_model, &params.scope("norm_f"));
        Ok(Self {
            blocks: blocks.collect::<Result<_>>()?,
            norm_f: spec.final_norm.then(norm_f).transpose()?,
        })
    }

    /// Embedded tokens `(batch, seq_len, d)` to the last hidden layer, `(batch, rows, d)` at the selected
    /// positions (all when `None`). In the last block, all that follows the mixer's state is computed at
    /// these positions alone.
    pub fn forward(&self, x: Tensor, rows: Option<&Rows>, cx: &Cx) -> Result<Tensor> {
        let mut stream = Residual::from(x);
        for (layer, block) in self.blocks.iter().enumerate() {
            let rows = rows.filter(|_| layer + 1 == self.blocks.len());
            stream = block.forward(stream, &cx.layer(layer).only(rows))?;
        }
        self.finish(stream)
    }

    /// What the mixer of each block reads of embedded tokens `(batch, seq_len, d)`, in the same shape.
    pub fn mixer_inputs(&self, x: Tensor) -> Result<Vec<Tensor>> {
        let (mut stream, mut read) = (Residual::from(x), Vec::new());
        for block in &self.blocks {
            stream = block.forward_telling(stream, &mut read)?;
        }
        Ok(read)
    }

    /// The states of all mixers before the first token of `batch` sequences; `None` where the mixer
    /// cannot be stepped through time.
    pub fn begin(&self, batch: usize) -> Result<Option<Vec<State>>> {
        let states = self.blocks.iter().map(|block| {
            let recurrent = block.mixer.recurrent();
            recurrent.map(|mixer| mixer.init(batch)).transpose()
        });
        states.collect()
    }

    /// [`Self::forward`] of the token at position `at`, x `(batch, d)`, advancing `states`.
    pub fn step(&self, x: Tensor, at: usize, states: &mut [State]) -> Result<Tensor> {
        let mut stream = Residual::from(x);
        for (block, state) in self.blocks.iter().zip(states) {
            let Some(mixer) = block.mixer.recurrent() else {
                bail!("the decoder belongs to another model");
            };
            stream = block.step(stream, mixer, at, state)?;
        }
        self.finish(stream)
    }

    /// Numbers that the mixers of all layers keep per sequence after `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        let blocks = self.blocks.iter();
        blocks.map(|block| block.mixer.state_size(seq_len)).sum()
    }

    fn finish(&self, stream: Residual) -> Result<Tensor> {
        match &self.norm_f {
            Some(norm) => Ok(stream.normed(norm)?.1),
            None => stream.sum(),
        }
    }
}
