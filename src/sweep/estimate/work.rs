//! Work and memory of a run, computed from its sizes.

use crate::config::{ModelConfig, PositionEmbedding, RunConfig};
use crate::error::Result;
use crate::mixers;
use crate::model::{Classifier, Io, LanguageModel};
use crate::nn::Params;
use crate::tasks::{ExampleSizes, Objective};
use candle_core::DType;
use std::collections::HashMap;

/// A multiplication and an addition, once forward and twice backward.
const FLOPS_PER_WEIGHT: f64 = 6.0;
/// A state entry costs more than a weight: it is decayed, updated and read. Mixers differ widely (matrix products or
/// exponentials), which is why each of them is timed.
const FLOPS_PER_STATE: f64 = 60.0;
/// AdamW is bound by memory bandwidth: five numbers per parameter take as long as this many flops.
const FLOPS_PER_UPDATE: f64 = 500.0;
/// An evaluation is only a forward pass.
const EVALUATION: f64 = 1.0 / 3.0;

const FLOAT: f64 = 4.0;
/// Weight, gradient, two moments, and the updated weight.
const FLOATS_PER_PARAMETER: f64 = 5.0;
/// A constant, and the tensors it was computed from.
const FLOATS_PER_CONSTANT: f64 = 3.0;
/// Micro-batches need their own gradients beside the accumulated sum.
const FLOATS_PER_ACCUMULATED_PARAMETER: f64 = 1.0;
/// Number of labelled rows whose logits exist at the same time.
const HEAD_ROWS: f64 = 128.0;
/// Residual stream, norms and their gradients in a block, per channel.
const FLOATS_PER_CHANNEL: f64 = 7.0;
/// Queries and keys after rotary embedding, and a copy per head of queries, keys, values and outputs, in Pythia's
/// attention; measured at full size.
const FLOATS_PER_CHANNEL_OF_HEADS: f64 = 6.0;
/// Output of a projection, and sometimes of its activation.
const FLOATS_PER_FEATURE: f64 = 1.25;
/// A feature of a map of queries and keys: its input, its value, its scaled value, and their gradients.
const FLOATS_PER_MAPPED_FEATURE: f64 = 6.0;
/// The program itself, its threads and their scratch memory.
const PROGRAM: f64 = 96e6;

/// Cache of model sizes, each computed once.
#[derive(Default)]
pub(super) struct SizeCache(HashMap<String, ModelSizes>);

impl SizeCache {
    pub fn work(&mut self, run: &RunConfig) -> Result<RunWork> {
        let task = run.task.sizes()?;
        RunWork::new(run, &task, self.sizes(run, &task)?)
    }

    pub fn sizes(&mut self, run: &RunConfig, task: &ExampleSizes) -> Result<ModelSizes> {
        let key = ModelSizes::key(run, task);
        if let Some(known) = self.0.get(&key) {
            return Ok(*known);
        }
        let sizes = ModelSizes::of(&run.model, task)?;
        self.0.insert(key, sizes);
        Ok(sizes)
    }
}

/// Work and memory of a run. Work is in flops, or in flops that take as long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RunWork {
    /// Work of one training example in one step.
    pub example: f64,
    /// Work of one optimizer step, independent of its batch.
    pub update: f64,
    /// Work of one epoch including its evaluation.
    pub epoch: f64,
    /// Peak memory in bytes.
    pub bytes: f64,
}

impl RunWork {
    pub fn new(run: &RunConfig, task: &ExampleSizes, model: ModelSizes) -> Result<Self> {
        let (d, layers) = (run.model.d_model as f64, run.model.n_layers as f64);
        let vocabulary = task.vocab_size as f64;
        let learnt = run.model.positions && run.model.position_embedding == PositionEmbedding::Learnt;
        let positions = f64::from(learnt) * task.longest() as f64;
        let rows = tables(&run.model) as f64 * vocabulary + positions;
        let parameters = model.outside.unwrap_or(rows * d) + layers * model.block;
        let head = model.outside.map_or(FLOPS_PER_WEIGHT * task.labels_per_example as f64 * vocabulary * d, |_| 0.0);
        let example = |tokens: usize| {
            let (tokens, state) = (tokens as f64, model.state(tokens as f64));
            let blocks = FLOPS_PER_WEIGHT * model.block + FLOPS_PER_STATE * state;
            tokens * layers * blocks + head
        };
        let tested = example(task.tokens_per_tested_example());
        let example = example(task.tokens_per_example());
        let update = FLOPS_PER_UPDATE * parameters;
        let steps = task.examples[0].div_ceil(run.train.batch_size) as f64;
        let accumulated = run.train.micro_batch.map_or(0.0, |_| FLOATS_PER_ACCUMULATED_PARAMETER);
        let evaluated = EVALUATION * task.tested_examples() as f64;
        Ok(Self {
            example,
            update,
            epoch: steps * update + task.examples[0] as f64 * example + evaluated * tested,
            bytes: FLOAT * (FLOATS_PER_PARAMETER + accumulated) * parameters
                + FLOAT * FLOATS_PER_CONSTANT * layers * model.constants
                + data_bytes(run.task.entry()?.objective, task)
                + step_bytes(run, task, &model).max(test_bytes(run, task, &model))
                + PROGRAM,
        })
    }

