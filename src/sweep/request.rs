//! What a sweep and a process that trains many runs (`dsf worker --host`) say to each other, one JSON object a line. The events of
//! runs, which name their run each, are those of a worker with one run.

use super::worker::Job;
use crate::config::RunConfig;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// What the process is asked on its stdin. When that ends, all runs are to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// To train a run beside those that it trains already.
    Train(Asked),
    /// To stop the run of this name behind a checkpoint.
    Stop(String),
}

/// A run that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Its name.
    pub run: String,
    /// Its canonical config, as text: every digit of it is part of the name.
    pub config: String,
    /// Examples at a time, if not what the config says.
    pub micro_batch: Option<usize>,
}

impl Asked {
    /// What `job` asks for.
    pub fn of(job: &Job) -> Self {
        Self {
            run: job.run.id(),
            config: job.run.canonical(),
            micro_batch: job.micro_batch,
        }
    }

    /// The config.
    ///
    /// # Errors
    /// Where it is none that this version knows.
    pub fn config(&self) -> Result<RunConfig> {
        RunConfig::parse(&self.config, "stdin")
    }
}

/// The end of a run in such a process, which says it behind all that the run itself has said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The run.
    pub run: String,
    /// The exit code that a process of its own would have had.
    pub code: u8,
    /// What that would have said last on stderr.
    pub words: String,
    /// Whether the process takes no more runs, since the device is of no more use to it.
    pub last: bool,
}
