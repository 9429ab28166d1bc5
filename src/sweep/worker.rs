//! Workers: each trains one run, as a child process, or as a stand-in in tests.

use crate::config::{RunConfig, TaskConfig};
use crate::error::{ensure, Result};
use crate::store::Failure;
use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use std::env;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Flags of everything that trains.
#[derive(Clone, Debug, Default, Args)]
pub struct Training {
    /// On a GPU, launch every op of a training step instead of replaying a recorded step.
    ///
    /// By default, a GPU records the third step as a CUDA graph and replays it, which saves launch overhead. The
    /// results are the same.
    #[arg(long, hide_short_help = true)]
    pub no_cuda_graph: bool,
    /// Record training steps, which is the default.
    #[arg(long, hide = true, conflicts_with = "no_cuda_graph")]
    pub cuda_graph: bool,
    /// Folder of data.
    ///
    /// Default: the folder that `dsf data fetch` downloads to.
    #[arg(long, value_name = "DIR", env = "DSF_DATA", hide_env_values = true)]
    pub data_dir: Option<PathBuf>,
    /// Minutes between checkpoints [default: 0.5, or more if writing takes long].
    #[arg(long, hide_short_help = true, value_name = "MINUTES", value_parser = minutes)]
    pub checkpoint_every: Option<Duration>,
    /// Train even if a run needs more memory than the machine has.
    #[arg(long, hide_short_help = true)]
    pub allow_swap: bool,
}

impl Training {
    /// Returns an error if none of `tasks` reads `--data-dir`. It is called after the files of the tasks have been
    /// identified. A folder given by `DSF_DATA` is accepted: it may be meant for another command.
    pub fn check_data_dir<'a>(&self, tasks: impl IntoIterator<Item = &'a TaskConfig>) -> Result<()> {
        let by_variable = env::var_os("DSF_DATA").map(PathBuf::from);
        let Some(dir) = self.data_dir.as_ref().filter(|_| self.data_dir != by_variable) else {
            return Ok(());
        };
        let mut tasks = tasks.into_iter().peekable();
        let Some(name) = tasks.peek().map(|task| task.name().to_owned()) else { return Ok(()) };
        ensure!(
            tasks.any(|task| task.source_digest().is_some()),
            flag "--data-dir" = dir.display(), "no file is read, since the data of {name} are generated or built in. Give `--data files` in lra or `--corpus text` in wikitext to read files, or leave --data-dir out");
        Ok(())
    }
}

/// Parses a duration in minutes, at least one second.
pub(super) fn minutes(text: &str) -> Result<Duration, String> {
    let span = text
        .parse()
        .ok()
        .map(|minutes: f64| 60.0 * minutes)
        .filter(|seconds| *seconds >= 1.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.ok_or_else(|| "not a number of minutes, a second at least, such as 5".to_owned())
}

/// Task of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Run to train.
    pub run: &'a RunConfig,
    /// Device to train on.
    pub device: &'a str,
    /// Micro-batch size, if it differs from the config's.
    pub micro_batch: Option<usize>,
}

/// Trains one run at a time; called from several threads.
pub trait Worker: Sync {
    /// Trains the run of `job` until it ends or `stop` is set, and calls `on` with its messages. An error means that no
    /// run can be trained; the failure of this run alone is an [`Ending`].
    fn work(&self, job: &Job, stop: &AtomicBool, on: &mut dyn FnMut(WorkerMessage)) -> Result<Ending>;
}

/// Outcome of the work on a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The result is in the store.
    Finished,
    /// Stopped after a checkpoint, or before there was anything to keep.
    Interrupted,
    /// Another process holds the run.
    Busy,
    /// Failed; a result may or may not be in the store.
    Failed(Failure),
}

/// Message of a worker, one JSON object per line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum WorkerMessage {
    /// Training begins. Not sent if the worker finds that another process has finished the run.
    Start,
    /// An epoch was trained and tested.
    Epoch {
        /// Number of the epoch, from 1.
        epoch: usize,
        /// Maximum number of epochs.
        epochs: usize,
        /// Mean training loss.
        loss: f64,
        /// Test accuracy, 0 to 1.
        accuracy: f64,
        /// Duration in seconds.
        seconds: f64,
    },
    /// A step was made; sent at most a few times per second.
    Progress {
        /// The epoch, from 1.
        epoch: usize,
        /// Maximum number of epochs.
        epochs: usize,
        /// Completed steps of this epoch.
        step: usize,
        /// Steps per epoch.
        steps: usize,
        /// Mean training loss of the epoch so far.
        loss: f64,
    },
    /// Warning for the user; training continues.
    Warning {
        /// One sentence.
        text: String,
    },
    /// The event in its original form, sent before its parsed form.
    #[serde(skip)]
    Line(Value),
    /// An event that a sweep ignores.
    #[serde(other)]
    Other,
}
