//! The training loop, top to bottom: batch, loss, gradient, AdamW; test after every epoch; stop
//! when the task is learnt, when the epochs are used up, or when the loss is no longer a number.

mod adamw;
mod checkpoint;
mod documents;
mod labelled;
mod order;
mod perplexity;
mod progress;
mod recall;
mod recorded;
mod schedule;
mod shifted;
mod steps;
mod subject;
mod windows;

pub use adamw::AdamW;
pub use labelled::Labelled;
pub use perplexity::{score, unigram_ppl, Scored, Scoring};
pub use progress::Progress;
pub use schedule::learning_rate;

use crate::config::{Precision, RunConfig, TaskConfig};
use crate::error::{Error, Result};
use crate::gpu;
use crate::nn::Params;
use crate::store::{EpochRow, Metrics, Outcome};
use crate::tasks::Data;
use candle_core::{DType, Device, Var};
use documents::Documents;
use recall::Recall;
use recorded::Steps;
use std::time::Instant;
use subject::Subject;
use windows::Windows;

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

/// One run in training.
pub struct Trainer<'a> {
    config: &'a RunConfig,
    device: Device,
    params: Params,
    subject: Box<dyn Subject + 'a>,
    optimizer: AdamW,
    steps: Steps,
    progress: Progress,
}

impl<'a> Trainer<'a> {
    /// A run at its beginning, on `device`.
    pub fn new(config: &'a RunConfig, data: &'a Data, device: &Device) -> Result<Self> {
        let precision = config.train.precision;
        gpu::products_in_tf32(precision == Precision::Tf32);
        let params = Params::seeded(config.seed, DType::F32, device);
        let params = params.for_activations(match precision {
            Precision::Bf16 => DType::BF16,
            Precision::F32 | Precision::Tf32 => DType::F32,
        });
        let subject: Box<dyn Subject> = match (&config.task, data) {
            (TaskConfig::Mqar(_), Data::Recall { train, test }) => {
                Box::new(Recall::new(config, [train, test], &params, device)?)
            }
            (TaskConfig::Lra(task), Data::Documents(splits)) => {
                Box::new(Documents::new((config, task), splits, &params, device)?)
            }
            (TaskConfig::Wikitext(task), Data::Text(splits)) => {
                Box::new(Windows::new((config, task), splits, &params, device)?)
            }
            _ => return Err(Error::usage("the data are those of another task")),
        };
        Ok(Self {
            subject,
            optimizer: AdamW::configured(params.vars(), &config.train)?,
            config,
            device: device.clone(),
            params,
            steps: Steps::default(),
            progress: Progress::default(),
        })
    }

    /// Trains to the end, telling `on` of every step and epoch. An error from `on` ends the run
    /// where it stands; [`Self::checkpoint`] then holds all of it.
    pub fn run(&mut self, on: &mut dyn FnMut(&Self, Event) -> Result<()>) -> Result<Outcome> {
        loop {
            if let Some(outcome) = self.ended() {
                return Ok(outcome);
            }
            while self.step_in_epoch() < self.steps_per_epoch() {
                let loss = self.step()?;
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

    /// Whether the epochs that are over end the run. Asked before each epoch, not after: a run may
    /// have been interrupted between its last epoch and its end.
    fn ended(&self) -> Option<Outcome> {
        let (train, epochs) = (&self.config.train, &self.progress.epochs);
        match epochs.last() {
            Some(last) if last.accuracy > train.stop_above => Some(Outcome::Converged),
            _ if epochs.len() >= train.epochs => Some(Outcome::Finished),
            _ => None,
        }
    }

    /// How far the run has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Steps an epoch; the last may be a short batch.
    pub fn steps_per_epoch(&self) -> usize {
        let examples = self.subject.examples();
        examples.div_ceil(self.config.train.batch_size)
    }

    /// Steps made in the current epoch.
    pub fn step_in_epoch(&self) -> usize {
        self.progress.step - self.progress.epochs.len() * self.steps_per_epoch()
    }

    /// Seconds trained so far, over all interruptions.
    pub fn seconds(&self) -> f64 {
        let over: f64 = self.progress.epochs.iter().map(|e| e.seconds).sum();
        over + self.progress.epoch_seconds
    }

    /// Mean loss of the current epoch's examples so far.
    pub fn mean_loss(&self) -> f64 {
        let seen = self.step_in_epoch() * self.config.train.batch_size;
        self.progress.summed_loss / seen.clamp(1, self.subject.examples()) as f64
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
        self.subject.state_size()
    }

    /// The epoch that validation chooses, where there is a validation split.
    pub fn selected(&self) -> Option<&EpochRow> {
        progress::selected(&self.config.task, &self.progress.epochs)
    }

    /// The perplexities of a run on text that ended by `outcome`; nothing in other tasks. It takes about
    /// as long as a test of the weights.
    pub fn language_scores(&self, outcome: Outcome) -> Result<Metrics> {
        let diverged = outcome == Outcome::Diverged;
        Ok(self.subject.conclude(&self.progress.epochs, diverged)?)
    }

    /// The learning rate of step `step`, from 0.
    fn rate_of(&self, step: usize) -> f64 {
        learning_rate(&self.config.train, step, self.steps_per_epoch())
    }

    fn finish_epoch(&mut self) -> Result<EpochRow> {
        let start = Instant::now();
        let tested = self.subject.evaluate()?;
        let trained = self.progress.epoch_seconds;
        let row = EpochRow {
            epoch: self.progress.epochs.len() + 1,
            train_loss: self.progress.summed_loss / self.subject.examples() as f64,
            test_loss: tested.test.loss,
            accuracy: tested.test.accuracy,
            lr: self.rate_of(self.progress.step - 1),
            seconds: trained + start.elapsed().as_secs_f64(),
            tokens_per_s: self.subject.tokens() as f64 / trained,
            val_loss: tested.val.map(|val| val.loss),
            val_accuracy: tested.val.map(|val| val.accuracy),
        };
        self.progress.epochs.push(row);
        self.progress.summed_loss = 0.0;
        self.progress.epoch_seconds = 0.0;
        Ok(row)
    }
}

#[cfg(test)]
mod tests;
