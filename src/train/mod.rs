//! Training loop: batch, loss, gradient, AdamW, and a test after every epoch. A run ends when the task is learnt, when
//! all epochs are trained, or when the loss is not finite.

mod adamw;
mod checkpoint;
mod cuda_graph;
mod labelled;
mod needle;
mod next_token;
mod objective;
mod per_token;
mod perplexity;
mod pooled;
mod progress;
mod schedule;

mod step;

pub use adamw::AdamW;
pub use labelled::Labelled;
pub use needle::{score_keys, KeyScore};
pub use perplexity::{score, unigram_ppl, Scored, Scoring};
pub use progress::Progress;
pub use schedule::learning_rate;

use crate::config::RunConfig;
use crate::error::Result;
use crate::gpu::{self, Factors};
use crate::nn::Params;
use crate::store::{EpochRow, Outcome};
use crate::tasks::Splits;
use candle_core::{DType, Device};
use next_token::NextToken;
use objective::Trainee;
use per_token::PerToken;
use pooled::Pooled;
use std::cell::Cell;
use std::time::Instant;

/// Events of a run, for the screen and the store.
pub enum Event<'a> {
    /// Optimiser step.
    Step {
        /// Mean loss of the batch.
        loss: f64,
        /// Learning rate of the step.
        lr: f64,
    },
    /// End of an epoch, after its test.
    Epoch(&'a EpochRow),
}

/// Strategy for making optimiser steps.
trait Stepper {
    /// Makes the next step of the epoch and returns its loss. A loss that is not finite leaves the weights unchanged.
    fn step(&mut self, trainer: &mut Trainer) -> Result<f64>;

    /// Whether the weights are those after the steps whose losses were returned, with no further step under way.
    fn is_settled(&self) -> bool {
        true
    }

    /// See [`Trainer::take_warning`].
    fn take_warning(&self) -> Option<String> {
        None
    }

    /// See [`Trainer::graph_nodes`].
    fn graph_nodes(&self) -> Result<Option<usize>> {
        Ok(None)
    }
}

/// Stepper that launches every op.
struct Launched;

/// Trainer of one run.
pub struct Trainer<'a> {
    config: &'a RunConfig,
    device: Device,
    params: Params,
    objective: Box<dyn Trainee + 'a>,
    optimizer: AdamW,
    stepper: Box<dyn Stepper>,
    /// Whether the next step must leave no further step under way.
    settling: Cell<bool>,
    progress: Progress,
}

impl<'a> Trainer<'a> {
    /// Creates the trainer of a run on `device`, before the first step.
    pub fn new(config: &'a RunConfig, data: &'a Splits, device: &Device) -> Result<Self> {
        let params = Params::seeded(config.seed, DType::F32, device);
        let params = params.for_activations(config.train.precision.activations(device));
        let sizes = config.task.sizes()?;
        let objective: Box<dyn Trainee> = match data {
            Splits::PerToken { train, val, test } => {
                Box::new(PerToken::new(config, &sizes, [train, val, test], &params, device)?)
            }
            Splits::Pooled(splits) => Box::new(Pooled::new(config, &sizes, splits, &params, device)?),
            Splits::NextToken(splits) => Box::new(NextToken::new(config, &sizes, splits, &params, device)?),
        };
        Ok(Self {
            objective,
            optimizer: AdamW::configured(&params, &config.train)?,
            config,
            device: device.clone(),
            params,
            stepper: Box::new(Launched),
            settling: Cell::default(),
            progress: Progress::default(),
        })
    }

    /// Records the run under `config`, which may differ from the current config only in the size of micro-batches. The
    /// results are the same up to the order of sums and the masks of dropout.
    #[must_use]
    pub fn recorded_under(self, config: &'a RunConfig) -> Self {
        Self { config, ..self }
    }

