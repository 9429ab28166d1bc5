//! Blocks of a network and the final norm, shared by language models and classifiers.

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
    /// Creates the blocks, with parameters under `layers.0`, `layers.1` and so on, and the final norm under `norm_f`.
    pub fn new(model: &ModelConfig, spec: &BodySpec, params: &Params) -> Result<Self> {
        let layers = params.scope("layers");
        let blocks = (0..model.n_layers).map(|i| Block::new(model, i, &spec.block, &layers.scope(i)));
        let norm_f = || Norm::new(spec.block.norm, model.d_model, &params.scope("norm_f"));
        Ok(Self { blocks: blocks.collect::<Result<_>>()?, norm_f: spec.final_norm.then(norm_f).transpose()? })
    }

    /// Last hidden layer `(batch, rows, d)` of embedded tokens `(batch, seq_len, d)` at the selected positions (all if
    /// `None`). In the last block, everything after the mixer's state is computed at these positions only.
    pub fn forward(&self, x: Tensor, rows: Option<&Rows>, cx: &Cx) -> Result<Tensor> {
        let mut stream = Residual::from(x);
        for (layer, block) in self.blocks.iter().enumerate() {
            let rows = rows.filter(|_| layer + 1 == self.blocks.len());
            stream = block.forward(stream, &cx.layer(layer).only(rows))?;
        }
        self.finish(stream)
    }

    /// Input of each block's mixer for embedded tokens `(batch, seq_len, d)`, in the same shape.
    pub fn mixer_inputs(&self, x: Tensor) -> Result<Vec<Tensor>> {
        let (mut stream, mut read) = (Residual::from(x), Vec::new());
        for block in &self.blocks {
            stream = block.forward_recording(stream, &mut read)?;
        }
        Ok(read)
    }

    /// States of all mixers before the first token of `batch` sequences; `None` if a mixer cannot be stepped through
    /// time.
    pub fn begin(&self, batch: usize) -> Result<Option<Vec<State>>> {
        let states = self.blocks.iter().map(|block| block.mixer.recurrent().map(|mixer| mixer.init(batch)).transpose());
        states.collect()
    }

    /// Same as [`Self::forward`] for the token at position `at`, x `(batch, d)`; advances `states`.
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

    /// State size: the numbers that the mixers of all layers keep per sequence after `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        self.blocks.iter().map(|block| block.mixer.state_size(seq_len)).sum()
    }

    fn finish(&self, stream: Residual) -> Result<Tensor> {
        match &self.norm_f {
            Some(norm) => Ok(stream.normed(norm)?.1),
            None => stream.sum(),
        }
    }
}