    /// Work of one step with `batch` examples.
    pub fn step(&self, batch: usize) -> f64 {
        self.update + batch as f64 * self.example
    }
}

/// Size of the data of all splits in memory, in bytes.
fn data_bytes(objective: Objective, task: &ExampleSizes) -> f64 {
    let [trained, tested] = [task.examples[0], task.tested_examples()].map(|count| count as f64);
    match objective {
        // Tokens, and position and answer of every label, 4 bytes each.
        Objective::PerToken => {
            let numbers = |seq_len: usize| (seq_len + 2 * task.labels_per_example) as f64;
            4.0 * (trained * numbers(task.seq_len) + tested * numbers(task.test_seq_len))
        }
        Objective::Pooled => (trained + tested) * task.tokens_per_example() as f64,
        // Memory-mapped files take none.
        Objective::NextToken => 0.0,
    }
}

/// Bytes that a step keeps for its backward pass.
fn step_bytes(run: &RunConfig, task: &ExampleSizes, model: &ModelSizes) -> f64 {
    let layers = run.model.n_layers as f64;
    let examples = at_once(run, task.examples[0]) * task.tokens_per_example() as f64;
    let head = model.outside.map_or(HEAD_ROWS * task.vocab_size as f64, |_| 0.0);
    FLOAT * (examples * layers * token_floats(run, model, task.seq_len) + head)
}

/// Bytes of one batch of an evaluation, in which no layer's activations outlive the next layer. If the sequences are
/// not longer than in training, a training step takes more.
fn test_bytes(run: &RunConfig, task: &ExampleSizes, model: &ModelSizes) -> f64 {
    let examples = at_once(run, task.tested_examples());
    let of_token = token_floats(run, model, task.test_seq_len);
    FLOAT * examples * task.tokens_per_tested_example() as f64 * of_token
}

/// Number of `examples` that go through the model together.
fn at_once(run: &RunConfig, examples: usize) -> f64 {
    run.train.micro_batch.unwrap_or(run.train.batch_size).min(examples) as f64
}

/// Number of floats per token in one layer, for sequences of this length.
fn token_floats(run: &RunConfig, model: &ModelSizes, seq_len: usize) -> f64 {
    let (d, layers) = (run.model.d_model as f64, run.model.n_layers as f64);
    // The number of features is the number of weights per input channel.
    let features = model.block / d;
    let by_head = match (&run.model.language, run.model.n_heads) {
        (Some(_), 2..) => FLOATS_PER_CHANNEL_OF_HEADS,
        _ => 0.0,
    };
    let of_model = mixers::of_model(&run.model).unwrap_or_default();
    let mapped = of_model.iter().map(|(mixer, model, count)| {
        let of_token = mixer
            .work(&**model)
            .map_or(0.0, |work| FLOATS_PER_MAPPED_FEATURE * work.features as f64 + work.pairs[1] * seq_len as f64);
        of_token * *count as f64 / layers
    });
    let mapped = mapped.sum::<f64>();
    let channels = (FLOATS_PER_CHANNEL + by_head) * d;
    channels + FLOATS_PER_FEATURE * features + mapped
}

/// Sizes of a model that depend on its mixer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelSizes {
    /// Parameters per block, averaged over the layers.
    pub block: f64,
    /// Parameters of a classifier outside its blocks; `None` for a language model.
    pub outside: Option<f64>,
    /// Number of elements in constants per block, averaged over the layers.
    constants: f64,
    /// State size of one mixer, averaged over the layers, after the numbers of tokens in [`LENGTHS`].
    state: [f64; 3],
}

/// The first two give the growth of a state per token, the last its limit.
const LENGTHS: [usize; 3] = [1, 2, 1 << 40];

impl ModelSizes {
    /// Key of the cache: runs with the same key have the same sizes.
    pub fn key(run: &RunConfig, task: &ExampleSizes) -> String {
        // For a language model, nothing here depends on the task.
        let task = run.model.classifier.as_ref().map(|_| ExampleSizes { examples: [0; 3], ..*task });
        format!("{:?} {task:?}", run.model)
    }

    /// Builds models of few blocks without values: the sizes depend on the mixer's options, and only the mixer knows
    /// how.
    pub fn of(model: &ModelConfig, task: &ExampleSizes) -> Result<Self> {
        match model.classifier {
            Some(_) => Self::of_classifier(model, task),
            None => Self::of_language_model(model),
        }
    }

