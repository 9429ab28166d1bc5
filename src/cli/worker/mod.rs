//! `dsf worker`: child process of a sweep. The first line of stdin is a run config; when stdin closes it writes a
//! checkpoint and stops, so that a dead parent leaves no orphans. With `--host` it trains many runs at once, see
//! [`host`].

mod host;

use super::device::DeviceChoice;
use super::perplexity;
use super::run::{execute, RunContext, RunEvent};
use super::screen::without_skill;
use super::{exit, print, stop_flag, Global};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::store::{EpochRow, RunResult, RunStatus};
use crate::sweep::Training;
use crate::tasks::NoSkill;
use clap::Args;
use serde_json::{json, Value};
use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Shortest interval between progress lines.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(super) struct WorkerArguments {
    /// Device to train on.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Examples at a time, where memory ran out under what the config says.
    #[arg(long)]
    micro_batch: Option<usize>,
    /// Train every run that a line of stdin asks for, each in a thread.
    #[arg(long, conflicts_with = "micro_batch")]
    host: bool,
    #[command(flatten)]
    training: Training,
}

pub(super) fn main(arguments: WorkerArguments, global: &Global) -> Result<u8> {
    if arguments.host {
        return host::main(arguments.device, arguments.training, global);
    }
    let stop = stop_flag()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(Error::io("read", "stdin"))?;
    let config = RunConfig::parse(line.trim(), "stdin")?;
    arguments.device.serves(&arguments.training)?;
    stop_with_stdin(Arc::clone(&stop));
    let mut context = RunContext::open(arguments.device, &arguments.training, &stop, global)?;
    context.micro_batch = arguments.micro_batch;
    train(&config, &context)
}

/// Trains a run, prints all its events on stdout, and returns the exit code.
fn train(config: &RunConfig, context: &RunContext) -> Result<u8> {
    let mut events = JsonEvents::new(config)?;
    let result = execute(config, context, &mut |event| events.write(&event))?;
    emit(&done(config, &result))?;
    Ok(code(&result))
}

/// Returns the exit code for the end of a run.
pub(super) fn code(result: &RunResult) -> u8 {
    match result.status {
        RunStatus::Done => exit::DONE,
        RunStatus::Failed => exit::FAILED,
    }
}

fn stop_with_stdin(stop: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut rest = [0; 64];
        while matches!(io::stdin().lock().read(&mut rest), Ok(n) if n > 0) {}
        stop.store(true, Ordering::Relaxed);
    });
}

/// Returns the last event of a run.
pub(super) fn done(config: &RunConfig, result: &RunResult) -> Value {
    json!({ "event": "done", "schema": 1, "run": config.id(), "config": config, "result": result })
}

/// Prints updates as JSON lines on stdout.
pub(super) struct JsonEvents<'a> {
    config: &'a RunConfig,
    id: String,
    epochs: usize,
    /// Whether the model is a language model, whose losses are also given as perplexities.
    language: bool,
    /// Best accuracy without recall, for a task that requires recall.
    without_skill: Option<NoSkill>,
    steps: usize,
    last_progress: Option<Instant>,
}

impl<'a> JsonEvents<'a> {
    pub fn new(config: &'a RunConfig) -> Result<Self> {
        Ok(Self {
            config,
            id: config.id(),
            epochs: config.train.epochs,
            language: config.task.entry()?.objective.is_language_model(),
            without_skill: without_skill(config),
            steps: 0,
            last_progress: None,
        })
    }

    pub fn write(&mut self, event: &RunEvent) -> Result<()> {
        let event = match event {
            RunEvent::Start { parameters, steps_per_epoch, done } => {
                self.steps = *steps_per_epoch;
                json!({ "event": "start", "schema": 1, "run": self.id, "config": self.config, "epochs": self.epochs,
                        "done": done, "steps": steps_per_epoch, "parameters": parameters })
            }
            RunEvent::Examples { .. } | RunEvent::Step { .. } if !self.is_due() => return Ok(()),
            RunEvent::Examples { made, of } => {
                json!({ "event": "examples", "schema": 1, "run": self.id, "made": made, "of": of })
            }
            RunEvent::Step { epoch, step, loss, seconds } => {
                json!({ "event": "progress", "schema": 1, "run": self.id, "epoch": epoch, "epochs": self.epochs, "step": step,
                        "steps": self.steps, "loss": loss, "seconds": seconds })
            }
            RunEvent::Epoch(row) => self.epoch(row),
            RunEvent::Warning(text) => {
                json!({ "event": "warning", "schema": 1, "run": self.id, "text": text })
            }
        };
        emit(&event)
    }

    /// Whether the last progress was printed long enough ago; if so, the time starts again.
    fn is_due(&mut self) -> bool {
        let is_due = self.last_progress.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY);
        if is_due {
            self.last_progress = Some(Instant::now());
        }
        is_due
    }

    fn epoch(&self, row: &EpochRow) -> Value {
        let mut event = json!({ "event": "epoch", "schema": 1, "run": self.id, "epoch": row.epoch,
            "epochs": self.epochs, "loss": row.train_loss, "test_loss": row.test_loss, "accuracy": row.accuracy,
            "val_loss": row.val_loss, "val_accuracy": row.val_accuracy, "lr": row.lr,
            "seconds": row.seconds, "tokens_per_s": row.tokens_per_s });
        if let Some(accuracy) = row.macro_accuracy {
            event["macro_accuracy"] = json!(accuracy);
        }
        if let Some(without) = &self.without_skill {
            event[NoSkill::field(without.skill())] = json!(without.accuracy);
        }
        if self.language {
            let [train, val, test] = perplexity::of_epoch(row);
            event["train_ppl"] = json!(train);
            event["val_ppl"] = json!(val);
            event["test_ppl"] = json!(test);
        }
        event
    }
}

/// Prints one JSON line on stdout.
pub(super) fn emit(event: &Value) -> Result<()> {
    print::line(event)
}
