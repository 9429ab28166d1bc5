//! One optimiser step: forward and backward passes of its micro-batches, then AdamW.

use super::cuda_graph::CudaGraph;
use super::objective::StepExamples;
use super::Trainer;
use crate::error::Result;
use crate::nn::Cx;
use crate::ops;
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};

/// A way to make optimiser steps.
pub(super) trait Stepper {
    /// Makes the next step of the epoch and returns its loss; a loss that is not a number has changed nothing.
    fn step(&mut self, trainer: &mut Trainer) -> Result<f64>;

    /// Whether the weights are those after the steps whose losses were returned: none is under way behind them.
    fn is_settled(&self) -> bool {
        true
    }
}

/// Op by op.
pub(super) struct Launched;

impl Stepper for Launched {
    fn step(&mut self, trainer: &mut Trainer) -> Result<f64> {
        trainer.accumulate()
    }
}

impl Trainer<'_> {
    /// Records the steps of whole batches once as a CUDA graph and replays it from then on, on a GPU and where all of them
    /// have one shape.
    pub fn record_steps(&mut self) {
        if let Some(gpu) = self.optimizer.gpu() {
            self.stepper = Box::new(CudaGraph::new(gpu.clone()));
        }
    }

    /// Whether the weights are those after the steps that were told. If they are one step ahead, they will be those at the
    /// next event of [`Self::run`], for which a caller may wait.
    pub fn settle(&self) -> bool {
        let settled = self.stepper.is_settled();
        self.settling.set(!settled);
        settled
    }

    /// The next step, with gradients accumulated over its micro-batches.
    pub(super) fn accumulate(&mut self) -> Result<f64> {
        let examples = StepExamples {
            epoch: self.progress.epochs.len(),
            range: self.examples_at(0),
        };
        let (mut value, mut grads) = (0.0, None);
        // Nothing waits for a GPU between the passes: its optimiser itself sees whether the loss is a number.
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

    /// The context of the next step.
    pub(super) fn cx(&self) -> Cx {
        Cx::train(self.config.seed, self.progress.step as u64)
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
