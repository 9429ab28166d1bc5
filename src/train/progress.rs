//! Progress of a run and the facts about its model that are read between steps.

use super::objective::{self, StepExamples};
use super::{learning_rate, Trainer};
use crate::error::Result;
use crate::gpu;
use crate::store::{EpochRow, Metrics, Outcome, SliceRow};
use crate::tasks::Slices;
use candle_core::Var;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Progress of training: the part of a checkpoint that is neither weights nor moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Number of optimiser steps made.
    pub step: usize,
    /// Sum over this epoch's steps of loss times number of examples.
    pub(super) summed_loss: f64,
    /// Seconds spent on this epoch so far.
    pub(super) epoch_seconds: f64,
    /// Finished epochs.
    pub epochs: Vec<EpochRow>,
    /// Correct test answers in each slice, for the last `right.len()` epochs (checkpoints of older versions lack them).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) right: Vec<Vec<usize>>,
}

impl Trainer<'_> {
    /// Accuracy of each slice of the test answers in each epoch; empty if the task has no slices.
    pub fn slices(&self) -> Vec<SliceRow> {
        let slices = self.objective.slices().map_or(Vec::new(), Slices::all);
        let Progress { epochs, right, .. } = &self.progress;
        let first = epochs.len().saturating_sub(right.len()) + 1;
        let rows = right.iter().enumerate().flat_map(|(i, right)| {
            let slices = slices.iter().zip(right);
            let filled = slices.filter(|(slice, _)| slice.answers > 0);
            filled.map(move |(slice, right)| SliceRow {
                epoch: first + i,
                by: slice.by.to_owned(),
                from: slice.from,
                to: slice.to,
                answers: slice.answers,
                accuracy: *right as f64 / slice.answers as f64,
            })
        });
        rows.collect()
    }

    /// Progress of the run.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Number of steps in an epoch. The last one may be a short batch.
    pub fn steps_per_epoch(&self) -> usize {
        let examples = self.objective.examples();
        examples.div_ceil(self.config.train.batch_size)
    }

    /// Training examples of step `step` of the first epoch, in the order of its micro-batches.
    pub fn examples_of(&self, step: usize) -> Vec<usize> {
        let first = step * self.config.train.batch_size;
        let last = (first + self.config.train.batch_size).min(self.objective.examples());
        let micro_batches = self.objective.micro_batches(&StepExamples { epoch: 0, range: first..last });
        let examples = micro_batches.into_iter();
        examples.flat_map(|batch| batch.examples).collect()
    }

    /// Number of steps made in the current epoch.
    pub fn step_in_epoch(&self) -> usize {
        self.progress.step - self.progress.epochs.len() * self.steps_per_epoch()
    }

    /// Examples of the step of this epoch that is `ahead` steps after the next one: a range of the epoch's order.
    pub(super) fn examples_at(&self, ahead: usize) -> Range<usize> {
        let size = self.config.train.batch_size;
        let first = (self.step_in_epoch() + ahead) * size;
        first..(first + size).min(self.objective.examples())
    }

    /// Whether the step that is `ahead` steps after the next one has a whole batch.
    pub(super) fn is_whole(&self, ahead: usize) -> bool {
        self.examples_at(ahead).len() == self.config.train.batch_size
    }

    /// Learning rate of step `step`, counted from 0.
    pub(super) fn rate_of(&self, step: usize) -> f64 {
        learning_rate(&self.config.train, step, self.steps_per_epoch())
    }

    /// Seconds trained so far, over all interruptions.
    pub fn seconds(&self) -> f64 {
        let over: f64 = self.progress.epochs.iter().map(|e| e.seconds).sum();
        over + self.progress.epoch_seconds
    }

    /// Mean loss over the examples of the current epoch so far.
    pub fn mean_loss(&self) -> f64 {
        let seen = self.step_in_epoch() * self.config.train.batch_size;
        self.progress.summed_loss / seen.clamp(1, self.objective.examples()) as f64
    }

    /// Number of trained parameters.
    pub fn parameters(&self) -> usize {
        self.params.count()
    }

    /// Current weights by name.
    pub fn weights(&self) -> Vec<(String, Var)> {
        self.params.vars()
    }

    /// State size: the numbers that the mixers of all layers keep per sequence.
    pub fn state_size(&self) -> usize {
        self.objective.state_size()
    }

    /// Epoch with the best validation score; `None` without a validation split.
    pub fn selected(&self) -> Option<&EpochRow> {
        objective::selected(&*self.objective, &self.progress.epochs)
    }

    /// Perplexities of a language model whose run ended with `outcome`; empty for other objectives. It takes about as
    /// long as a test of the weights.
    pub fn language_scores(&self, outcome: Outcome) -> Result<Metrics> {
        let diverged = outcome == Outcome::Diverged;
        let epochs = &self.progress.epochs;
        let score = || self.objective.language_scores(epochs, diverged);
        Ok(gpu::with_factors(self.factors(), score)?)
    }
}
