//! Language models: a token table, blocks around a mixer, and a head. They run over whole sequences at once or token by
//! token.

use super::body::Body;
use super::spec::BodySpec;
use super::Io;
use crate::config::{ModelConfig, PositionEmbedding};
use crate::mixers::{MixerSpec, State};
use crate::nn::{linear, sinusoids, Cx, Init, Params, Rows};
use crate::ops::{self, Classified};
use candle_core::{DType, Result, Tensor};

/// Language model of the released shape (the paper's J.1) or Pythia's (J.3).
pub struct LanguageModel {
    tokens: Tensor,
    positions: Option<PositionTable>,
    body: Body,
    /// Rows of the head, `(V, d)`: the token table, unless the head has its own.
    head: Tensor,
    embed_dropout: f64,
    /// Dtype of the residual stream.
    activations: DType,
}

/// Position embeddings.
enum PositionTable {
    /// Learned table, `(seq_len, d)`.
    Learnt(Tensor),
    /// Fixed sinusoidal table, `(seq_len, d)`, and its amplitude.
    Sinusoidal { table: Tensor, amplitude: f64 },
}

impl PositionTable {
    /// Table for all positions of a sequence.
    fn table(&self) -> &Tensor {
        match self {
            Self::Learnt(table) | Self::Sinusoidal { table, .. } => table,
        }
    }

    /// Embedding of position `at`, `(1, d)`.
    fn at(&self, at: usize) -> Result<Tensor> {
        match self {
            Self::Sinusoidal { table, amplitude } if at >= table.dims()[0] => {
                sinusoids(at..at + 1, table.dims()[1], *amplitude, table)
            }
            Self::Learnt(table) | Self::Sinusoidal { table, .. } => table.narrow(0, at, 1),
        }
    }
}

impl LanguageModel {
    /// Builds the model with parameters from `params`. Building it twice from the same parameters, once detached, gives
    /// a training and an evaluation view of one set of weights.
    pub fn new(config: &ModelConfig, io: Io, params: &Params) -> Result<Self> {
        let (d, embed) = (config.d_model, params.scope("embed"));
        let std = MixerSpec::from(config).input_std;
        let table = |name: &str, params: &Params| params.map(name, (io.vocab_size, d), Init::Normal(std));
        let tokens = table("tok", &embed)?;
        let positions = || -> Result<PositionTable> {
            match config.position_embedding {
                PositionEmbedding::Learnt => {
                    let table = embed.map("pos", (io.seq_len, d), Init::Normal(0.02))?;
                    Ok(PositionTable::Learnt(table))
                }
                // Same ratio to the token embeddings as in Vaswani et al. 2017, who multiply the token embeddings by
                // √d.
                PositionEmbedding::Sinusoidal => {
                    Ok(PositionTable::Sinusoidal { table: sinusoids(0..io.seq_len, d, std, &tokens)?, amplitude: std })
                }
            }
        };
        let positions = config.positions.then(positions).transpose()?;
        Ok(Self {
            head: match &config.language {
                Some(_) => table("weight", &params.scope("head"))?,
                None => tokens.clone(),
            },
            tokens,
            positions,
            body: Body::new(config, &BodySpec::of(config), params)?,
            embed_dropout: config.embed_dropout,
            activations: params.activations(),
        })
    }

    /// Last hidden layer `(batch, rows, d_model)` of tokens `(batch, seq_len)` u32, at the selected positions (all if
    /// `None`).
    pub fn hidden(&self, tokens: &Tensor, rows: Option<&Rows>, cx: &Cx) -> Result<Tensor> {
        self.body.forward(self.embed(tokens, cx)?, rows, cx)
    }

    /// Input of each layer's mixer for `tokens` `(batch, seq_len)` u32, `(batch, seq_len, d_model)` each.
    pub fn mixer_inputs(&self, tokens: &Tensor) -> Result<Vec<Tensor>> {
        self.body.mixer_inputs(self.embed(tokens, &Cx::eval())?)
    }

    fn embed(&self, tokens: &Tensor, cx: &Cx) -> Result<Tensor> {
        let mask = cx.mask("embed", self.embed_dropout);
        let positions = self.positions.as_ref().map(PositionTable::table);
        ops::embedding(tokens, &self.tokens, positions, mask, self.activations)
    }

    /// Mean cross-entropy of `targets` `(batch · rows)` u32 at the selected positions of `tokens` (all if `None`), and
    /// which of the targets are the most likely tokens.
    pub fn classify(&self, tokens: &Tensor, rows: Option<&Rows>, targets: &Tensor, cx: &Cx) -> Result<Classified> {
        let hidden = self.hidden(tokens, rows, cx)?;
        ops::cross_entropy(&hidden, &self.head, targets)
    }

    /// Logits `(.., vocab_size)` of `hidden` `(.., d_model)`.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        linear(hidden, &self.head, None)
    }

    /// Logits `(batch, vocab_size)` of the token after the last of `tokens` `(batch, seq_len)` u32.
    pub fn last_logits(&self, tokens: &Tensor) -> Result<Tensor> {
        let (batch, seq_len) = tokens.dims2()?;
        let last = Tensor::full(seq_len as u32 - 1, (batch, 1), tokens.device())?;
        let rows = Rows { positions: last };
        let hidden = self.hidden(tokens, Some(&rows), &Cx::eval())?;
        self.logits(&hidden.squeeze(1)?)
    }

    /// State size: the numbers that the mixers of all layers keep per sequence while decoding `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        self.body.state_size(seq_len)
    }
}

/// Memory of a model that reads text token by token: the states of its mixers.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// State of each block's mixer.
    states: Vec<State>,
    /// Number of tokens read so far.
    pub read: usize,
}

impl Decoder {
    /// Size of the states in bytes, over all sequences. It is constant in time, except for softmax attention, where it
    /// grows with every token.
    pub fn bytes(&self) -> usize {
        self.states.iter().flat_map(|state| &state.0).map(|t| t.elem_count() * t.dtype().size_in_bytes()).sum()
    }
}

impl LanguageModel {
    /// Memory before the first token of `batch` sequences; `None` if a mixer cannot be stepped through time.
    pub fn begin(&self, batch: usize) -> Result<Option<Decoder>> {
        let states = self.body.begin(batch)?;
        Ok(states.map(|states| Decoder { states, read: 0 }))
    }

    /// Reads the next token of each sequence, `tokens` `(batch)` u32, and returns the logits `(batch, vocab_size)` of
    /// the token after it. Fails after the last learned position.
    pub fn step(&self, tokens: &Tensor, decoder: &mut Decoder) -> Result<Tensor> {
        let at = decoder.read;
        let x = self.embed_at(tokens, at)?;
        let hidden = self.body.step(x, at, &mut decoder.states)?;
        decoder.read += 1;
        self.logits(&hidden)
    }

    /// Embeddings `(batch, d)` of `tokens` `(batch)` at position `at`.
    fn embed_at(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        let position = self.positions.as_ref().map(|positions| positions.at(at));
        let (tokens, position) = (tokens.unsqueeze(1)?, position.transpose()?);
        let table = &self.tokens;
        ops::embedding(&tokens, table, position.as_ref(), None, self.activations)?.squeeze(1)
    }
}
