//! The network around a mixer: embeddings, blocks, final norm, head. Exact only where it is asked: in the
//! last block everything behind the mixer's state is computed at labelled rows.

mod block;
mod classifier;
mod decoder;
pub mod generate;
pub mod protocol;
pub mod weights;

use crate::config::{ModelConfig, TaskConfig};
use crate::error;
use crate::mixers::{self, input_std};
use crate::nn::{linear, Cx, Init, LayerNorm, Params, Rows};
use crate::ops::{self, Classified};
use crate::tasks::Sizes;
use block::{Block, Stream};
use candle_core::{DType, Result, Tensor};
pub use classifier::Classifier;
pub use decoder::Decoder;

/// Shapes that the task gives.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// Vocabulary V.
    pub vocab_size: usize,
    /// Longest sequence L.
    pub seq_len: usize,
}

impl Io {
    /// What a task says of the model's edges.
    pub fn of(task: &TaskConfig) -> error::Result<Self> {
        Ok(Self::from(&task.sizes()?))
    }
}

impl From<&Sizes> for Io {
    fn from(sizes: &Sizes) -> Self {
        Self {
            vocab_size: sizes.vocab_size,
            seq_len: sizes.seq_len,
        }
    }
}

/// A language model: of the released shape (the paper's J.1), or Pythia's (J.3).
pub struct Model {
    tokens: Tensor,
    positions: Option<Tensor>,
    blocks: Vec<Block>,
    norm_f: LayerNorm,
    /// The rows of the head `(V, d)`, which are those of the tokens unless it has its own.
    head: Tensor,
    embed_dropout: f64,
    /// The type of the residual stream.
    activations: DType,
}

impl Model {
    /// Builds the model with parameters from `params`. Building twice from the same parameters,
    /// once of them detached, gives a training and an evaluation view of one set of weights.
    pub fn new(config: &ModelConfig, io: Io, params: &Params) -> Result<Self> {
        let (d, embed) = (config.d_model, params.scope("embed"));
        let entry = mixers::find(&config.mixer).map_err(candle_core::Error::wrap)?;
        let positions = || embed.get("pos", (io.seq_len, d), Init::Normal(0.02));
        let layers = params.scope("layers");
        let blocks = (0..config.n_layers)
            .map(|layer| Block::new(config, entry, &layers.scope(layer)))
            .collect::<Result<_>>()?;
        let table = |name: &str, params: &Params| {
            params.get(name, (io.vocab_size, d), Init::Normal(input_std(config)))
        };
        let tokens = table("tok", &embed)?;
        Ok(Self {
            head: match &config.language {
                Some(_) => table("weight", &params.scope("head"))?,
                None => tokens.clone(),
            },
            tokens,
            positions: config.positions.then(positions).transpose()?,
            blocks,
            norm_f: LayerNorm::new(d, &params.scope("norm_f"))?,
            embed_dropout: config.embed_dropout,
            activations: params.activations(),
        })
    }

    /// Tokens `(batch, seq_len)` u32 to the normed residual, `(batch, rows, d_model)` at the rows
    /// wanted (all when `None`).
    pub fn hidden(&self, tokens: &Tensor, rows: Option<&Rows>, cx: &Cx) -> Result<Tensor> {
        let mask = cx.mask("embed", self.embed_dropout);
        let (table, positions) = (&self.tokens, self.positions.as_ref());
        let mut stream = Stream {
            residual: ops::embedding(tokens, table, positions, mask, self.activations)?,
            branch: None,
        };
        let last = self.blocks.len() - 1;
        for (layer, block) in self.blocks.iter().enumerate() {
            let rows = rows.filter(|_| layer == last);
            stream = block.forward(stream, &cx.layer(layer).only(rows))?;
        }
        Ok(stream.normed(&self.norm_f)?.1)
    }

    /// The mean cross-entropy of `answers` `(batch · rows)` u32 at `rows` of `tokens` (all when `None`), and
    /// which of the answers are the most likely ones.
    pub fn classify(
        &self,
        tokens: &Tensor,
        rows: Option<&Rows>,
        answers: &Tensor,
        cx: &Cx,
    ) -> Result<Classified> {
        let hidden = self.hidden(tokens, rows, cx)?;
        ops::cross_entropy(&hidden, &self.head, answers)
    }

    /// Logits of the head, `(.., d_model)` to `(.., vocab_size)`.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        linear(hidden, &self.head, None)
    }

    /// Logits `(batch, vocab_size)` of what follows the last of `tokens` `(batch, seq_len)` u32.
    pub fn last_logits(&self, tokens: &Tensor) -> Result<Tensor> {
        let (batch, seq_len) = tokens.dims2()?;
        let last = Tensor::full(seq_len as u32 - 1, (batch, 1), tokens.device())?;
        let rows = Rows { positions: last };
        let hidden = self.hidden(tokens, Some(&rows), &Cx::eval())?;
        self.logits(&hidden.squeeze(1)?)
    }

    /// Numbers that one layer's mixer keeps per sequence while decoding `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        self.blocks[0].mixer.state_size(seq_len)
    }
}

#[cfg(test)]
mod tests;
