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
