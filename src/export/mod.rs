//! Curves and results of runs in the forms that other programs read.

mod parquet;
mod tensorboard;

pub use parquet::parquet;
pub use tensorboard::tensorboard;

use crate::config::RunConfig;
use crate::store::{EpochRow, Record, RunResult};

/// A run, begun, finished or failed.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Its twelve hex digits.
    pub id: &'a str,
    /// Everything that can change its numbers.
    pub config: &'a RunConfig,
    /// What it ended with.
    pub result: Option<&'a RunResult>,
    /// The epochs so far.
    pub epochs: &'a [EpochRow],
    /// When it was first begun (UTC).
    pub started: &'a str,
}

impl Run<'_> {
    /// As a row of a summary; of a run without a result its settings alone.
    fn record(&self) -> Record {
        match self.result {
            Some(result) => Record::new(self.config, result),
            None => Record::planned(self.config),
        }
    }
}

/// The numbers of an epoch by their names in `metrics.csv`; those that a run does not have are none.
fn numbers(row: &EpochRow) -> [(&'static str, Option<f64>); 8] {
    [
        ("train_loss", Some(row.train_loss)),
        ("test_loss", Some(row.test_loss)),
        ("accuracy", Some(row.accuracy)),
        ("lr", Some(row.lr)),
        ("seconds", Some(row.seconds)),
        ("tokens_per_s", Some(row.tokens_per_s)),
        ("val_loss", row.val_loss),
        ("val_accuracy", row.val_accuracy),
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
        let config = RunConfig {
            seed,
            ..samples::config()
        };
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
        };
        Sample {
            id: config.id(),
            config,
            result: samples::done(0.5),
            epochs: vec![row(1), row(2)],
        }
    }

    impl Sample {
        pub fn done(&self) -> Run<'_> {
            Run {
                id: &self.id,
                config: &self.config,
                result: Some(&self.result),
                epochs: &self.epochs,
                started: &self.result.started,
            }
        }

        pub fn begun(&self) -> Run<'_> {
            Run {
                result: None,
                ..self.done()
            }
        }
    }
}
