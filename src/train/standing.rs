//! How far a run has come, and what its model is: everything that is read of a trainer between steps.

use super::objective::{self, StepExamples};
use super::{learning_rate, Trainer};
use crate::error::Result;
use crate::gpu;
use crate::store::{EpochRow, Metrics, Outcome, SliceRow};
use crate::tasks::Slices;
use candle_core::Var;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How far training has come: what a checkpoint holds beside weights and moments.
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
    /// Right test answers in each slice, of each epoch of which they are known: the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) right: Vec<Vec<usize>>,
}

impl Trainer<'_> {
    /// The accuracies of slices of the test answers, epoch by epoch; none where the task tells none apart.
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

    /// How far the run has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Steps an epoch; the last may be a short batch.
    pub fn steps_per_epoch(&self) -> usize {
        let examples = self.objective.examples();
        examples.div_ceil(self.config.train.batch_size)
    }

    /// The training examples of step `step` of the first epoch, in the order of its micro-batches.
    pub fn examples_of(&self, step: usize) -> Vec<usize> {
        let first = step * self.config.train.batch_size;
        let last = (first + self.config.train.batch_size).min(self.objective.examples());
        let micro_batches = self.objective.micro_batches(&StepExamples {
            epoch: 0,
            range: first..last,
        });
        let examples = micro_batches.into_iter();
        examples.flat_map(|batch| batch.examples).collect()
    }

    /// Steps made in the current epoch.
    pub fn step_in_epoch(&self) -> usize {
        self.progress.step - self.progress.epochs.len() * self.steps_per_epoch()
    }

    /// The examples of a step of this epoch, `ahead` of the next one: a range of the epoch's order.
    pub(super) fn examples_at(&self, ahead: usize) -> Range<usize> {
        let size = self.config.train.batch_size;
        let first = (self.step_in_epoch() + ahead) * size;
        first..(first + size).min(self.objective.examples())
    }

    /// Whether that step has a whole batch.
    pub(super) fn is_whole(&self, ahead: usize) -> bool {
        self.examples_at(ahead).len() == self.config.train.batch_size
    }

    /// The learning rate of step `step`, from 0.
    pub(super) fn rate_of(&self, step: usize) -> f64 {
        learning_rate(&self.config.train, step, self.steps_per_epoch())
    }

    /// Seconds trained so far, over all interruptions.
    pub fn seconds(&self) -> f64 {
        let over: f64 = self.progress.epochs.iter().map(|e| e.seconds).sum();
        over + self.progress.epoch_seconds
    }

    /// Mean loss of the current epoch's examples so far.
    pub fn mean_loss(&self) -> f64 {
        let seen = self.step_in_epoch() * self.config.train.batch_size;
        self.progress.summed_loss / seen.clamp(1, self.objective.examples()) as f64
    }

    /// Trained numbers.
    pub fn parameters(&self) -> usize {
        self.params.count()
    }

    /// The weights as they are now, by name.
    pub fn weights(&self) -> Vec<(String, Var)> {
        self.params.vars()
    }

    /// Numbers that all layers' mixers keep per sequence.
    pub fn state_size(&self) -> usize {
        self.objective.state_size()
    }

    /// The epoch that validation chooses, where there is a validation split.
    pub fn selected(&self) -> Option<&EpochRow> {
        objective::selected(&*self.objective, &self.progress.epochs)
    }

    /// The perplexities of a language model whose run ended by `outcome`; nothing for other objectives. It
    /// takes about as long as a test of the weights.
    pub fn language_scores(&self, outcome: Outcome) -> Result<Metrics> {
        let diverged = outcome == Outcome::Diverged;
        let epochs = &self.progress.epochs;
        let score = || self.objective.language_scores(epochs, diverged);
        Ok(gpu::with_factors(self.factors(), score)?)
    }
}
