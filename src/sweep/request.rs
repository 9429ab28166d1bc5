//! Protocol between a sweep and a process that trains many runs (`dsf worker --host`), one JSON object per line. The
//! events of each run are those of a worker with one run, with the run's id added.

use super::worker::Job;
use crate::config::RunConfig;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// Request on the process's stdin. All runs stop when stdin closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Train another run in parallel.
    Train(TrainRequest),
    /// Stop the run with this id after a checkpoint.
    Stop(String),
}

/// Run to train.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainRequest {
    /// Run id.
    pub run: String,
    /// Canonical config as text, since the id depends on every digit of it.
    pub config: String,
    /// Micro-batch size, if it differs from the config's.
    pub micro_batch: Option<usize>,
}

impl TrainRequest {
    /// Returns the request for `job`.
    pub fn of(job: &Job) -> Self {
        Self { run: job.run.id(), config: job.run.canonical(), micro_batch: job.micro_batch }
    }

    /// Parses the config. Fails if this version does not know the config.
    pub fn config(&self) -> Result<RunConfig> {
        RunConfig::parse(&self.config, "stdin")
    }
}

/// End of a run in such a process, sent after all events of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Run id.
    pub run: String,
    /// Exit code that a process of its own would have had.
    pub code: u8,
    /// Last message that such a process would have printed to stderr.
    pub words: String,
    /// Whether the process accepts no more runs, because its device is unusable.
    pub last: bool,
}
