//! Blocks of a network and the final norm, shared by language models and classifiers.

use super::block::{Block, BlockState, Residual};
use super::spec::{BlockSpec, BodySpec};
use crate::config::ModelConfig;
use crate::nn::{Cx, Norm, Params, Rows};
use candle_core::{Result, Tensor};

/// Description of the block of layer `layer`, from 0, or of the final norm after all layers.
fn block(model: &ModelConfig, spec: &BodySpec, layer: usize) -> BlockSpec {
    spec.block.halved(model.block.rescale_every.map_or(0, |every| layer / every))
}

/// Called between two steps with a layer and the state of its mixer.
pub type BetweenSteps<'a> = &'a mut dyn FnMut(usize, &mut [Tensor]) -> Result<()>;

pub(super) struct Body {
    blocks: Vec<Block>,
    norm_f: Option<Norm>,
}

impl Body {
    /// Creates the blocks, with parameters under `layers.0`, `layers.1` and so on, and the final norm under `norm_f`.
    pub fn new(model: &ModelConfig, spec: &BodySpec, params: &Params) -> Result<Self> {
        let layers = params.scope("layers");
        let blocks = (0..model.n_layers).map(|i| Block::new(model, i, &block(model, spec, i), &layers.scope(i)));
        let norm_f = || Norm::new(block(model, spec, model.n_layers).norm, model.d_model, &params.scope("norm_f"));
        Ok(Self { blocks: blocks.collect::<Result<_>>()?, norm_f: spec.final_norm.then(norm_f).transpose()? })
    }

    /// Inputs of the mixers of the layers `wanted` for embedded tokens x `(batch, seq_len, d)`, of the body that
    /// [`Self::new`] would build from the result of `params`, which is called for each block.
    pub fn mixer_inputs_by_block(
        model: &ModelConfig,
        params: &dyn Fn() -> Params,
        x: Tensor,
        wanted: &[usize],
    ) -> Result<Vec<Tensor>> {
        let spec = BodySpec::of(model);
        let (mut stream, mut found) = (Residual::from(x), vec![None; wanted.len()]);
        for layer in 0..=wanted.iter().copied().max().unwrap_or(0) {
            let (of_layer, mut read) = (block(model, &spec, layer), Vec::new());
            let block = Block::new(model, layer, &of_layer, &params().scope("layers").scope(layer))?;
            stream = block.forward_recording(stream, &Cx::eval(), &mut read)?;
            for (place, _) in found.iter_mut().zip(wanted).filter(|(_, wanted)| **wanted == layer) {
                *place = read.first().cloned();
            }
        }
        Ok(found.into_iter().flatten().collect())
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
    pub fn mixer_inputs(&self, x: Tensor, cx: &Cx) -> Result<Vec<Tensor>> {
        let (mut stream, mut read) = (Residual::from(x), Vec::new());
        for block in &self.blocks {
            stream = block.forward_recording(stream, cx, &mut read)?;
        }
        Ok(read)
    }

    /// States of all blocks before the first token of `batch` sequences; `None` if a mixer cannot be stepped through
    /// time.
    pub fn begin(&self, batch: usize) -> Result<Option<Vec<BlockState>>> {
        self.blocks.iter().map(|block| block.begin(batch)).collect()
    }

    /// Same as [`Self::forward`] for the token at position `at`, x `(batch, d)`; advances `states`.
    pub fn step(&self, x: Tensor, at: usize, states: &mut [BlockState]) -> Result<Tensor> {
        let mut stream = Residual::from(x);
        for (block, state) in self.blocks.iter().zip(states) {
            stream = block.step(stream, at, state)?;
        }
        self.finish(stream)
    }

    /// Same as [`Self::forward`] for the first tokens of each sequence, x `(batch, seq_len, d)`, one block after the
    /// other; `states` become those after them.
    pub fn read(&self, x: Tensor, states: &mut [BlockState]) -> Result<Tensor> {
        let mut stream = Residual::from(x);
        for (block, state) in self.blocks.iter().zip(states) {
            stream = block.read(stream, state)?;
        }
        self.finish(stream)
    }

    /// Same as [`Self::forward`] at all positions, by one [`Self::step`] per token: after each, `between` gets the state of
    /// every mixer, by layer, and may replace its tensors. `None` if a mixer cannot be stepped through time.
    pub fn forward_by_steps(&self, x: Tensor, between: BetweenSteps) -> Result<Option<Tensor>> {
        let (batch, seq_len, _) = x.dims3()?;
        let Some(mut states) = self.begin(batch)? else {
            return Ok(None);
        };
        let mut hidden = Vec::with_capacity(seq_len);
        for at in 0..seq_len {
            hidden.push(self.step(x.narrow(1, at, 1)?.squeeze(1)?, at, &mut states)?);
            for (layer, state) in states.iter_mut().enumerate() {
                between(layer, state.of_mixer())?;
            }
        }
        Tensor::stack(&hidden, 1).map(Some)
    }

    /// State size: the numbers that the mixers of all layers keep per sequence after `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        self.blocks.iter().map(|block| block.state_size(seq_len)).sum()
    }

    fn finish(&self, stream: Residual) -> Result<Tensor> {
        match &self.norm_f {
            Some(norm) => Ok(stream.normed(norm)?.1),
            None => stream.sum(),
        }
    }
}
