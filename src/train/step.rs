//! Optimiser steps: forward and backward passes over the micro-batches, then AdamW.

use super::objective::StepExamples;
use super::{Launched, Stepper, Trainer};
use crate::error::Result;
use crate::nn::Cx;
use crate::ops;
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

impl Stepper for Launched {
    fn step(&mut self, trainer: &mut Trainer) -> Result<f64> {
        trainer.accumulate()
    }
}

impl Trainer<'_> {
    /// Whether the weights are those after the steps whose losses were returned. If they are one step ahead, the
    /// trainer queues no further step, so that they agree at the next event of [`Self::run`].
    pub fn settle(&self) -> bool {
        let settled = self.stepper.is_settled();
        self.settling.set(!settled);
        settled
    }

    /// Makes the next step, with gradients accumulated over its micro-batches, and returns its loss.
    pub(super) fn accumulate(&mut self) -> Result<f64> {
        let examples = StepExamples { epoch: self.progress.epochs.len(), range: self.examples_at(0) };
        let (mut value, mut grads) = (0.0, None);
        // No host-device sync between the passes: on a GPU the optimiser's kernels check themselves whether the loss is
        // finite.
        let mut unread: Vec<Tensor> = Vec::new();
        for (i, batch) in self.objective.micro_batches(&examples).iter().enumerate() {
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
            let batch_grads = ops::backward(&loss)?;
            grads = Some(match grads {
                Some(sum) => sum_grads(sum, batch_grads, &self.params.vars())?,
                None => batch_grads,
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

    /// Context of the next step.
    pub(super) fn cx(&self) -> Cx {
        Cx::train(self.config.seed, self.progress.step as u64)
    }
}

/// Sum of the gradients `sum` and `more`, variable by variable.
fn sum_grads(mut sum: GradStore, mut more: GradStore, vars: &[(String, Var)]) -> Result<GradStore> {
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
