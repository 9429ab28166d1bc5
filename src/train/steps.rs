//! The steps of a trainer: op by op, or as replays of one that was recorded.

use super::recorded::{Recorded, Steps};
use super::subject::Span;
use super::Trainer;
use crate::error::Result;
use crate::gpu::{self, Gpu};
use crate::nn::Cx;
use crate::ops;
use candle_core::backprop::GradStore;
use candle_core::Var;
use std::time::Instant;

impl Trainer<'_> {
    /// One optimiser step on the next batch of the epoch: its loss, which if it is no number has
    /// changed nothing. [`Self::run`] tests between epochs; a caller of this stops there.
    pub fn step(&mut self) -> Result<f64> {
        let start = Instant::now();
        let size = self.config.train.batch_size;
        let first = self.step_in_epoch() * size;
        let last = (first + size).min(self.subject.examples());
        let span = Span {
            epoch: self.progress.epochs.len(),
            range: first..last,
        };
        let whole = last - first == size;
        if whole && self.steps.are_warm() {
            self.record(&span)?;
        }
        let value = match &self.steps {
            Steps::Recorded(_) if whole => self.replay(&span)?,
            _ => self.launch(&span)?,
        };
        if value.is_finite() {
            self.progress.step += 1;
            self.progress.summed_loss += value * span.range.len() as f64;
        }
        self.progress.epoch_seconds += start.elapsed().as_secs_f64();
        Ok(value)
    }

    /// From now on, steps of whole batches on a GPU are recorded once and then replayed, if all of
    /// them have one shape.
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
        self.rate_of(self.progress.step)
    }

    fn cx(&self) -> Cx {
        Cx::train(self.config.seed, self.progress.step as u64)
    }

    /// A step op by op, its parts one after the other.
    fn launch(&mut self, span: &Span) -> Result<f64> {
        let (mut value, mut grads) = (0.0, None);
        for (part, share) in self.subject.shares(span).into_iter().enumerate() {
            let loss = self
                .subject
                .loss(span, part, &self.cx().micro_batch(part))?;
            let loss = if share == 1.0 { loss } else { (loss * share)? };
            value += f64::from(loss.to_scalar::<f32>()?);
            if !value.is_finite() {
                return Ok(value);
            }
            let of_part = ops::backward(&loss)?;
            grads = Some(match grads {
                Some(sum) => added(sum, of_part, &self.params.vars())?,
                None => of_part,
            });
        }
        if let Some(grads) = grads {
            let rate = self.rate();
            self.optimizer.step(&grads, rate)?;
        }
        self.steps.launched();
        Ok(value)
    }

    fn record(&mut self, span: &Span) -> Result<()> {
        let (Some(gpu), Some(recall)) = (self.gpu(), self.subject.one_shape()) else {
            self.steps = Steps::default();
            return Ok(());
        };
        gpu.set_step(self.progress.step as u64)?;
        let batch = recall.upload(span.range.clone())?;
        let recorded = Recorded::new(gpu, batch, recall.model(), &self.optimizer, &self.cx())?;
        self.steps = Steps::Recorded(recorded);
        Ok(())
    }

    fn replay(&mut self, span: &Span) -> Result<f64> {
        let (Steps::Recorded(recorded), Some(recall)) = (&self.steps, self.subject.one_shape())
        else {
            unreachable!("asked before");
        };
        let rate = self.rate();
        self.optimizer.set_rates(rate)?;
        let value =
            recorded.replay(&recall.batch(span.range.clone()), self.progress.step as u64)?;
        if !value.is_finite() {
            self.optimizer.unset_rates();
        }
        Ok(value)
    }
}

/// `sum` and `more`, variable by variable.
fn added(mut sum: GradStore, mut more: GradStore, vars: &[(String, Var)]) -> Result<GradStore> {
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
