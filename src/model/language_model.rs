//! Language models: a token table, blocks around a mixer, and a head. They run over whole sequences at once or token by
//! token.

use super::auto_encoder::AutoEncoder;
use super::block::BlockState;
use super::body::{BetweenSteps, Body};
use super::spec::BodySpec;
use super::Io;
use crate::config::{InitScheme, MapInit, ModelConfig, PositionEmbedding};
use crate::mixers::MixerSpec;
use crate::nn::{linear, sinusoids, Cx, Init, Norm, Params, Rows, Scheme};
use crate::ops::{self, Classified};
use candle_core::{DType, Result, Tensor};

/// Language model of the released shape (the paper's J.1), Pythia's (J.3), or that of a pretrained model.
pub struct LanguageModel {
    embedding: TokenEmbedding,
    body: Body,
    /// Decoder of all positions from the last, if the model is an auto-encoder.
    decoder: Option<AutoEncoder>,
    /// Rows of the head, `(V, d)`: the token table, unless the head has its own.
    head: Tensor,
    /// Bound c of the logits, c tanh(x/c).
    logit_cap: Option<f64>,
}

/// Map of tokens to the input of the first block.
struct TokenEmbedding {
    tokens: Tensor,
    positions: Option<PositionTable>,
    /// Factor of the sum.
    scale: Option<f64>,
    norm: Option<Norm>,
    dropout: f64,
    /// Dtype of the residual stream.
    activations: DType,
}

/// Position embeddings.
enum PositionTable {
    /// Learned table, `(seq_len, d)` or longer.
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

impl TokenEmbedding {
    fn new(config: &ModelConfig, io: Io, params: &Params) -> Result<Self> {
        let (d, params) = (config.d_model, params.scope("embed"));
        let std = MixerSpec::from(config).input_std;
        let tokens = params.map("tok", (io.vocab_size, d), Init::Normal(std))?;
        let positions = || -> Result<PositionTable> {
            match config.position_embedding {
                PositionEmbedding::Learnt => {
                    let rows = config.n_positions.unwrap_or(io.seq_len);
                    let table = params.map("pos", (rows, d), Init::Normal(0.02))?;
                    Ok(PositionTable::Learnt(table))
                }
                // Same ratio to the token embeddings as in Vaswani et al. 2017, who multiply the token embeddings by
                // √d.
                PositionEmbedding::Sinusoidal => {
                    Ok(PositionTable::Sinusoidal { table: sinusoids(0..io.seq_len, d, std, &tokens)?, amplitude: std })
                }
            }
        };
        let norm = || Norm::new(BodySpec::of(config).block.norm, d, &params.scope("norm"));
        Ok(Self {
            positions: config.positions.then(positions).transpose()?,
            tokens,
            scale: config.block.embed_scale,
            norm: config.block.embed_norm.then(norm).transpose()?,
            dropout: config.embed_dropout,
            activations: params.activations(),
        })
    }

    /// Embeddings `(batch, seq_len, d)` of `tokens` `(batch, seq_len)`.
    fn forward(&self, tokens: &Tensor, cx: &Cx) -> Result<Tensor> {
        let positions = self.positions.as_ref().map(PositionTable::table);
        let mask = cx.mask("embed", self.dropout);
        self.ended(ops::embedding(tokens, &self.tokens, positions, mask, self.activations)?)
    }

    /// Embeddings `(batch, d)` of `tokens` `(batch)` at position `at`.
    fn at(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        let position = self.positions.as_ref().map(|positions| positions.at(at)).transpose()?;
        let x = ops::embedding(&tokens.unsqueeze(1)?, &self.tokens, position.as_ref(), None, self.activations)?;
        self.ended(x.squeeze(1)?)
    }

