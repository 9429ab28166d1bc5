//! The training loop, top to bottom: batch, loss, gradient, AdamW; test after every epoch; stop
//! when the task is learnt, when the epochs are used up, or when the loss is no longer a number.

mod adamw;
mod checkpoint;
mod cuda_graph;
mod labelled;
mod next_token;
mod objective;
mod per_token;
mod perplexity;
mod pooled;
mod schedule;

pub use adamw::AdamW;
pub use labelled::Labelled;
pub use perplexity::{score, unigram_ppl, Scored, Scoring};
pub use schedule::learning_rate;

use crate::config::{Precision, RunConfig};
use crate::error::Result;
use crate::gpu::{self, Factors, Gpu};
use crate::nn::{Cx, Params};
use crate::ops;
use crate::store::{EpochRow, Metrics, Outcome, SliceRow};
use crate::tasks::{Slices, Splits};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use cuda_graph::{Own, Recorded, Steps};
use next_token::NextToken;
use objective::{Objective, StepExamples};
use per_token::PerToken;
use pooled::Pooled;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::time::Instant;

/// Word of what happens, for the screen and the store.
pub enum Event<'a> {
    /// An optimiser step was made.
    Step {
        /// Mean loss of its batch.
        loss: f64,
        /// Its learning rate.
        lr: f64,
    },
    /// An epoch was trained and tested.
    Epoch(&'a EpochRow),
}

/// How far training has come: what a checkpoint holds beside weights and moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Optimiser steps made.
    pub step: usize,
    /// The losses of this epoch's steps so far, each times the examples of its step.
    summed_loss: f64,
    /// Seconds spent on this epoch so far.
    epoch_seconds: f64,
    /// The epochs that are over.
    pub epochs: Vec<EpochRow>,
    /// Right test answers in each slice, of each epoch of which they are known: the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    right: Vec<Vec<usize>>,
}

/// One run in training.
pub struct Trainer<'a> {
    config: &'a RunConfig,
    device: Device,
    params: Params,
    objective: Box<dyn Objective + 'a>,
    optimizer: AdamW,
    steps: Steps,
    /// Whether the next step is to be the last that was begun.
    settling: Cell<bool>,
    progress: Progress,
}

impl<'a> Trainer<'a> {
    /// A run at its beginning, on `device`.
    pub fn new(config: &'a RunConfig, data: &'a Splits, device: &Device) -> Result<Self> {
        let precision = config.train.precision;
        let params = Params::seeded(config.seed, DType::F32, device);
        let params = params.for_activations(match precision {
            Precision::Bf16 => DType::BF16,
            Precision::F32 | Precision::Tf32 => DType::F32,
        });
        let sizes = config.task.sizes()?;
        let objective: Box<dyn Objective> = match data {
            Splits::PerToken { train, val, test } => Box::new(PerToken::new(
                config,
                &sizes,
                [train, val, test],
                &params,
                device,
            )?),
            Splits::Pooled(splits) => {
                Box::new(Pooled::new(config, &sizes, splits, &params, device)?)
            }
            Splits::NextToken(splits) => {
                Box::new(NextToken::new(config, &sizes, splits, &params, device)?)
            }
        };
        Ok(Self {
            objective,
            optimizer: AdamW::configured(params.vars(), &config.train)?,
            config,
            device: device.clone(),
            params,
            steps: Steps::default(),
            settling: Cell::default(),
            progress: Progress::default(),
        })
    }

    /// Under the name of `config`, which differs from the run's own in the size of micro-batches alone: the same
    /// training but for the order of sums and the masks of dropout.
    #[must_use]
    pub fn standing_for(self, config: &'a RunConfig) -> Self {
        Self { config, ..self }
    }

    /// Trains to the end, telling `on` of every step and epoch. An error from `on` ends the run
    /// where it stands; [`Self::write_checkpoint`] then holds all of it, if the steps have settled ([`Self::settle`]).
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

