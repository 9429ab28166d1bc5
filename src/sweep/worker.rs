//! What trains one run: a child process, or a stand-in in tests.

use crate::config::RunConfig;
use crate::error::Result;
use serde::Deserialize;
use std::sync::atomic::AtomicBool;

/// Trains one run at a time; several threads ask it at once.
pub trait Worker: Sync {
    /// Trains `run` on `device` until it ends or `stop` is raised, and calls `on` with its messages. An error says
    /// that no run at all can be trained; the failure of this run alone is an [`Ending`].
    fn work(
        &self,
        run: &RunConfig,
        device: &str,
        stop: &AtomicBool,
        on: &mut dyn FnMut(Message),
    ) -> Result<Ending>;
}

/// How the work on a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The result stands in the store.
    Finished,
    /// Stopped after a checkpoint, or before there was anything to keep.
    Interrupted,
    /// Another process has the run.
    Busy,
    /// Broken off, and why; a result may or may not stand in the store.
    Failed(String),
}

/// A message of a worker, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Message {
    /// Training goes on within an epoch.
    Progress {
        /// Which, from 1.
        epoch: usize,
        /// Epochs at most.
        epochs: usize,
        /// Steps made in this epoch.
        step: usize,
        /// Steps an epoch.
        steps: usize,
        /// Mean loss of this epoch's steps.
        loss: f64,
    },
    /// An epoch was trained and tested.
    Epoch {
        /// Which, from 1.
        epoch: usize,
        /// Epochs at most.
        epochs: usize,
        /// Mean training loss.
        loss: f64,
        /// Test accuracy, 0 to 1.
        accuracy: f64,
        /// Seconds that it took.
        seconds: f64,
    },
    /// Something that the user should know but that stops nothing.
    Warning {
        /// One sentence.
        text: String,
    },
    /// An event that a sweep ignores.
    #[serde(other)]
    Other,
}
