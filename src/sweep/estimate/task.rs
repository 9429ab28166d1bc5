//! What the estimate asks of a task and of models of its kind: numbers.

use crate::config::{ModelConfig, RunConfig};
use crate::error::Result;
use crate::model::{Classifier, Io, Model};
use crate::nn::Params;
use crate::tasks::{Objective, Sizes};
use candle_core::{DType, Device};

/// A task in numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskSizes {
    /// Examples of an epoch.
    pub train_examples: usize,
    /// Examples that are tested after an epoch.
    pub tested_examples: usize,
    /// Tokens of an example, at most.
    pub tokens: f64,
    /// Labelled positions of an example.
    pub labels: f64,
    /// Rows of the token table, V.
    pub vocabulary: f64,
    /// Bytes that the data of all splits take in memory.
    pub data_bytes: f64,
}

impl TaskSizes {
    pub fn new(objective: Objective, sizes: &Sizes) -> Self {
        let (train_examples, tested_examples) = (sizes.examples[0], sizes.tested_examples());
        let examples = (train_examples + tested_examples) as f64;
        let data_bytes = match objective {
            // Tokens, and position and answer of every label, of 4 bytes each.
            Objective::PerToken => {
                4.0 * examples * (sizes.seq_len + 2 * sizes.labels_per_example) as f64
            }
            Objective::Pooled => examples * sizes.tokens_per_example() as f64,
            // A map of a file takes none.
            Objective::NextToken => 0.0,
        };
        Self {
            train_examples,
            tested_examples,
            tokens: sizes.tokens_per_example() as f64,
            labels: sizes.labels_per_example as f64,
            vocabulary: sizes.vocab_size as f64,
            data_bytes,
        }
    }
}

/// The sizes of a model that follow from its mixer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelSizes {
    /// Parameters of one block.
    pub block: f64,
    /// Parameters of a classifier outside its blocks; `None` of a language model.
    pub outside: Option<f64>,
    /// State of one mixer after a sequence of 1 and of 2.
    state: [f64; 2],
}

impl ModelSizes {
    /// Runs with the same key have the same sizes.
    pub fn key(run: &RunConfig, task: &Sizes) -> String {
        // Nothing that a task decides is counted of a language model here.
        let task = run.model.classifier.as_ref().map(|_| Sizes {
            examples: [0; 3],
            ..*task
        });
        format!("{:?} {task:?}", run.model)
    }

    /// Builds models of one block: the only way to know what a mixer makes of its options.
    pub fn of(model: &ModelConfig, task: &Sizes) -> Result<Self> {
        match model.classifier {
            Some(_) => Self::of_classifier(model, task),
            None => Self::of_language_model(model),
        }
    }

    fn of_language_model(model: &ModelConfig) -> Result<Self> {
        let model = ModelConfig {
            n_layers: 1,
            positions: false,
            ..model.clone()
        };
        let io = Io {
            vocab_size: 2,
            seq_len: 2,
        };
        let params = Params::seeded(0, DType::F32, &Device::Cpu);
        let built = Model::new(&model, io, &params)?;
        let embedding = tables(&model) * io.vocab_size * model.d_model;
        Ok(Self {
            block: (params.count() - embedding) as f64,
            outside: None,
            state: [1, 2].map(|length| built.state_size(length) as f64),
        })
    }

    fn of_classifier(model: &ModelConfig, task: &Sizes) -> Result<Self> {
        let of = |n_layers: usize| -> Result<(usize, Classifier)> {
            let model = ModelConfig {
                n_layers,
                ..model.clone()
            };
            let params = Params::seeded(0, DType::F32, &Device::Cpu);
            let built = Classifier::new(&model, task, &params)?;
            Ok((params.count(), built))
        };
        let ((one, built), (two, _)) = (of(1)?, of(2)?);
        Ok(Self {
            block: (two - one) as f64,
            outside: Some((2 * one - two) as f64),
            state: [1, 2].map(|length| built.state_size(length) as f64),
        })
    }

    /// State of one mixer after `length` tokens: constant, or linear in the length in softmax attention.
    pub fn state(&self, length: f64) -> f64 {
        self.state[0] + (self.state[1] - self.state[0]) * (length - 1.0)
    }
}

/// Tables of V rows in a language model: one for tokens, which may serve the head as well.
pub(super) fn tables(model: &ModelConfig) -> usize {
    1 + usize::from(model.language.is_some())
}
