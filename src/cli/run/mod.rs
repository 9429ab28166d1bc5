//! One run from its config to its result on disk: claims the folder, resumes from a checkpoint, trains, and records.

mod recorder;

use super::device::{use_threads, DeviceChoice};
use super::{check_stop, initial, is_set, typed_command, Global};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::ops;
use crate::store::{
    peak_memory_bytes, Column, EpochRow, Failure, Metrics, Provenance, RunDir, RunResult, Status, Store,
};
use crate::sweep::Training;
use crate::tasks;
use crate::train::{Event, Trainer};
use candle_core::Device;
pub(super) use recorder::KeptWeights;
use recorder::RunRecorder;
use std::sync::atomic::AtomicBool;

/// Store, device and options for training a run.
pub(super) struct RunContext<'a> {
    pub store: Store,
    pub device: Device,
    pub device_name: String,
    pub training: &'a Training,
    /// Micro-batch size, if memory ran out with the configured one.
    pub micro_batch: Option<usize>,
    pub threads: usize,
    pub stop: &'a AtomicBool,
    /// Weights to keep; a sweep keeps only those of language models.
    pub kept: KeptWeights,
    /// Whether the process trains only this run, so that its peak memory is the run's.
    pub alone: bool,
}

impl<'a> RunContext<'a> {
    /// Opens the device and the results folder.
    pub fn open(device: DeviceChoice, training: &'a Training, stop: &'a AtomicBool, global: &Global) -> Result<Self> {
        let threads = global.threads()?;
        use_threads(threads)?;
        let (device, device_name) = device.open()?;
        Ok(Self {
            store: Store::open(&global.out)?,
            device,
            device_name,
            training,
            micro_batch: None,
            threads,
            stop,
            kept: KeptWeights::default(),
            alone: true,
        })
    }
}

/// Events of a run during training.
pub(super) enum RunEvent<'a> {
    /// Training begins, after `done` epochs of an earlier process.
    Start { parameters: usize, steps_per_epoch: usize, done: usize },
    /// Examples were generated, before training begins.
    Examples { made: usize, of: usize },
    /// A step was made.
    Step { epoch: usize, step: usize, loss: f64, seconds: f64 },
    /// An epoch is over.
    Epoch(&'a EpochRow),
    /// Warning for the user; training continues.
    Warning(String),
}

/// Trains `config` to its end, or returns its result if it is known already. A tensor error becomes a failed result; a
/// signal leaves a checkpoint and returns [`Error::Stopped`].
pub(super) fn execute(
    config: &RunConfig,
    context: &RunContext,
    on: &mut dyn FnMut(RunEvent) -> Result<()>,
) -> Result<RunResult> {
    let provenance = Provenance::collect(&context.device_name, context.threads).in_precision(config.train.precision);
    let provenance = Provenance { command: typed_command(), ..provenance };
    let dir = context.store.begin(config, &provenance)?;
    if let Some(result) = dir.result()? {
        // The summary lacks the row if a process was killed between result and summary.
        if let Err(e) = context.store.refresh_summary(config.task.name()) {
            on(RunEvent::Warning(e.to_string()))?;
        }
        return Ok(result);
    }
    let result = match train(config, context, &dir, &provenance, on) {
        Ok(result) => result,
        Err(e @ Error::Tensor(_)) => RunResult::failed(Failure::of(&e), dir.started(), provenance),
        Err(e) => return Err(e),
    };
    let id = dir.id().to_owned();
    match dir.finish(&result) {
        // The result is safe; the next run that finishes rebuilds the summary.
        Err(e) if context.store.status(&id)? != Status::Started => on(RunEvent::Warning(e.to_string()))?,
        finished => finished?,
    }
    Ok(result)
}

