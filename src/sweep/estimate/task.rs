//! What the estimate asks of a task, and nothing else in it does: numbers, models of its kind, data for a probe.

use crate::config::{Generator, LraConfig, ModelConfig, RunConfig, TaskConfig};
use crate::error::Result;
use crate::model::{Classifier, Io, Model};
use crate::nn::Params;
use crate::tasks::lra::{Examples, Splits};
use crate::tasks::wikitext::{self, Counts, Ids, Text};
use crate::tasks::{self, Data};
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
    pub fn of(task: &TaskConfig) -> Self {
        let examples = (task.train_examples() + task.tested_examples()) as f64;
        let data_bytes = match task {
            // Tokens, and position and answer of every label, of 4 bytes each.
            TaskConfig::Mqar(mqar) => 4.0 * examples * (mqar.seq_len + 2 * mqar.kv_pairs) as f64,
            TaskConfig::Lra(_) => examples * task.tokens_per_example() as f64,
            // A map of a file takes none.
            TaskConfig::Wikitext(_) => 0.0,
        };
        Self {
            train_examples: task.train_examples(),
            tested_examples: task.tested_examples(),
            tokens: task.tokens_per_example() as f64,
            labels: task.labels_per_example() as f64,
            vocabulary: task.vocab_size() as f64,
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
    pub fn key(run: &RunConfig) -> String {
        match &run.task {
            TaskConfig::Mqar(_) | TaskConfig::Wikitext(_) => format!("{:?}", run.model),
            TaskConfig::Lra(task) => format!("{:?} {}", run.model, task.dataset.name()),
        }
    }

    /// Builds models of one block: the only way to know what a mixer makes of its options.
    pub fn of(run: &RunConfig) -> Result<Self> {
        match &run.task {
            TaskConfig::Mqar(_) | TaskConfig::Wikitext(_) => Self::of_language_model(&run.model),
            TaskConfig::Lra(task) => Self::of_classifier(&run.model, task),
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

    fn of_classifier(model: &ModelConfig, task: &LraConfig) -> Result<Self> {
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

/// Data of `examples` examples of full length that need no file, whatever tokens they hold; `task` is changed to
/// fit them.
pub(super) fn probe_data(task: &mut TaskConfig, examples: usize) -> Result<Data> {
    match task {
        TaskConfig::Mqar(mqar) => {
            mqar.data = Generator::Native;
            (mqar.train_examples, mqar.test_examples) = (examples, 1);
            tasks::load(task, None)
        }
        TaskConfig::Lra(lra) => {
            let document = vec![1; lra.seq_len];
            let documents = vec![&document[..]; lra.dataset.documents()];
            let mut train = Examples::new(documents.len());
            (0..examples).for_each(|_| train.push(&documents, 0));
            Ok(Data::Documents(Splits {
                test: train.select([0]),
                val: Examples::new(documents.len()),
                train,
                warnings: Vec::new(),
            }))
        }
        TaskConfig::Wikitext(config) => {
            let window = config.seq_len;
            let text = |windows: usize| {
                let ids = Ids::Held(vec![1; windows * window + 1].into());
                Text::new(ids, Counts::default(), window, None)
            };
            Ok(Data::Text(wikitext::Splits {
                train: text(examples),
                val: text(1),
                test: text(1),
                warnings: Vec::new(),
            }))
        }
    }
}