    /// Trains to the end and calls `on` after every step and epoch.
    ///
    /// # Errors
    ///
    /// An error from `on` ends training at once; [`Self::write_checkpoint`] can then save the run if its steps have
    /// settled ([`Self::settle`]).
    pub fn run(&mut self, on: &mut dyn FnMut(&Self, Event) -> Result<()>) -> Result<Outcome> {
        loop {
            if let Some(outcome) = self.ended() {
                return Ok(outcome);
            }
            while self.step_in_epoch() < self.steps_per_epoch() {
                let loss = self.step_ahead()?;
                if !loss.is_finite() {
                    return Ok(Outcome::Diverged);
                }
                let lr = self.rate_of(self.progress.step - 1);
                on(self, Event::Step { loss, lr })?;
            }
            let row = self.finish_epoch()?;
            if !row.test_loss.is_finite() {
                return Ok(Outcome::Diverged);
            }
            on(self, Event::Epoch(&row))?;
        }
    }

    /// Returns the outcome if the finished epochs end the run. It is computed before each epoch rather than after it,
    /// since a run may have been interrupted between its last epoch and its end.
    fn ended(&self) -> Option<Outcome> {
        let (train, epochs) = (&self.config.train, &self.progress.epochs);
        match epochs.last() {
            Some(last) if last.val_accuracy.unwrap_or(last.accuracy) > train.stop_above => Some(Outcome::Converged),
            _ if epochs.len() >= train.epochs => Some(Outcome::Finished),
            _ => None,
        }
    }

    /// Makes one optimiser step on the next batch of the epoch and returns its loss. A loss that is not finite leaves
    /// the weights unchanged. Unlike [`Self::run`], it does not test between epochs.
    pub fn step(&mut self) -> Result<f64> {
        self.settling.set(true);
        self.step_ahead()
    }

    /// Same as [`Self::step`], except that on a GPU a further recorded step of the epoch may be under way on return;
    /// see [`Self::settle`].
    pub fn step_ahead(&mut self) -> Result<f64> {
        gpu::with_factors(self.factors(), || {
            let start = Instant::now();
            self.objective.begin_epoch(self.progress.epochs.len());
            let examples = self.examples_at(0).len() as f64;
            let mut stepper = std::mem::replace(&mut self.stepper, Box::new(Launched));
            let loss = stepper.step(self);
            self.stepper = stepper;
            let loss = loss?;
            if loss.is_finite() {
                self.progress.step += 1;
                self.progress.summed_loss += loss * examples;
            } else {
                // Neither this step nor one queued after it has changed the weights.
                self.optimizer.resume(self.progress.step);
            }
            self.progress.epoch_seconds += start.elapsed().as_secs_f64();
            Ok(loss)
        })
    }

    /// Tests the weights and closes the epoch.
    fn finish_epoch(&mut self) -> Result<EpochRow> {
        let start = Instant::now();
        let tested = gpu::with_factors(self.factors(), || self.objective.evaluate())?;
        let trained = self.progress.epoch_seconds;
        let row = EpochRow {
            epoch: self.progress.epochs.len() + 1,
            train_loss: self.progress.summed_loss / self.objective.examples() as f64,
            test_loss: tested.test.loss,
            accuracy: tested.test.accuracy,
            lr: self.rate_of(self.progress.step - 1),
            seconds: trained + start.elapsed().as_secs_f64(),
            tokens_per_s: self.objective.tokens() as f64 / trained,
            val_loss: tested.val.map(|val| val.loss),
            val_accuracy: tested.val.map(|val| val.accuracy),
            macro_accuracy: tested.macro_accuracy,
        };
        self.progress.epochs.push(row);
        if !tested.right.is_empty() {
            self.progress.right.push(tested.right);
        }
        self.progress.summed_loss = 0.0;
        self.progress.epoch_seconds = 0.0;
        Ok(row)
    }

    /// Floating-point format of the factors of matrix products in this run. Other runs of the process may use another.
    fn factors(&self) -> Factors {
        self.config.train.precision.factors()
    }
}

#[cfg(test)]
mod tests;
