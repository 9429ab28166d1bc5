//! What a run ends with.

use super::{utc_now, Provenance};
use serde::{Deserialize, Serialize};

/// What `result.json` holds. Numbers that are not finite are `None`, since JSON has no word for
/// them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Whether there is a number.
    pub status: RunStatus,
    /// How training ended; `None` if the run failed.
    pub outcome: Option<Outcome>,
    /// Why the run failed; empty otherwise.
    pub reason: String,
    /// Test accuracy after the last epoch, 0 to 1.
    pub accuracy: Option<f64>,
    /// The highest test accuracy after any epoch.
    pub best_accuracy: Option<f64>,
    /// The epoch of the highest accuracy, from 1.
    pub best_epoch: Option<usize>,
    /// Epochs trained.
    pub epochs_run: usize,
    /// Training loss of the last epoch.
    pub train_loss: Option<f64>,
    /// Test loss after the last epoch.
    pub test_loss: Option<f64>,
    /// Trained numbers of the model.
    pub params: Option<usize>,
    /// Numbers that the mixers carry from token to token, in all layers.
    pub state_size: Option<usize>,
    /// Optimizer steps.
    pub steps: usize,
    /// Seconds of training and testing, summed over interruptions.
    pub seconds: f64,
    /// Training tokens a second.
    pub tokens_per_s: Option<f64>,
    /// See [`super::peak_memory_bytes`].
    pub peak_memory_bytes: Option<u64>,
    /// Which implementations the ops took in the process that ended the run; empty for runs older
    /// than this field.
    #[serde(default)]
    pub ops: String,
    /// Validation accuracy after the epoch that validation chooses, where there is a validation split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_accuracy: Option<f64>,
    /// That epoch, from 1: the one of the highest validation accuracy, on text of the lowest loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_epoch: Option<usize>,
    /// Test accuracy after that epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_accuracy: Option<f64>,
    /// What the commonest answer scores on the test split, in a task of classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub majority: Option<f64>,
    /// Perplexities, in a run on text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<LanguageScores>,
    /// Digits over the examples seen, where they may come from files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data_digest: String,
    /// When the run was first begun (UTC).
    pub started: String,
    /// When it ended (UTC).
    pub ended: String,
    /// Who trained the last part of it.
    pub provenance: Provenance,
}

/// What a run on text ends with; exponentials of mean cross-entropies. `None` is no number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LanguageScores {
    /// Per token, as logged while the last epoch was trained: the paper's number.
    pub train_ppl: Option<f64>,
    /// Per token of a hundredth of the training windows, under the final weights.
    pub train_ppl_eval: Option<f64>,
    /// Per token of the validation split, in windows that do not overlap, under the final weights.
    pub val_ppl: Option<f64>,
    /// The lowest of these after any epoch.
    pub best_val_ppl: Option<f64>,
    /// Per token of the test split, under the final weights.
    pub test_ppl: Option<f64>,
    /// Per token of the test split, after the epoch of `best_val_ppl`.
    pub selected_test_ppl: Option<f64>,
    /// Per word, an end of line being one, with every token but the first predicted once.
    pub val_word_ppl: Option<f64>,
    /// The same of the test split.
    pub test_word_ppl: Option<f64>,
    /// Bits a byte of the validation split, tokens as in `val_word_ppl`.
    pub val_bits_per_byte: Option<f64>,
    /// The same of the test split.
    pub test_bits_per_byte: Option<f64>,
    /// Per token of the test split, of a model that knows nothing but how often each token occurs in
    /// the training windows (add-one smoothed over the vocabulary).
    pub unigram_ppl: Option<f64>,
    /// Training tokens an epoch.
    pub train_tokens: usize,
}

/// Whether a finished run has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// It has.
    Done,
    /// It ended by an error.
    Failed,
}

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The accuracy passed the threshold.
    Converged,
    /// All epochs were trained.
    Finished,
    /// The loss was no longer a number.
    Diverged,
}

impl RunResult {
    /// A run that broke off: nothing but its reason.
    pub fn failed(reason: &str, started: &str, provenance: Provenance) -> Self {
        Self {
            status: RunStatus::Failed,
            outcome: None,
            reason: reason.to_owned(),
            accuracy: None,
            best_accuracy: None,
            best_epoch: None,
            epochs_run: 0,
            train_loss: None,
            test_loss: None,
            params: None,
            state_size: None,
            steps: 0,
            seconds: 0.0,
            tokens_per_s: None,
            peak_memory_bytes: None,
            ops: String::new(),
            val_accuracy: None,
            selected_epoch: None,
            selected_accuracy: None,
            majority: None,
            data_digest: String::new(),
            language: None,
            started: started.to_owned(),
            ended: utc_now(),
            provenance,
        }
    }
}