    fn of_language_model(model: &ModelConfig) -> Result<Self> {
        let n_layers = different_layers(model);
        let model =
            ModelConfig { n_layers, positions: false, position_embedding: PositionEmbedding::Learnt, ..model.clone() };
        let io = Io { vocab_size: 2, seq_len: 2 };
        let params = Params::without_values(DType::F32);
        let built = LanguageModel::new(&model, io, &params)?;
        let embedding = tables(&model) * io.vocab_size * model.d_model;
        Ok(Self {
            block: (params.count() - embedding) as f64 / n_layers as f64,
            outside: None,
            constants: params.constants() as f64 / n_layers as f64,
            state: LENGTHS.map(|length| built.state_size(length) as f64 / n_layers as f64),
        })
    }

    fn of_classifier(model: &ModelConfig, task: &ExampleSizes) -> Result<Self> {
        let of = |n_layers: usize| -> Result<([usize; 2], Classifier)> {
            let model = ModelConfig { n_layers, ..model.clone() };
            let params = Params::without_values(DType::F32);
            let built = Classifier::new(&model, task, &params)?;
            Ok(([params.count(), params.constants()], built))
        };
        let n_layers = different_layers(model);
        let (([none, _], _), ([all, constants], built)) = (of(0)?, of(n_layers)?);
        Ok(Self {
            block: (all - none) as f64 / n_layers as f64,
            outside: Some(none as f64),
            constants: constants as f64 / n_layers as f64,
            state: LENGTHS.map(|length| built.state_size(length) as f64 / n_layers as f64),
        })
    }

    /// State size of one mixer after `length` tokens: constant, or linear in the length up to some window.
    pub fn state(&self, length: f64) -> f64 {
        let [first, second, last] = self.state;
        (first + (second - first) * (length - 1.0)).min(last)
    }
}

/// Number of layers to build so that every kind of layer is included.
fn different_layers(model: &ModelConfig) -> usize {
    match model.hybrid {
        Some(_) => model.n_layers,
        None => 1,
    }
}

/// Number of tables with V rows: two for Pythia, whose head has its own table, otherwise one, which tokens and head
/// share.
fn tables(model: &ModelConfig) -> usize {
    1 + usize::from(model.language.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;

    fn model(run: &RunConfig) -> ModelSizes {
        let task = run.task.sizes().unwrap();
        SizeCache::default().sizes(run, &task).unwrap()
    }

    fn of(run: &RunConfig) -> RunWork {
        RunWork::new(run, &run.task.sizes().unwrap(), model(run)).unwrap()
    }

    fn work(changes: &[(&str, &str)]) -> RunWork {
        let full = [("preset", "paper"), ("batch-size", "512")];
        of(&recipes::run("mqar", &[&full, changes].concat()).unwrap())
    }

    #[test]
    fn more_of_anything_is_more_work_and_memory() {
        let base = work(&[]);
        for larger in [
            work(&[("d", "128")]),
            work(&[("n", "128")]),
            work(&[("layers", "3")]),
            work(&[("vocab-size", "16384")]),
            work(&[("kv-pairs", "8")]),
            work(&[("seq-len", "66")]),
        ] {
            assert!(larger.example > base.example && larger.epoch > base.epoch);
            assert!(larger.bytes > base.bytes, "{larger:?}");
        }
    }

    fn pythia_70m() -> RunWork {
        of(&recipes::run("wikitext", &[("preset", "paper")]).unwrap())
    }

    /// The final norm is counted in every block.
    #[test]
    fn the_parameters_of_pythia_70m_are_those_of_two_tables_and_six_blocks() {
        let parameters = pythia_70m().update / FLOPS_PER_UPDATE;
        assert_eq!(parameters, 70_426_624.0 + 5.0 * 1024.0);
    }

    /// Measured: a run with 16 windows per step took at most 4.62 GB.
    #[test]
    fn the_memory_of_pythia_70m_is_what_was_measured() {
        let bytes = pythia_70m().bytes;
        assert!((bytes / 4.62e9 - 1.0).abs() < 0.05, "{bytes}");
    }

    #[test]
    fn an_epoch_is_its_steps_and_an_evaluation() {
        let work = work(&[("train-examples", "64"), ("test-examples", "30"), ("batch-size", "32")]);
        let epoch = 2.0 * work.step(32) + 10.0 * work.example;
        assert!((work.epoch / epoch - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_longer_test_is_more_work_an_epoch_and_not_a_step() {
        let (base, longer) = (work(&[]), work(&[("test-seq-len", "65536")]));
        assert_eq!(longer.example, base.example);
        assert!(longer.epoch > 100.0 * base.epoch && longer.bytes > 10.0 * base.bytes);
        let shorter = work(&[("test-seq-len", "32")]);
        assert!(shorter.epoch < base.epoch && shorter.bytes < base.bytes);
    }

    #[test]
    fn the_state_of_softmax_attention_grows_with_the_sequence_and_that_of_ssd_does_not() {
        let state = |mixer: &str| {
            let run = recipes::run("mqar", &[("preset", "paper"), ("mixer", mixer)]).unwrap();
            let sizes = model(&run);
            [64.0, 128.0].map(|length| sizes.state(length))
        };
        assert_eq!(state("softmax"), [64.0 * 128.0, 128.0 * 128.0]);
        let [short, long] = state("ssd");
        assert_eq!(short, long);
    }
}