    /// Scaled and normed sum x `(.., d)` of the embeddings.
    fn ended(&self, x: Tensor) -> Result<Tensor> {
        let x = match self.scale {
            Some(scale) => (x * scale)?,
            None => x,
        };
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }
}

impl LanguageModel {
    /// Builds the model with parameters from `params`. Building it twice from the same parameters, once detached, gives
    /// a training and an evaluation view of one set of weights.
    pub fn new(config: &ModelConfig, io: Io, params: &Params) -> Result<Self> {
        let embedding = TokenEmbedding::new(config, io, params)?;
        let (d, std) = (config.d_model, MixerSpec::from(config).input_std);
        let torch = config.map_init == MapInit::Torch;
        let small = config.language.as_ref().is_some_and(|language| language.init == InitScheme::Pythia);
        let params = &match (torch, small) {
            (true, _) => params.clone().with_scheme(Scheme::Torch),
            (_, true) => params.clone().with_scheme(Scheme::Small),
            _ => params.clone(),
        };
        let table = || {
            let head = params.scope("head");
            match torch {
                true => head.weight("weight", (io.vocab_size, d), std),
                false => head.map("weight", (io.vocab_size, d), Init::Normal(std)),
            }
        };
        let decoder =
            || AutoEncoder::new(BodySpec::of(config).block.norm, [d, io.seq_len], std, &params.scope("decoder"));
        Ok(Self {
            decoder: config.auto_encoder.then(decoder).transpose()?,
            head: if config.is_tied() { embedding.tokens.clone() } else { table()? },
            embedding,
            body: Body::new(config, &BodySpec::of(config), params)?,
            logit_cap: config.block.logit_cap,
        })
    }

    /// Inputs of the mixers of the layers `wanted` for `tokens` `(batch, seq_len)` u32, `(batch, seq_len, d_model)`
    /// each, of the model that [`Self::new`] would build. Only one block is in memory at a time: `params` is called for
    /// each.
    pub fn mixer_inputs_by_block(
        config: &ModelConfig,
        io: Io,
        params: &dyn Fn() -> Params,
        tokens: &Tensor,
        wanted: &[usize],
    ) -> Result<Vec<Tensor>> {
        let x = TokenEmbedding::new(config, io, &params())?.forward(tokens, &Cx::eval())?;
        Body::mixer_inputs_by_block(config, params, x, wanted)
    }

    /// Last hidden layer `(batch, rows, d_model)` of tokens `(batch, seq_len)` u32, at the selected positions (all if
    /// `None`).
    pub fn hidden(&self, tokens: &Tensor, rows: Option<&Rows>, cx: &Cx) -> Result<Tensor> {
        let embedded = self.embedding.forward(tokens, cx)?;
        let Some(decoder) = &self.decoder else {
            return self.body.forward(embedded, rows, cx);
        };
        let (batch, seq_len) = tokens.dims2()?;
        let encodings = self.body.forward(embedded, Some(&Rows::last(batch, seq_len, tokens)?), cx)?;
        decoder.forward(&encodings, seq_len, &cx.clone().only(rows))
    }

    /// Same as [`Self::hidden`] at all positions in evaluation, computed token by token, with a call to `between` after
    /// each; `None` if a mixer cannot be stepped through time.
    pub fn hidden_by_steps(&self, tokens: &Tensor, between: BetweenSteps) -> Result<Option<Tensor>> {
        let cx = Cx::eval();
        let hidden = self.body.forward_by_steps(self.embedding.forward(tokens, &cx)?, between)?;
        let (Some(hidden), Some(decoder)) = (&hidden, &self.decoder) else {
            return Ok(hidden);
        };
        let seq_len = tokens.dim(1)?;
        decoder.forward(&hidden.narrow(1, seq_len - 1, 1)?.contiguous()?, seq_len, &cx).map(Some)
    }

    /// Whether all positions are decoded from the last hidden vector.
    pub fn is_auto_encoder(&self) -> bool {
        self.decoder.is_some()
    }

    /// Input of each layer's mixer for `tokens` `(batch, seq_len)` u32, `(batch, seq_len, d_model)` each.
    pub fn mixer_inputs(&self, tokens: &Tensor) -> Result<Vec<Tensor>> {
        self.body.mixer_inputs(self.embedding.forward(tokens, &Cx::eval())?, &Cx::eval())
    }

