//! The steps of a trainer: op by op, or as replays of one that was recorded.

use super::recorded::{Recorded, Steps};
use super::{learning_rate, Labelled, Trainer};
use crate::error::Result;
use crate::gpu::{self, Gpu};
use crate::nn::Cx;
use crate::ops;
use crate::tasks::Batch;
use std::time::Instant;

impl Trainer<'_> {
    /// One optimiser step on the next batch of the epoch: its loss, which if it is no number has
    /// changed nothing. [`Self::run`] tests between epochs; a caller of this stops there.
    pub fn step(&mut self) -> Result<f64> {
        let start = Instant::now();
        let first = self.step_in_epoch() * self.config.train.batch_size;
        let last = (first + self.config.train.batch_size).min(self.train.len());
        let batch = self.train.batch(first..last);
        let whole = last - first == self.config.train.batch_size;
        if whole && self.steps.are_warm() {
            self.record(&batch)?;
        }
        let value = match &self.steps {
            Steps::Recorded(_) if whole => self.replay(&batch)?,
            _ => self.launch(batch)?,
        };
        if value.is_finite() {
            self.progress.step += 1;
            self.progress.loss_sum += value;
        }
        self.progress.epoch_seconds += start.elapsed().as_secs_f64();
        Ok(value)
    }

    /// From now on, steps of whole batches on a GPU are recorded once and then replayed.
    pub fn record_steps(&mut self) {
        if self.gpu().is_some() {
            self.steps = Steps::to_be_recorded();
        }
    }

    fn gpu(&self) -> Option<Gpu> {
        let vars = self.params.vars();
        vars.first().and_then(|(_, var)| gpu::of(var))
    }

    fn rate(&self) -> f64 {
        let (config, step) = (&self.config.train, self.progress.step);
        learning_rate(config, step, self.steps_per_epoch())
    }

    fn cx(&self) -> Cx {
        Cx::train(self.config.seed, self.progress.step as u64)
    }

    /// A step op by op.
    fn launch(&mut self, batch: Batch) -> Result<f64> {
        let batch = Labelled::new(batch, self.train, &self.device)?;
        let loss = batch.classify(&self.model, &self.cx())?.loss;
        let value = f64::from(loss.to_scalar::<f32>()?);
        if value.is_finite() {
            let rate = self.rate();
            self.optimizer.step(&ops::backward(&loss)?, rate)?;
        }
        self.steps.launched();
        Ok(value)
    }

    fn record(&mut self, batch: &Batch) -> Result<()> {
        let Some(gpu) = self.gpu() else {
            return Ok(());
        };
        gpu.set_step(self.progress.step as u64)?;
        let batch = Labelled::new(*batch, self.train, &self.device)?;
        let recorded = Recorded::new(gpu, batch, &self.model, &self.optimizer, &self.cx())?;
        self.steps = Steps::Recorded(recorded);
        Ok(())
    }

    fn replay(&mut self, batch: &Batch) -> Result<f64> {
        let Steps::Recorded(recorded) = &self.steps else {
            unreachable!("asked before");
        };
        let rate = self.rate();
        self.optimizer.set_rates(rate)?;
        let value = recorded.replay(batch, self.progress.step as u64)?;
        if !value.is_finite() {
            self.optimizer.unset_rates();
        }
        Ok(value)
    }
}
