//! How far training has come: everything beside the weights that a resumed run must know.

use crate::config::TaskConfig;
use crate::store::EpochRow;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering::Equal;

/// What a checkpoint holds beside weights and moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Optimiser steps made.
    pub step: usize,
    /// The losses of this epoch's steps so far, each times the examples of its step.
    pub(super) summed_loss: f64,
    /// Seconds spent on this epoch so far.
    pub(super) epoch_seconds: f64,
    /// The epochs that are over.
    pub epochs: Vec<EpochRow>,
}

/// The epoch that validation chooses: in a task of answers the one of the highest accuracy, on text the one
/// of the lowest loss; of equal ones the earliest.
pub(super) fn selected<'a>(task: &TaskConfig, epochs: &'a [EpochRow]) -> Option<&'a EpochRow> {
    let epochs = epochs.iter().rev();
    match task {
        TaskConfig::Wikitext(_) => epochs
            .filter(|epoch| epoch.val_loss.is_some_and(f64::is_finite))
            .max_by(|a, b| b.val_loss.partial_cmp(&a.val_loss).unwrap_or(Equal)),
        TaskConfig::Mqar(_) | TaskConfig::Lra(_) => epochs
            .filter(|epoch| epoch.val_accuracy.is_some())
            .max_by(|a, b| a.val_accuracy.partial_cmp(&b.val_accuracy).unwrap_or(Equal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Corpus, Tokenizer, WikitextConfig};

    fn epochs(losses: &[f64]) -> Vec<EpochRow> {
        let row = |(i, &loss): (usize, &f64)| EpochRow {
            epoch: i + 1,
            train_loss: 1.0,
            test_loss: 1.0,
            accuracy: 0.5,
            lr: 0.1,
            seconds: 1.0,
            tokens_per_s: 1.0,
            val_loss: Some(loss),
            // The more surprised, the more often right.
            val_accuracy: Some(loss / 10.0),
        };
        losses.iter().enumerate().map(row).collect()
    }

    #[test]
    fn on_text_validation_chooses_the_earliest_epoch_of_the_lowest_loss() {
        let task = TaskConfig::Wikitext(WikitextConfig {
            corpus: Corpus::Sample,
            tokenizer: Tokenizer::Bytes,
            vocab_size: 256,
            seq_len: 8,
            eos_between_articles: false,
            train_examples: None,
            test_examples: None,
        });
        for (losses, chosen) in [
            (vec![], None),
            (vec![3.0, 2.0, 2.5], Some(2)),
            (vec![2.0, 2.0], Some(1)),
            (vec![f64::NAN, 5.0, f64::INFINITY], Some(2)),
            (vec![f64::NAN], None),
        ] {
            let epochs = epochs(&losses);
            let found = selected(&task, &epochs).map(|epoch| epoch.epoch);
            assert_eq!(found, chosen, "{losses:?}");
        }
    }
}
