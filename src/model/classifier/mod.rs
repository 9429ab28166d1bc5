//! Documents to classes: an embedding, blocks around a mixer, one vector a document, a head. The
//! released classifiers of the Long Range Arena, and a GPT-2 block for every mixer.

mod block;
mod frame;
mod hawk;
mod head;
mod transformer;

use crate::config::{ClassifierConfig, Input, Layout, Loss, ModelConfig};
use crate::mixers;
use crate::nn::{linear, Cx, Init, LayerNorm, Params, Scheme};
use crate::ops::{self, Classified};
use crate::tasks::Sizes;
use block::{Block, Stream};
use candle_core::{DType, Result, Tensor};
use head::Head;

/// A classifier of documents, or of pairs of them.
pub struct Classifier {
    input: Source,
    blocks: Vec<Box<dyn Block>>,
    /// Of layouts whose last sum nothing else normalises.
    norm_f: Option<LayerNorm>,
    head: Head,
    config: ClassifierConfig,
    embed_dropout: f64,
    activations: DType,
    /// The type of parameters, and of the loss.
    parameters: DType,
    classes: usize,
}

/// How a token becomes a vector.
enum Source {
    Table {
        tokens: Tensor,
        positions: Option<Tensor>,
    },
    Scalar {
        weight: Tensor,
        bias: Tensor,
        scale: f64,
        shift: f64,
    },
}

impl Classifier {
    /// Builds the classifier with parameters from `params`, as [`super::Model::new`] does.
    pub fn new(model: &ModelConfig, sizes: &Sizes, params: &Params) -> Result<Self> {
        let Some(config) = &model.classifier else {
            candle_core::bail!("the model is not a classifier");
        };
        let params = params.clone().with_scheme(Scheme::Torch);
        let entry = mixers::find(&model.mixer).map_err(candle_core::Error::wrap)?;
        let layers = params.scope("layers").with_scheme(match model.layout {
            Layout::Hawk => Scheme::FanIn,
            _ => Scheme::Torch,
        });
        let blocks = (0..model.n_layers)
            .map(|layer| block::build(model, config, entry, &layers.scope(layer)))
            .collect::<Result<_>>()?;
        let norm_f = || LayerNorm::new(model.d_model, &params.scope("norm_f"));
        let ends_normed = matches!(model.layout, Layout::Transformer | Layout::Shared);
        Ok(Self {
            input: Source::new(model, config, sizes, &params.scope("embed"))?,
            blocks,
            norm_f: ends_normed.then(norm_f).transpose()?,
            head: Head::new(model, config, sizes, &params)?,
            config: config.clone(),
            embed_dropout: model.embed_dropout,
            activations: params.activations(),
            parameters: params.dtype(),
            classes: sizes.classes,
        })
    }

    /// Logits `(batch, classes)` of documents `(documents · batch, seq_len)` u32: all first documents,
    /// then all second ones. `lengths` `(documents · batch)` u32 are counted with the end token; they
    /// matter only to a pooling that leaves out padding.
    pub fn logits(&self, tokens: &Tensor, lengths: &Tensor, cx: &Cx) -> Result<Tensor> {
        let hidden = self.hidden(tokens, cx)?;
        let lengths = self.config.mask.then_some(lengths);
        let pooled = ops::pool(&hidden, lengths, self.config.pool)?;
        self.head.forward(&pooled)
    }

    /// The mean loss of `labels` `(batch)` u32, and which of them are the most likely ones.
    pub fn classify(
        &self,
        tokens: &Tensor,
        lengths: &Tensor,
        labels: &Tensor,
        cx: &Cx,
    ) -> Result<Classified> {
        let logits = self
            .logits(tokens, lengths, cx)?
            .to_dtype(self.parameters)?;
        let logits = match self.config.loss {
            Loss::Ce => logits,
            Loss::DoubleSoftmax => candle_nn::ops::softmax(&logits, 1)?,
        };
        let identity = Tensor::eye(self.classes, self.parameters, logits.device())?;
        ops::cross_entropy(&logits.unsqueeze(1)?, &identity, labels)
    }

    /// The last hidden layer, `(documents · batch, seq_len, d_model)`.
    pub fn hidden(&self, tokens: &Tensor, cx: &Cx) -> Result<Tensor> {
        let mut stream = Stream {
            residual: self.embedded(tokens, cx)?,
            branch: None,
        };
        for (layer, block) in self.blocks.iter().enumerate() {
            stream = block.forward(stream, &cx.layer(layer))?;
        }
        match &self.norm_f {
            Some(norm) => Ok(stream.normed(norm)?.1),
            None => stream.whole(),
        }
    }

    /// Numbers that one layer's mixer keeps per sequence while reading `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        self.blocks[0].mixer().state_size(seq_len)
    }

    fn embedded(&self, tokens: &Tensor, cx: &Cx) -> Result<Tensor> {
        match &self.input {
            Source::Table {
                tokens: table,
                positions,
            } => {
                let mask = cx.mask("embed", self.embed_dropout);
                ops::embedding(tokens, table, positions.as_ref(), mask, self.activations)
            }
            Source::Scalar {
                weight,
                bias,
                scale,
                shift,
            } => {
                let x = tokens.to_dtype(weight.dtype())?.affine(*scale, *shift)?;
                let x = linear(&x.unsqueeze(2)?, weight, Some(bias))?;
                x.to_dtype(self.activations)
            }
        }
    }
}

impl Source {
    fn new(
        model: &ModelConfig,
        config: &ClassifierConfig,
        sizes: &Sizes,
        params: &Params,
    ) -> Result<Self> {
        let d = model.d_model;
        let positions = || params.get("pos", (sizes.seq_len, d), Init::Normal(1.0));
        Ok(match config.input {
            Input::Embedding => Self::Table {
                tokens: params.get("tok", (sizes.vocab_size, d), Init::Normal(1.0))?,
                positions: model.positions.then(positions).transpose()?,
            },
            Input::Scalar => Self::Scalar {
                weight: params.weight("w", (d, 1), 1.0)?,
                bias: params.bias("b", d, 1)?,
                scale: sizes.scalar.0,
                shift: sizes.scalar.1,
            },
        })
    }
}
