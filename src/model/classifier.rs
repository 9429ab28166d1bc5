//! Document classifiers: an embedding, blocks around a mixer, one pooled vector per document, and a head. They include
//! the released classifiers of the Long Range Arena and a GPT-2 body for every mixer.

use super::body::{BetweenSteps, Body};
use super::spec::BodySpec;
use crate::config::{self, ClassifierConfig, Dual, InputMap, Loss, ModelConfig};
use crate::nn::{linear, Cx, Init, Params, Scheme};
use crate::ops::{self, Classified, Dropout};
use crate::tasks::ExampleSizes;
use candle_core::{DType, Result, Tensor};

/// Classifier of documents or of pairs of documents.
pub struct Classifier {
    input: Embedding,
    body: Body,
    head: ClassificationHead,
    config: ClassifierConfig,
    embed_dropout: f64,
    activations: DType,
    /// Dtype of the parameters and of the loss.
    parameters: DType,
    classes: usize,
}

impl Classifier {
    /// Builds the classifier with parameters from `params`, as [`super::Model::new`] does. Fails if the model is not a
    /// classifier or has a layout that classifiers do not support.
    pub fn new(model: &ModelConfig, task: &ExampleSizes, params: &Params) -> Result<Self> {
        let Some(config) = &model.classifier else {
            candle_core::bail!("the model is not a classifier");
        };
        if !model.layout.is_of_classifiers() {
            candle_core::bail!(
                "a classifier has the layout transformer, shared, prenorm, postnorm or hawk, not {:?}",
                model.layout
            );
        }
        let spec = BodySpec::of(model);
        let params = params.clone().with_scheme(Scheme::Torch);
        let of_body = params.clone().with_scheme(spec.classifier_init);
        Ok(Self {
            input: Embedding::new(model, config, task, &params.scope("embed"))?,
            body: Body::new(model, &spec, &of_body)?,
            head: ClassificationHead::new(model.d_model, config, (task, &spec), &params)?,
            config: config.clone(),
            embed_dropout: model.embed_dropout,
            activations: params.activations(),
            parameters: params.dtype(),
            classes: task.classes,
        })
    }

    /// Logits `(batch, classes)` of documents `(documents · batch, seq_len)` u32: all first documents, then all second
    /// ones. `lengths` `(documents · batch)` u32 include the end token. They are used only by pooling that masks
    /// padding and by mixers in both directions.
    pub fn logits(&self, tokens: &Tensor, lengths: &Tensor, cx: &Cx) -> Result<Tensor> {
        let hidden = self.hidden(tokens, &self.directed(lengths, tokens.dim(1)?, cx)?)?;
        self.logits_of(&hidden, lengths)
    }

    /// Logits `(batch, classes)` of the last hidden layer of documents.
    fn logits_of(&self, hidden: &Tensor, lengths: &Tensor) -> Result<Tensor> {
        let lengths = self.config.mask.then_some(lengths);
        let pooled = ops::pool(hidden, lengths, self.config.pool)?;
        self.head.forward(&pooled)
    }

    /// Mean loss of `labels` `(batch)` u32, and which of them are the most likely classes.
    pub fn classify(&self, tokens: &Tensor, lengths: &Tensor, labels: &Tensor, cx: &Cx) -> Result<Classified> {
        self.classify_logits(&self.logits(tokens, lengths, cx)?, labels)
    }

    /// Same as [`Self::classify`] for the last hidden layer of the documents, `(documents · batch, seq_len, d_model)`.
    pub fn classify_hidden(&self, hidden: &Tensor, lengths: &Tensor, labels: &Tensor) -> Result<Classified> {
        self.classify_logits(&self.logits_of(hidden, lengths)?, labels)
    }

    fn classify_logits(&self, logits: &Tensor, labels: &Tensor) -> Result<Classified> {
        let logits = logits.to_dtype(self.parameters)?;
        let logits = match self.config.loss {
            Loss::Ce => logits,
            Loss::DoubleSoftmax => candle_nn::ops::softmax(&logits, 1)?,
        };
        let identity = Tensor::eye(self.classes, self.parameters, logits.device())?;
        ops::cross_entropy(&logits.unsqueeze(1)?, &identity, labels)
    }

    /// Same pass in the directions that the model reads documents of these lengths in.
    fn directed(&self, lengths: &Tensor, seq_len: usize, cx: &Cx) -> Result<Cx> {
        match self.config.bidirectional {
            true => cx.seeing_all(lengths, seq_len),
            false => Ok(cx.clone()),
        }
    }

    /// Last hidden layer, `(documents · batch, seq_len, d_model)`.
    pub fn hidden(&self, tokens: &Tensor, cx: &Cx) -> Result<Tensor> {
        self.body.forward(self.embed(tokens, cx)?, None, cx)
    }

    /// Same as [`Self::hidden`] in evaluation, computed token by token, with a call to `between` after each; `None` if a mixer
    /// cannot be stepped through time.
    pub fn hidden_by_steps(&self, tokens: &Tensor, between: BetweenSteps) -> Result<Option<Tensor>> {
        self.body.forward_by_steps(self.embed(tokens, &Cx::eval())?, between)
    }