fn train(
    config: &RunConfig,
    context: &RunContext,
    dir: &RunDir,
    provenance: &Provenance,
    on: &mut dyn FnMut(RunEvent) -> Result<()>,
) -> Result<RunResult> {
    let data = tasks::load_watched(&config.task, context.training.data_dir.as_deref(), &mut |made, of| {
        check_stop(context.stop)?;
        on(RunEvent::Examples { made, of })
    })?;
    for warning in data.warnings() {
        on(RunEvent::Warning(warning.clone()))?;
    }
    let mut computed = config.clone();
    computed.train.micro_batch = context.micro_batch.or(config.train.micro_batch);
    let mut trainer = Trainer::new(&computed, &data, &context.device)?.recorded_under(config);
    if !context.training.no_cuda_graph {
        trainer.record_steps();
    }
    let resumed = resume(&mut trainer, dir, on)?;
    if let Some(from) = config.from.as_ref().filter(|_| !resumed) {
        trainer.start_from(&initial::open(from)?.values)?;
    }
    on(RunEvent::Start {
        parameters: trainer.parameters(),
        steps_per_epoch: trainer.steps_per_epoch(),
        done: trainer.progress().epochs.len(),
    })?;
    let steps = trainer.progress().step;
    let every = context.training.checkpoint_every;
    update_heartbeat(dir, config, &trainer);
    let mut recorder = RunRecorder::new(dir, config, steps, every, context.kept)?;
    if let Some(warning) = recorder.warning() {
        on(RunEvent::Warning(warning))?;
    }
    recorder.start(&trainer)?;
    let outcome = trainer.run(&mut |trainer, event| {
        match event {
            Event::Step { loss, lr } => {
                recorder.step(trainer, loss, lr);
                update_heartbeat(dir, config, trainer);
                on(RunEvent::Step {
                    epoch: trainer.progress().epochs.len() + 1,
                    step: trainer.step_in_epoch(),
                    loss: trainer.mean_loss(),
                    seconds: trainer.seconds(),
                })?;
            }
            Event::Epoch(row) => {
                if let Some(warning) = trainer.take_warning() {
                    on(RunEvent::Warning(warning))?;
                }
                warn_unless_busy(recorder.epoch(trainer)?, on)?;
                on(RunEvent::Epoch(row))?;
            }
        }
        let stop = is_set(context.stop);
        if (stop || recorder.is_due()) && trainer.settle() {
            let written = recorder.checkpoint(trainer);
            if stop {
                return Err(written.err().unwrap_or(Error::Stopped));
            }
            warn_unless_busy([written], on)?;
        }
        Ok(())
    })?;
    recorder.end(&trainer, outcome)?;
    let memory = context.alone.then(peak_memory_bytes).flatten();
    let mut metrics = metrics(&trainer).with(Column::PEAK_MEMORY_BYTES, memory).with(Column::MAJORITY, data.majority());
    metrics.extend(&trainer.language_scores(outcome)?);
    Ok(RunResult {
        ops: ops::taken().to_owned(),
        data_digest: data.digest(),
        micro_batch_used: context.micro_batch,
        ..RunResult::done(outcome, metrics, dir.started(), provenance.clone())
    })
}

/// Updates the run's heartbeat with its progress.
fn update_heartbeat(dir: &RunDir, config: &RunConfig, trainer: &Trainer) {
    let loss = Some(trainer.mean_loss()).filter(|loss| loss.is_finite());
    dir.update_heartbeat(|beat| {
        beat.epoch = trainer.progress().epochs.len();
        beat.epochs = config.train.epochs;
        beat.step = trainer.step_in_epoch();
        beat.steps = trainer.steps_per_epoch();
        beat.loss = loss;
        beat.seconds = trainer.seconds();
    });
}

/// Resumes from the newest intact checkpoint, and returns whether there is one. Without one, training starts again, which
/// gives the same numbers.
fn resume(trainer: &mut Trainer, dir: &RunDir, on: &mut dyn FnMut(RunEvent) -> Result<()>) -> Result<bool> {
    for checkpoint in dir.checkpoints() {
        let (path, bytes) = checkpoint?;
        match trainer.restore(&bytes, &path.display().to_string()) {
            Err(e @ Error::Corrupt(_)) => {
                on(RunEvent::Warning(format!("{e}; left out")))?;
                dir.discard_checkpoint(&path)?;
            }
            restored => return restored.map(|()| true),
        }
    }
    Ok(false)
}

/// Turns write errors during training into warnings, for example on a full disk. An error that another process has
/// taken over the run is returned.
fn warn_unless_busy<const N: usize>(
    written: [Result<()>; N],
    on: &mut dyn FnMut(RunEvent) -> Result<()>,
) -> Result<()> {
    written.into_iter().filter_map(Result::err).try_for_each(|e| match e {
        Error::Busy(_) => Err(e),
        e => on(RunEvent::Warning(format!("{e}; training goes on"))),
    })
}

/// Returns the metrics that every task has.
fn metrics(trainer: &Trainer) -> Metrics {
    let epochs = &trainer.progress().epochs;
    let last = epochs.last();
    // The earliest epoch counts among equal accuracies.
    let best = epochs.iter().rev().max_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    let selected = trainer.selected();
    let finite = |x: f64| Some(x).filter(|x| x.is_finite());
    Metrics::default()
        .with(Column::ACCURACY, last.map(|e| e.accuracy))
        .with(Column::BEST_ACCURACY, best.map(|e| e.accuracy))
        .with(Column::BEST_EPOCH, best.map(|e| e.epoch))
        .with(Column::EPOCHS_RUN, epochs.len())
        .with(Column::TRAIN_LOSS, last.and_then(|e| finite(e.train_loss)))
        .with(Column::TEST_LOSS, last.and_then(|e| finite(e.test_loss)))
        .with(Column::PARAMS, trainer.parameters())
        .with(Column::STATE_SIZE, trainer.state_size())
        .with(Column::STEPS, trainer.progress().step)
        .with(Column::SECONDS, trainer.seconds())
        .with(Column::TOKENS_PER_S, last.and_then(|e| finite(e.tokens_per_s)))
        .with(Column::VAL_ACCURACY, selected.and_then(|e| e.val_accuracy))
        .with(Column::SELECTED_EPOCH, selected.map(|e| e.epoch))
        .with(Column::SELECTED_ACCURACY, selected.map(|e| e.accuracy))
        .with(Column::MACRO_ACCURACY, last.and_then(|e| e.macro_accuracy))
}
