//! How much work and memory a run takes, counted from its sizes.

use super::task::{tables, ModelSizes, TaskSizes};
use crate::config::RunConfig;
use crate::error::Result;
use crate::tasks::Sizes;
use std::collections::HashMap;

/// A multiply and an add, forward and twice backward.
const FLOPS_PER_WEIGHT: f64 = 6.0;
/// A state entry costs more than a weight: it is decayed, driven and read. Mixers differ widely
/// (matrix products or exponentials), which is why each of them is timed.
const FLOPS_PER_STATE: f64 = 60.0;
/// AdamW is bound by memory: five numbers per parameter take as long as this many flops.
const FLOPS_PER_UPDATE: f64 = 500.0;
/// An evaluation is a forward pass alone.
const EVALUATION: f64 = 1.0 / 3.0;

const FLOAT: f64 = 4.0;
/// Weight, gradient, two moments, and the weight's successor.
const FLOATS_PER_PARAMETER: f64 = 5.0;
/// With micro-batches, the gradients of one beside their accumulated sum.
const FLOATS_PER_ACCUMULATED_PARAMETER: f64 = 1.0;
/// Labelled rows whose logits exist at one time.
const HEAD_ROWS: f64 = 128.0;
/// Residual stream, norms and their gradients in a block, for each of its d channels.
const FLOATS_PER_CHANNEL: f64 = 7.0;
/// Queries and keys after rotary embedding, and a copy of those, values and outputs by head, in Pythia's
/// attention; measured at full size.
const FLOATS_PER_CHANNEL_OF_HEADS: f64 = 6.0;
/// The output of a projection, and sometimes of a function of it.
const FLOATS_PER_FEATURE: f64 = 1.25;
/// The program itself, its threads and their scratch memory.
const PROGRAM: f64 = 96e6;

/// Sizes of models, each built once.
#[derive(Default)]
pub(super) struct SizeCache(HashMap<String, ModelSizes>);

impl SizeCache {
    pub fn sizes(&mut self, run: &RunConfig, task: &Sizes) -> Result<ModelSizes> {
        let key = ModelSizes::key(run, task);
        if let Some(known) = self.0.get(&key) {
            return Ok(*known);
        }
        let sizes = ModelSizes::of(&run.model, task)?;
        self.0.insert(key, sizes);
        Ok(sizes)
    }
}

/// A run in numbers; work is in flops, or in flops that take as long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    /// Work of one training example in one step.
    pub example: f64,
    /// Work of one optimizer step, whatever its batch.
    pub update: f64,
    /// Work of one epoch with its evaluation.
    pub epoch: f64,
    /// Most memory at once.
    pub bytes: f64,
}

impl Work {
    pub fn new(run: &RunConfig, task: &Sizes, model: ModelSizes) -> Result<Self> {
        let task = TaskSizes::new(run.task.entry()?.objective, task);
        let (d, layers) = (run.model.d_model as f64, run.model.n_layers as f64);
        let positions = if run.model.positions {
            task.tokens
        } else {
            0.0
        };
        let rows = tables(&run.model) as f64 * task.vocabulary + positions;
        let parameters = model.outside.unwrap_or(rows * d) + layers * model.block;
        let blocks = FLOPS_PER_WEIGHT * model.block + FLOPS_PER_STATE * model.state(task.tokens);
        let head = match model.outside {
            Some(_) => 0.0,
            None => FLOPS_PER_WEIGHT * task.labels * task.vocabulary * d,
        };
        let example = task.tokens * layers * blocks + head;
        let update = FLOPS_PER_UPDATE * parameters;
        let steps = task.train_examples.div_ceil(run.train.batch_size) as f64;
        let accumulated = match run.train.micro_batch {
            Some(_) => FLOATS_PER_ACCUMULATED_PARAMETER,
            None => 0.0,
        };
        let evaluated = EVALUATION * task.tested_examples as f64;
        Ok(Self {
            example,
            update,
            epoch: steps * update + (task.train_examples as f64 + evaluated) * example,
            bytes: FLOAT * (FLOATS_PER_PARAMETER + accumulated) * parameters
                + task.data_bytes
                + step_bytes(run, &task, &model)
                + PROGRAM,
        })
    }

    /// Work of one step with `batch` examples.
    pub fn step(&self, batch: usize) -> f64 {
        self.update + batch as f64 * self.example
    }
}

/// Bytes that a step keeps for its backward pass.
fn step_bytes(run: &RunConfig, task: &TaskSizes, model: &ModelSizes) -> f64 {
    let step = run.train.micro_batch.unwrap_or(run.train.batch_size);
    let examples = step.min(task.train_examples) as f64;
    let (d, layers) = (run.model.d_model as f64, run.model.n_layers as f64);
    // A map from d channels has as many features as it has weights for each of them.
    let features = model.block / d;
    let by_head = match (&run.model.language, run.model.n_heads) {
        (Some(_), 2..) => FLOATS_PER_CHANNEL_OF_HEADS,
        _ => 0.0,
    };
    let token = layers * ((FLOATS_PER_CHANNEL + by_head) * d + FLOATS_PER_FEATURE * features);
    let head = match model.outside {
        Some(_) => 0.0,
        None => HEAD_ROWS * task.vocabulary,
    };
    FLOAT * (examples * task.tokens * token + head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;

    fn model(run: &RunConfig) -> ModelSizes {
        let task = run.task.sizes().unwrap();
        SizeCache::default().sizes(run, &task).unwrap()
    }

    fn of(run: &RunConfig) -> Work {
        Work::new(run, &run.task.sizes().unwrap(), model(run)).unwrap()
    }

    fn work(changes: &[(&str, &str)]) -> Work {
        let full = [("preset", "full"), ("batch-size", "512")];
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

    fn pythia_70m() -> Work {
        of(&recipes::run("wikitext", &[("preset", "full")]).unwrap())
    }

    /// Its final norm is counted in every block.
    #[test]
    fn the_parameters_of_pythia_70m_are_those_of_two_tables_and_six_blocks() {
        let parameters = pythia_70m().update / FLOPS_PER_UPDATE;
        assert_eq!(parameters, 70_426_624.0 + 5.0 * 1024.0);
    }

    /// A run with 16 windows a step held 4.62 GB at most.
    #[test]
    fn the_memory_of_pythia_70m_is_what_was_measured() {
        let bytes = pythia_70m().bytes;
        assert!((bytes / 4.62e9 - 1.0).abs() < 0.05, "{bytes}");
    }

    #[test]
    fn an_epoch_is_its_steps_and_an_evaluation() {
        let work = work(&[
            ("train-examples", "64"),
            ("test-examples", "30"),
            ("batch-size", "32"),
        ]);
        let epoch = 2.0 * work.step(32) + 10.0 * work.example;
        assert!((work.epoch / epoch - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_state_of_softmax_attention_grows_with_the_sequence_and_that_of_ssd_does_not() {
        let state = |mixer: &str| {
            let run = recipes::run("mqar", &[("preset", "full"), ("mixer", mixer)]).unwrap();
            let sizes = model(&run);
            [64.0, 128.0].map(|length| sizes.state(length))
        };
        assert_eq!(state("softmax"), [64.0 * 128.0, 128.0 * 128.0]);
        let [short, long] = state("ssd");
        assert_eq!(short, long);
    }
}
