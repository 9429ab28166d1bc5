//! One run as one row of a summary.

use super::columns::{Column, Role, COLUMNS, SCHEMA};
use super::{Outcome, RunResult, RunStatus};
use crate::config::{Precision, RunConfig, TaskConfig};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A run and its result, flat. What the columns mean stands in [`COLUMNS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Version of these columns.
    pub schema: u32,
    /// Twelve hex digits over the config.
    pub run_id: String,
    /// Version of the meaning of a config.
    pub format: u32,
    /// Task name.
    pub task: String,
    /// Paper, reference or matched.
    pub protocol: String,
    /// Sequence mixer.
    pub mixer: String,
    /// Variant of the mixer.
    pub variant: String,
    /// Options of the mixer, name=value;name=value.
    pub options: String,
    /// Embedding width.
    pub d: usize,
    /// State expansion; query and key width of attention.
    pub n: usize,
    /// Heads.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Residual layout of a block.
    pub layout: String,
    /// What follows the mixer in a block.
    pub state_mixer: String,
    /// Whether position embeddings are learnt.
    pub positions: bool,
    /// Tokens an example, L.
    pub seq_len: usize,
    /// Key-value pairs an example, k.
    pub kv_pairs: usize,
    /// Vocabulary, V.
    pub vocab_size: usize,
    /// Training examples.
    pub train_examples: usize,
    /// Test examples.
    pub test_examples: usize,
    /// Generator of the examples.
    pub data: String,
    /// Seed of the data.
    pub data_seed: u64,
    /// Peak learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Numbers computed with.
    #[serde(default = "usual_precision")]
    pub precision: String,
    /// Dropout on the embeddings.
    pub embed_dropout: f64,
    /// Dropout on attention weights.
    pub attn_dropout: f64,
    /// How the learning rate moves.
    pub schedule: String,
    /// Examples a step.
    pub batch_size: usize,
    /// Epochs at most.
    pub epochs_max: usize,
    /// Test accuracy above which training ends.
    pub stop_above: f64,
    /// Seed of initial weights and dropout.
    pub seed: u64,
    /// Done or failed.
    pub status: Option<RunStatus>,
    /// Converged, finished or diverged.
    pub outcome: Option<Outcome>,
    /// Why the run failed.
    pub reason: String,
    /// Test accuracy after the last epoch.
    pub accuracy: Option<f64>,
    /// Highest test accuracy after any epoch.
    pub best_accuracy: Option<f64>,
    /// Epoch of the highest accuracy, from 1.
    pub best_epoch: Option<usize>,
    /// Epochs trained.
    pub epochs_run: usize,
    /// Training loss of the last epoch.
    pub train_loss: Option<f64>,
    /// Test loss after the last epoch.
    pub test_loss: Option<f64>,
    /// Trained numbers of the model.
    pub params: Option<usize>,
    /// Numbers carried from token to token, all layers.
    pub state_size: Option<usize>,
    /// Optimizer steps.
    pub steps: usize,
    /// Training and testing, summed over interruptions.
    pub seconds: f64,
    /// Training tokens a second.
    pub tokens_per_s: Option<f64>,
    /// Most memory the process held.
    pub peak_memory_bytes: Option<u64>,
    /// Device trained on.
    pub device: String,
    /// Threads in use.
    pub threads: usize,
    /// Name of the host.
    pub host: String,
    /// Model of the processor.
    pub cpu: String,
    /// Version of dsf.
    pub version: String,
    /// Commit it was built from, -dirty with changes.
    pub git_commit: String,
    /// When the run was first begun.
    pub started: String,
    /// When it ended.
    pub ended: String,
    /// Which implementations the ops took.
    pub ops: String,
}

impl Row {
    /// The row of a finished run.
    pub fn new(config: &RunConfig, result: &RunResult) -> Self {
        let origin = &result.provenance;
        Self {
            status: Some(result.status),
            outcome: result.outcome,
            reason: result.reason.clone(),
            accuracy: result.accuracy,
            best_accuracy: result.best_accuracy,
            best_epoch: result.best_epoch,
            epochs_run: result.epochs_run,
            train_loss: result.train_loss,
            test_loss: result.test_loss,
            params: result.params,
            state_size: result.state_size,
            steps: result.steps,
            seconds: result.seconds,
            tokens_per_s: result.tokens_per_s,
            peak_memory_bytes: result.peak_memory_bytes,
            device: origin.device.clone(),
            threads: origin.threads,
            host: origin.host.clone(),
            cpu: origin.cpu.clone(),
            version: origin.version.clone(),
            git_commit: origin.commit(),
            started: result.started.clone(),
            ended: result.ended.clone(),
            ops: result.ops.clone(),
            ..Self::planned(config)
        }
    }

    /// The row of a run without a result: its settings alone.
    pub fn planned(config: &RunConfig) -> Self {
        let (model, train) = (&config.model, &config.train);
        Self {
            schema: SCHEMA,
            run_id: config.id(),
            format: config.format,
            task: config.task.name().into(),
            protocol: config.protocol.as_str().into(),
            mixer: model.mixer.clone(),
            variant: model.variant.clone(),
            options: joined(&model.options),
            d: model.d_model,
            n: model.d_state,
            heads: model.n_heads,
            layers: model.n_layers,
            layout: spelling(&model.layout),
            state_mixer: spelling(&model.state_mixer),
            positions: model.positions,
            lr: train.lr,
            weight_decay: train.weight_decay,
            precision: spelling(&train.precision),
            embed_dropout: model.embed_dropout,
            attn_dropout: model.attn_dropout,
            schedule: spelling(&train.schedule),
            batch_size: train.batch_size,
            epochs_max: train.epochs,
            stop_above: train.stop_above,
            seed: config.seed,
            ..Self::of_task(&config.task)
        }
    }

    fn of_task(task: &TaskConfig) -> Self {
        let common = Self {
            seq_len: task.seq_len(),
            vocab_size: task.vocab_size(),
            train_examples: task.train_examples(),
            ..Self::default()
        };
        match task {
            TaskConfig::Mqar(mqar) => Self {
                kv_pairs: mqar.kv_pairs,
                test_examples: mqar.test_examples,
                data: spelling(&mqar.data),
                data_seed: mqar.data_seed,
                ..common
            },
            TaskConfig::Lra(lra) => Self {
                test_examples: lra.test_examples,
                data: spelling(&lra.data),
                data_seed: lra.data_seed,
                ..common
            },
        }
    }

    /// The columns of one role with their values, in the order of the table.
    pub fn values(&self, role: Role) -> Vec<(&'static Column, Value)> {
        let row = serde_json::to_value(self).expect("a row is plain data");
        let columns = COLUMNS.iter().filter(|column| column.role == role);
        columns.map(|c| (c, row[c.name].clone())).collect()
    }
}

/// That of files written before there was a choice.
fn usual_precision() -> String {
    spelling(&Precision::default())
}

fn joined(options: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = options.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(";")
}

/// An enum's value as its config spells it.
fn spelling(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        other => unreachable!("a unit variant is a string, not {other:?}"),
    }
}

#[cfg(test)]
mod tests;