    /// The outcome, if the epochs that are over end the run. Asked before each epoch, not after: a run
    /// may have been interrupted between its last epoch and its end.
    fn ended(&self) -> Option<Outcome> {
        let (train, epochs) = (&self.config.train, &self.progress.epochs);
        match epochs.last() {
            Some(last) if last.val_accuracy.unwrap_or(last.accuracy) > train.stop_above => {
                Some(Outcome::Converged)
            }
            _ if epochs.len() >= train.epochs => Some(Outcome::Finished),
            _ => None,
        }
    }

    /// One optimiser step on the next batch of the epoch: its loss, which if it is no number has
    /// changed nothing. [`Self::run`] tests between epochs; a caller of this stops there.
    pub fn step(&mut self) -> Result<f64> {
        self.settling.set(true);
        self.step_ahead()
    }

    /// [`Self::step`]; on a GPU, recorded steps of the same epoch may be one ahead of what this tells, see [`Self::settle`].
    pub fn step_ahead(&mut self) -> Result<f64> {
        gpu::with_factors(self.factors(), || self.next_step())
    }

    /// Whether the weights are those after the steps that were told. If they are one step ahead, they will be at the next event of
    /// [`Self::run`]: whoever asked may wait for it.
    pub fn settle(&self) -> bool {
        let settled = self.is_settled();
        self.settling.set(!settled);
        settled
    }

    fn is_settled(&self) -> bool {
        !matches!(&self.steps, Steps::Recorded(recorded) if recorded.queued() > 0)
    }

    /// The examples of a step of this epoch, and whether they are a whole batch.
    fn examples_at(&self, step_in_epoch: usize) -> (StepExamples, bool) {
        let size = self.config.train.batch_size;
        let first = step_in_epoch * size;
        let last = (first + size).min(self.objective.examples());
        let examples = StepExamples {
            epoch: self.progress.epochs.len(),
            range: first..last,
        };
        (examples, first + size == last)
    }

    fn next_step(&mut self) -> Result<f64> {
        let start = Instant::now();
        let (examples, whole) = self.examples_at(self.step_in_epoch());
        if whole && self.steps.are_warm() {
            self.record(&examples)?;
        }
        let loss = match &self.steps {
            Steps::Recorded(_) if whole => self.replay()?,
            _ => self.launch(&examples)?,
        };
        if loss.is_finite() {
            self.progress.step += 1;
            self.progress.summed_loss += loss * examples.range.len() as f64;
        } else {
            // Neither this step nor one queued behind it was made.
            self.optimizer.resume(self.progress.step);
        }
        self.progress.epoch_seconds += start.elapsed().as_secs_f64();
        Ok(loss)
    }

    /// A step op by op.
    fn launch(&mut self, examples: &StepExamples) -> Result<f64> {
        let value = match (&self.steps, self.gpu()) {
            (Steps::WarmingUp(_), Some(gpu)) => {
                let mut value = Ok(f64::NAN);
                gpu.warm_up(|| {
                    value = self.accumulate(examples);
                    Ok(())
                })?;
                value?
            }
            _ => self.accumulate(examples)?,
        };
        self.steps.launched();
        Ok(value)
    }

    /// A step with gradients accumulated over its micro-batches.
    fn accumulate(&mut self, examples: &StepExamples) -> Result<f64> {
        let (mut value, mut grads) = (0.0, None);
        // A GPU is not waited for between the passes: its optimiser sees by itself whether the loss is a number.
        let mut unread: Vec<Tensor> = Vec::new();
        for (i, batch) in self.objective.micro_batches(examples).iter().enumerate() {
            let loss = self.objective.loss(batch, &self.cx().micro_batch(i))?;
            let loss = match batch.weight {
                1.0 => loss,
                weight => (loss * weight)?,
            };
            if self.optimizer.gpu().is_some() {
                unread.push(loss.detach());
            } else {
                value += f64::from(loss.to_scalar::<f32>()?);
                if !value.is_finite() {
                    return Ok(value);
                }
            }
            let of_batch = ops::backward(&loss)?;
            grads = Some(match grads {
                Some(sum) => accumulated(sum, of_batch, &self.params.vars())?,
                None => of_batch,
            });
        }
        if let Some(grads) = grads {
            let rate = self.rate_of(self.progress.step);
            let whole = unread.iter().cloned().map(Ok);
            let whole = whole.reduce(|sum, loss| sum? + loss?).transpose()?;
            self.optimizer.step_if(&grads, rate, whole.as_ref())?;
        }
        for loss in unread {
            value += f64::from(loss.to_scalar::<f32>()?);
        }
        Ok(value)
    }

