//! One run from its config to its result on disk: takes the folder, continues from a checkpoint,
//! trains, records.

mod keeper;

use super::raised;
use crate::config::{RunConfig, TaskConfig};
use crate::error::{Error, Result};
use crate::ops;
use crate::store::{
    peak_memory_bytes, EpochRow, Metrics, Provenance, RunDir, RunResult, RunStatus, Status, Store,
};
use crate::tasks;
use crate::train::{Event, Trainer};
use candle_core::Device;
use keeper::Keeper;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where and how a run is trained.
pub(super) struct Host<'a> {
    pub store: &'a Store,
    pub device: &'a Device,
    pub device_name: &'a str,
    /// Whether steps on a GPU are recorded.
    pub cuda_graph: bool,
    /// Where data that is not generated lies, if not where downloads do.
    pub data_dir: Option<&'a Path>,
    pub threads: usize,
    /// Time between checkpoints, if not the usual one.
    pub checkpoint_every: Option<Duration>,
    pub stop: &'a AtomicBool,
}

/// What a run tells while it is trained.
pub(super) enum Update<'a> {
    /// Training begins, after `done` epochs of an earlier process.
    Start {
        parameters: usize,
        steps_per_epoch: usize,
        done: usize,
    },
    /// A step was made.
    Step {
        epoch: usize,
        step: usize,
        loss: f64,
        seconds: f64,
    },
    /// An epoch is over.
    Epoch(&'a EpochRow),
    /// Something that the user should know but that stops nothing.
    Warning(String),
}

/// Trains `config` to its end, or gives its result if that is known already. A tensor error
/// becomes a failed result; a signal leaves a checkpoint and is [`Error::Stopped`].
pub(super) fn execute(
    config: &RunConfig,
    host: &Host,
    on: &mut dyn FnMut(Update) -> Result<()>,
) -> Result<RunResult> {
    let provenance = Provenance::collect(host.device_name, host.threads);
    let dir = host.store.begin(config, &provenance)?;
    if let Some(result) = dir.result()? {
        return Ok(result);
    }
    let result = match train(config, host, &dir, &provenance, on) {
        Ok(result) => result,
        Err(Error::Tensor(e)) => RunResult::failed(&e.to_string(), dir.started(), provenance),
        Err(e) => return Err(e),
    };
    let id = dir.id().to_owned();
    match dir.finish(&result) {
        // The result is safe; the summary is rebuilt by whoever finishes next.
        Err(e) if host.store.status(&id)? != Status::Started => on(Update::Warning(e.to_string()))?,
        finished => finished?,
    }
    Ok(result)
}

fn train(
    config: &RunConfig,
    host: &Host,
    dir: &RunDir,
    provenance: &Provenance,
    on: &mut dyn FnMut(Update) -> Result<()>,
) -> Result<RunResult> {
    let data = tasks::load(&config.task, host.data_dir)?;
    for warning in data.warnings() {
        on(Update::Warning(warning.clone()))?;
    }
    let mut trainer = Trainer::new(config, &data, host.device)?;
    if host.cuda_graph {
        trainer.record_steps();
    }
    if let Some(bytes) = dir.read_checkpoint()? {
        trainer.restore(&bytes, &dir.checkpoint_path().display().to_string())?;
    }
    on(Update::Start {
        parameters: trainer.parameters(),
        steps_per_epoch: trainer.steps_per_epoch(),
        done: trainer.progress().epochs.len(),
    })?;
    let steps = trainer.progress().step;
    let mut keeper = Keeper::new(dir, config, steps, host.checkpoint_every)?;
    if let Some(warning) = keeper.warning() {
        on(Update::Warning(warning))?;
    }
    let outcome = trainer.run(&mut |trainer, event| {
        match event {
            Event::Step { loss, lr } => {
                keeper.step(trainer, loss, lr);
                on(Update::Step {
                    epoch: trainer.progress().epochs.len() + 1,
                    step: trainer.step_in_epoch(),
                    loss: trainer.mean_loss(),
                    seconds: trainer.seconds(),
                })?;
            }
            Event::Epoch(row) => {
                keep(keeper.epoch(trainer), on)?;
                on(Update::Epoch(row))?;
            }
        }
        let stop = raised(host.stop);
        if stop || keeper.is_due() {
            let written = keeper.checkpoint(trainer);
            if stop {
                return Err(written.err().unwrap_or(Error::Stopped));
            }
            keep([written], on)?;
        }
        Ok(())
    })?;
    keep(keeper.end(&trainer, outcome), on)?;
    let mut metrics = metrics(&trainer).with("majority", data.majority());
    metrics.extend(&trainer.language_scores(outcome)?);
    Ok(RunResult {
        status: RunStatus::Done,
        outcome: Some(outcome),
        metrics,
        ops: ops::taken().to_owned(),
        data_digest: data.digest(),
        ..RunResult::failed("", dir.started(), provenance.clone())
    })
}

/// A full disk in the middle of training costs what was to be written, not the run.
fn keep<const N: usize>(
    written: [Result<()>; N],
    on: &mut dyn FnMut(Update) -> Result<()>,
) -> Result<()> {
    let mut failed = written.into_iter().filter_map(Result::err);
    failed.try_for_each(|e| on(Update::Warning(format!("{e}; training goes on"))))
}

/// What every task measures.
fn metrics(trainer: &Trainer) -> Metrics {
    let epochs = &trainer.progress().epochs;
    let last = epochs.last();
    // Of equal accuracies the earliest epoch counts.
    let best = epochs
        .iter()
        .rev()
        .max_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    let selected = trainer.selected();
    let finite = |x: f64| Some(x).filter(|x| x.is_finite());
    Metrics::default()
        .with("accuracy", last.map(|e| e.accuracy))
        .with("best_accuracy", best.map(|e| e.accuracy))
        .with("best_epoch", best.map(|e| e.epoch))
        .with("epochs_run", epochs.len())
        .with("train_loss", last.and_then(|e| finite(e.train_loss)))
        .with("test_loss", last.and_then(|e| finite(e.test_loss)))
        .with("params", trainer.parameters())
        .with("state_size", trainer.state_size())
        .with("steps", trainer.progress().step)
        .with("seconds", trainer.seconds())
        .with("tokens_per_s", last.and_then(|e| finite(e.tokens_per_s)))
        .with("peak_memory_bytes", peak_memory_bytes())
        .with("val_accuracy", selected.and_then(|e| e.val_accuracy))
        .with("selected_epoch", selected.map(|e| e.epoch))
        .with("selected_accuracy", selected.map(|e| e.accuracy))
}

/// The task as a person would name it: `MQAR (L = 64, 4 pairs)`.
pub(super) fn task_title(task: &TaskConfig) -> String {
    match task {
        TaskConfig::Mqar(m) => format!("MQAR (L = {}, {} pairs)", m.seq_len, m.kv_pairs),
        TaskConfig::Lra(lra) => format!("LRA {}", lra.dataset.name()),
        TaskConfig::Wikitext(text) => {
            format!(
                "{} (L = {}, {})",
                text.corpus.name(),
                text.seq_len,
                text.tokenizer
            )
        }
    }
}