    /// Mean cross-entropy of `targets` `(rows)` u32 under the logits of `hidden` `(.., d_model)`, as many rows, and which
    /// of the targets are the most likely tokens.
    pub fn classify(&self, hidden: &Tensor, targets: &Tensor) -> Result<Classified> {
        match self.logit_cap {
            Some(_) => ops::cross_entropy_of_logits(&self.logits(hidden)?, targets),
            None => ops::cross_entropy(hidden, &self.head, targets),
        }
    }

    /// Logits `(.., vocab_size)` of `hidden` `(.., d_model)`.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = linear(hidden, &self.head, None)?;
        match self.logit_cap {
            Some(cap) => ops::tanh(&(logits / cap)?)? * cap,
            None => Ok(logits),
        }
    }

    /// Logits `(batch, vocab_size)` of the token after the last of `tokens` `(batch, seq_len)` u32.
    pub fn last_logits(&self, tokens: &Tensor) -> Result<Tensor> {
        let (batch, seq_len) = tokens.dims2()?;
        let hidden = self.hidden(tokens, Some(&Rows::last(batch, seq_len, tokens)?), &Cx::eval())?;
        self.logits(&hidden.squeeze(1)?)
    }

    /// State size: the numbers that the mixers of all layers keep per sequence while decoding `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        self.body.state_size(seq_len)
    }
}

/// Memory of a model that reads text token by token: the states of its blocks.
#[derive(Clone, Debug)]
pub struct Decoder {
    pub(super) states: Vec<BlockState>,
    /// Number of tokens read so far.
    pub read: usize,
}

impl Decoder {
    /// Size of the states in bytes, over all sequences. It is constant in time, except for softmax attention, where it
    /// grows with every token.
    pub fn bytes(&self) -> usize {
        self.states.iter().flat_map(BlockState::tensors).map(|t| t.elem_count() * t.dtype().size_in_bytes()).sum()
    }
}

impl Decoder {
    /// The same memory for each of `batch` sequences, from that of one.
    pub fn repeated(&self, batch: usize) -> Result<Self> {
        let states = self.states.iter().map(|state| state.repeated(batch)).collect::<Result<_>>()?;
        Ok(Self { states, read: self.read })
    }
}

impl LanguageModel {
    /// Memory before the first token of `batch` sequences; `None` if a mixer cannot be stepped through time, or
    /// the model is an auto-encoder.
    pub fn begin(&self, batch: usize) -> Result<Option<Decoder>> {
        let states = if self.decoder.is_some() { None } else { self.body.begin(batch)? };
        Ok(states.map(|states| Decoder { states, read: 0 }))
    }

    /// Reads the first tokens of each sequence, `tokens` `(batch, seq_len)` u32, into a decoder that has read none, and
    /// returns the logits `(batch, vocab_size)` of the token after them. Fails beyond the last learned position.
    pub fn read(&self, tokens: &Tensor, decoder: &mut Decoder) -> Result<Tensor> {
        if decoder.read > 0 {
            candle_core::bail!("the decoder has read {} tokens already", decoder.read);
        }
        let hidden = self.body.read(self.embedding.forward(tokens, &Cx::eval())?, &mut decoder.states)?;
        let seq_len = tokens.dim(1)?;
        decoder.read = seq_len;
        self.logits(&hidden.narrow(1, seq_len - 1, 1)?.squeeze(1)?.contiguous()?)
    }

    /// Reads the next token of each sequence, `tokens` `(batch)` u32, and returns the logits `(batch, vocab_size)` of
    /// the token after it. Fails after the last learned position.
    pub fn step(&self, tokens: &Tensor, decoder: &mut Decoder) -> Result<Tensor> {
        let at = decoder.read;
        let x = self.embedding.at(tokens, at)?;
        let hidden = self.body.step(x, at, &mut decoder.states)?;
        decoder.read += 1;
        self.logits(&hidden)
    }
}