    /// From now on, steps of whole batches on a GPU are recorded once as a CUDA graph and then replayed,
    /// if all of them have one shape.
    pub fn record_steps(&mut self) {
        if self.gpu().is_some() {
            self.steps = Steps::to_be_recorded();
        }
    }

    fn record(&mut self, examples: &StepExamples) -> Result<()> {
        let (Some(gpu), Some(shape)) = (self.gpu(), self.objective.one_shape()) else {
            self.steps = Steps::default();
            return Ok(());
        };
        let batch = shape.train.batch(examples.range.clone());
        let first = Own {
            step: self.progress.step as u64,
            rates: [0; 3],
            batch,
        };
        let batch = Labelled::new(first.batch, shape.train, &self.device)?;
        let cx = self.cx();
        let recorded = Recorded::new(gpu, batch, &first, shape.model, &self.optimizer, &cx)?;
        self.steps = Steps::Recorded(Box::new(recorded));
        Ok(())
    }

    /// A recorded step. Unless whoever is told wants the weights as they are then, the next one is queued before this one is over.
    fn replay(&mut self) -> Result<f64> {
        if self.is_settled() {
            self.queue(0)?;
        }
        if !self.settling.take() && self.examples_at(self.step_in_epoch() + 1).1 {
            self.queue(1)?;
        }
        let Steps::Recorded(recorded) = &mut self.steps else {
            unreachable!("only recorded steps are replayed");
        };
        let loss = recorded.wait()?;
        while !loss.is_finite() && recorded.queued() > 0 {
            recorded.wait()?; // it moved nothing
        }
        Ok(loss)
    }

    /// Begins a recorded step of this epoch: the next one to be told, or one so many `ahead` of it.
    fn queue(&mut self, ahead: usize) -> Result<()> {
        let step = self.progress.step + ahead;
        let (examples, _) = self.examples_at(self.step_in_epoch() + ahead);
        let rates = self.optimizer.next_words(self.rate_of(step));
        let (Steps::Recorded(recorded), Some(shape)) =
            (&mut self.steps, self.objective.one_shape())
        else {
            unreachable!("only steps of one shape are recorded");
        };
        let batch = shape.train.batch(examples.range);
        let step = step as u64;
        Ok(recorded.queue(&Own { step, rates, batch })?)
    }

    /// What this run's products make of their factors; others of the process may differ.
    fn factors(&self) -> Factors {
        self.config.train.precision.factors()
    }

    fn gpu(&self) -> Option<Gpu> {
        self.optimizer.gpu().cloned()
    }

    /// The context of the next step.
    fn cx(&self) -> Cx {
        Cx::train(self.config.seed, self.progress.step as u64)
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
        };
        self.progress.epochs.push(row);
        if !tested.right.is_empty() {
            self.progress.right.push(tested.right);
        }
        self.progress.summed_loss = 0.0;
        self.progress.epoch_seconds = 0.0;
        Ok(row)
    }

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

    /// The learning rate of step `step`, from 0.
    fn rate_of(&self, step: usize) -> f64 {
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

/// `sum` and `more`, variable by variable.
fn accumulated(
    mut sum: GradStore,
    mut more: GradStore,
    vars: &[(String, Var)],
) -> Result<GradStore> {
    for (_, var) in vars {
        if let Some(grad) = more.remove(var) {
            let total = match sum.remove(var) {
                Some(before) => (before + grad)?,
                None => grad,
            };
            sum.insert(var, total);
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests;
