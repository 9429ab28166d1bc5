//! Curves and results of runs in formats of other programs.

mod parquet;
mod tensorboard;

pub use parquet::parquet;
pub use tensorboard::tensorboard;

use crate::config::RunConfig;
use crate::store::{EpochRow, Record, RunResult};

/// A run, begun, finished or failed.
#[derive(Clone, Copy, Debug)]
pub struct ExportedRun<'a> {
    /// Run id: twelve hex digits.
    pub id: &'a str,
    /// Config, which determines its numbers.
    pub config: &'a RunConfig,
    /// Result, if the run has ended.
    pub result: Option<&'a RunResult>,
    /// Epochs so far.
    pub epochs: &'a [EpochRow],
    /// Time at which it was first begun (UTC).
    pub started: &'a str,
}

impl ExportedRun<'_> {
    /// Returns the row of a summary; without a result only the settings.
    fn record(&self) -> Record {
        match self.result {
            Some(result) => Record::new(self.config, result),
            None => Record::planned(self.config),
        }
    }
}

/// Returns the numbers of an epoch with their names in `metrics.csv`; `None` for numbers that a run lacks.
fn numbers(row: &EpochRow) -> [(&'static str, Option<f64>); 9] {
    [
        ("train_loss", Some(row.train_loss)),
        ("test_loss", Some(row.test_loss)),
        ("accuracy", Some(row.accuracy)),
        ("lr", Some(row.lr)),
        ("seconds", Some(row.seconds)),
        ("tokens_per_s", Some(row.tokens_per_s)),
        ("val_loss", row.val_loss),
        ("val_accuracy", row.val_accuracy),
        ("macro_accuracy", row.macro_accuracy),
    ]
}

#[cfg(test)]
mod samples {
    use super::*;
    use crate::store::samples;

    /// A run of two epochs and its result.
    pub(super) struct Sample {
        id: String,
        config: RunConfig,
        result: RunResult,
        epochs: Vec<EpochRow>,
    }

    pub(super) fn sample(seed: u64) -> Sample {
        let config = RunConfig { seed, ..samples::config() };
        let row = |epoch: usize| EpochRow {
            epoch,
            train_loss: 2.0 / epoch as f64,
            test_loss: f64::NAN,
            accuracy: 0.25 * epoch as f64,
            lr: 1e-3,
            seconds: 10.0,
            tokens_per_s: 5e5,
            val_loss: None,
            val_accuracy: None,
            macro_accuracy: None,
        };
        Sample { id: config.id(), config, result: samples::done(0.5), epochs: vec![row(1), row(2)] }
    }

    impl Sample {
        pub fn done(&self) -> ExportedRun<'_> {
            ExportedRun {
                id: &self.id,
                config: &self.config,
                result: Some(&self.result),
                epochs: &self.epochs,
                started: &self.result.started,
            }
        }

        pub fn begun(&self) -> ExportedRun<'_> {
            ExportedRun { result: None, ..self.done() }
        }
    }
}
