//! Results of runs.

use super::{utc_now, Cause, Failure, Metrics, Provenance};
use serde::{Deserialize, Serialize};

/// Contents of `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Whether the run is done or failed.
    pub status: RunStatus,
    /// Outcome of the training; `None` if the run failed.
    pub outcome: Option<Outcome>,
    /// Reason of the failure; empty otherwise.
    pub reason: String,
    /// Cause of the failure, from a fixed list; `None` for runs that are done, and for failures older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Micro-batch size, if lack of memory made it smaller than the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch_used: Option<usize>,
    /// Metrics; each is serialised as a field of its own.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Implementations that the ops used in the process that ended the run (fused, reference or both); empty for runs
    /// older than this field.
    #[serde(default)]
    pub ops: String,
    /// Digest of the examples, for data that may come from files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data_digest: String,
    /// Time at which the run was first begun (UTC).
    pub started: String,
    /// Time at which the run ended (UTC).
    pub ended: String,
    /// Provenance of the process that ended the run.
    pub provenance: Provenance,
}

/// Whether a finished run has a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// It has a result.
    Done,
    /// It ended by an error.
    Failed,
}

/// Outcome of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Accuracy exceeded the threshold: validation accuracy where there are validation examples, else test accuracy.
    Converged,
    /// All epochs were trained.
    Finished,
    /// The loss of training or of the test was not finite.
    Diverged,
}

impl RunStatus {
    pub(super) const ALL: [Self; 2] = [Self::Done, Self::Failed];

    /// Name in a summary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

impl Outcome {
    pub(super) const ALL: [Self; 3] = [Self::Converged, Self::Finished, Self::Diverged];

    /// Name in a summary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Finished => "finished",
            Self::Diverged => "diverged",
        }
    }
}

impl RunResult {
    /// Returns the result of a failed run, which contains only the failure.
    pub fn failed(failure: Failure, started: &str, provenance: Provenance) -> Self {
        Self {
            status: RunStatus::Failed,
            outcome: None,
            reason: failure.words,
            cause: Some(failure.cause),
            micro_batch_used: None,
            metrics: Metrics::default(),
            ops: String::new(),
            data_digest: String::new(),
            started: started.to_owned(),
            ended: utc_now(),
            provenance,
        }
    }

    /// Returns the result of a run with metrics.
    pub fn done(outcome: Outcome, metrics: Metrics, started: &str, provenance: Provenance) -> Self {
        let nothing = Failure::new(Cause::Other, String::new());
        Self {
            status: RunStatus::Done,
            outcome: Some(outcome),
            cause: None,
            metrics,
            ..Self::failed(nothing, started, provenance)
        }
    }

    /// Returns the failure, if the run failed.
    pub fn failure(&self) -> Option<Failure> {
        let cause = self.cause.unwrap_or(Cause::Other);
        (self.status == RunStatus::Failed).then(|| Failure::new(cause, self.reason.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{done, failed, read};
    use super::super::Column;
    use super::*;
    use serde_json::Value;

    /// A result of a run on text, as version 0.1.0 wrote it.
    const FIRST: &str = r#"{
        "accuracy": 0.5, "best_accuracy": 0.5, "best_epoch": 64, "data_digest": "3d2ac1513d6f",
        "ended": "2026-01-31T10:00:32Z", "epochs_run": 50,
        "language": {
            "best_val_ppl": 20.0, "selected_test_ppl": 24.0, "test_bits_per_byte": 1.25, "test_ppl": 40.0,
            "test_word_ppl": 80.0, "train_ppl": 16.0, "train_ppl_eval": 12.0, "train_tokens": 119000000,
            "unigram_ppl": 1100.0, "val_bits_per_byte": 1.0, "val_ppl": 32.0, "val_word_ppl": null
        },
        "outcome": "finished", "params": 600000, "peak_memory_bytes": 268435456,
        "provenance": { "version": "0.1.0", "git_commit": "3f2c1e0", "dirty": false, "host": "laptop",
            "cpu": "Some CPU, 2 GHz", "os": "linux x86_64", "device": "cpu", "threads": 2,
            "started": "2026-01-31T10:00:00Z" },
        "reason": "", "seconds": 31.2, "selected_epoch": null, "started": "2026-01-31T10:00:00Z",
        "state_size": 4096, "status": "done", "steps": 12544, "test_loss": 0.3333333333333333,
        "tokens_per_s": 1000000.0, "train_loss": 0.1
    }"#;

    #[test]
    fn a_result_of_the_first_version_is_read_with_its_nested_perplexities() {
        let mut expected = read(16.0);
        expected.metrics.set(Column::VAL_WORD_PPL, None::<f64>);
        (expected.ops, expected.data_digest) = (String::new(), "3d2ac1513d6f".into());
        expected.provenance.simd = String::new();
        expected.provenance.command = String::new();
        assert_eq!(serde_json::from_str::<RunResult>(FIRST).unwrap(), expected);
    }

    #[test]
    fn a_failure_older_than_the_list_of_causes_is_of_another_cause() {
        let old = FIRST.replace("\"done\"", "\"failed\"").replace("\"reason\": \"\"", "\"reason\": \"disk\"");
        let read = serde_json::from_str::<RunResult>(&old).unwrap();
        assert_eq!(read.failure(), Some(Failure::new(Cause::Other, "disk")));
        assert_eq!(done(0.5).failure(), None);
    }

    #[test]
    fn every_metric_is_a_field_of_its_own_and_comes_back() {
        for result in [done(0.5), read(16.0), failed("disk")] {
            let text = serde_json::to_value(&result).unwrap();
            assert_eq!(serde_json::from_value::<RunResult>(text.clone()).unwrap(), result);
            assert_eq!(text.get("train_ppl").and_then(Value::as_f64), result.metrics.get(Column::TRAIN_PPL));
        }
    }

    #[test]
    fn an_impossible_metric_is_refused_by_its_name() {
        let broken = FIRST.replace("\"accuracy\": 0.5", "\"accuracy\": 50.0");
        let message = serde_json::from_str::<RunResult>(&broken).unwrap_err().to_string();
        assert!(message.contains("`accuracy`") && message.contains("50.0"), "{message}");
    }
}