    /// Input of each layer's mixer for `tokens` without padding, `(documents · batch, seq_len, d_model)` each.
    pub fn mixer_inputs(&self, tokens: &Tensor) -> Result<Vec<Tensor>> {
        let (batch, seq_len) = tokens.dims2()?;
        let lengths = Tensor::full(seq_len as u32, batch, tokens.device())?;
        let cx = self.directed(&lengths, seq_len, &Cx::eval())?;
        self.body.mixer_inputs(self.embed(tokens, &cx)?, &cx)
    }

    fn embed(&self, tokens: &Tensor, cx: &Cx) -> Result<Tensor> {
        let mask = cx.mask("embed", self.embed_dropout);
        self.input.forward(tokens, mask, self.activations)
    }

    /// State size: the numbers that the mixers of all layers keep per sequence while reading `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        self.body.state_size(seq_len)
    }
}

/// Map of tokens to vectors of width d.
enum Embedding {
    /// Rows of a learnt table, with or without learnt positions.
    Table { tokens: Tensor, positions: Option<Tensor> },
    /// Linear map of scale · token + shift.
    Scalar { weight: Tensor, bias: Tensor, scale: f64, shift: f64 },
}

impl Embedding {
    fn new(model: &ModelConfig, config: &ClassifierConfig, task: &ExampleSizes, params: &Params) -> Result<Self> {
        let d = model.d_model;
        let positions = || params.map("pos", (task.seq_len, d), Init::Normal(1.0));
        Ok(match config.input {
            InputMap::Embedding => Self::Table {
                tokens: params.map("tok", (task.vocab_size, d), Init::Normal(1.0))?,
                positions: model.positions.then(positions).transpose()?,
            },
            InputMap::Scalar => Self::Scalar {
                weight: params.weight("w", (d, 1), 1.0)?,
                bias: params.bias("b", d, 1)?,
                scale: task.scalar.0,
                shift: task.scalar.1,
            },
        })
    }

    /// Embeddings `(batch, seq_len, d)` of tokens `(batch, seq_len)` u32. Only a table applies `mask`.
    fn forward(&self, tokens: &Tensor, mask: Option<Dropout>, activations: DType) -> Result<Tensor> {
        match self {
            Self::Table { tokens: table, positions } => {
                ops::embedding(tokens, table, positions.as_ref(), mask, activations)
            }
            Self::Scalar { weight, bias, scale, shift } => {
                let x = tokens.to_dtype(weight.dtype())?.affine(*scale, *shift)?;
                linear(&x.unsqueeze(2)?, weight, Some(bias))?.to_dtype(activations)
            }
        }
    }
}

/// Linear maps with a ReLU between consecutive ones.
struct Layers(Vec<[Tensor; 2]>);

impl Layers {
    fn new(widths: &[usize], params: &Params) -> Result<Self> {
        let pairs = widths.windows(2).enumerate().map(|(i, pair)| {
            let (name, fan_in) = (i + 1, pair[0]);
            Ok([
                params.weight(&format!("w{name}"), (pair[1], fan_in), 1.0)?,
                params.bias(&format!("b{name}"), pair[1], fan_in)?,
            ])
        });
        Ok(Self(pairs.collect::<Result<_>>()?))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (i, [w, b]) in self.0.iter().enumerate() {
            if i > 0 {
                x = x.relu()?;
            }
            x = linear(&x, w, Some(b))?;
        }
        Ok(x)
    }
}

/// Classification head: maps pooled vectors to logits.
enum ClassificationHead {
    /// Logits of one document: d to C, in one map or through a hidden layer of width m.
    One(Layers),
    /// `MATCH` applied to the logits of two documents.
    Logits { each: Layers, both: Layers },
    /// `MATCH` applied to the pooled vectors of two documents.
    Features(Layers),
}

impl ClassificationHead {
    fn new(
        d: usize,
        config: &ClassifierConfig,
        (task, spec): (&ExampleSizes, &BodySpec),
        params: &Params,
    ) -> Result<Self> {
        let (m, classes) = (config.mlp_width, task.classes);
        let each = || match config.head {
            config::HeadKind::Mlp => Layers::new(&[d, m, classes], &params.scope("head")),
            config::HeadKind::Linear => Layers::new(&[d, classes], &params.scope("head")),
        };
        let both = |width: usize| {
            let m = spec.match_width.unwrap_or(m);
            let widths = [task.documents * width, m, (m / 2).max(1), classes];
            Layers::new(&widths, &params.scope("match"))
        };
        Ok(match (task.documents, config.dual) {
            (1, _) => Self::One(each()?),
            (_, Dual::Logits) => Self::Logits { each: each()?, both: both(classes)? },
            (_, Dual::Features) => Self::Features(both(d)?),
        })
    }

    /// Logits `(batch, classes)` of `pooled` `(documents · batch, d)`, all first documents and then all second ones.
    fn forward(&self, pooled: &Tensor) -> Result<Tensor> {
        let pairs = |x: &Tensor| Tensor::cat(&x.chunk(2, 0)?, 1);
        match self {
            Self::One(each) => each.forward(pooled),
            Self::Logits { each, both } => both.forward(&pairs(&each.forward(pooled)?)?),
            Self::Features(both) => both.forward(&pairs(pooled)?),
        }
    }
}
