//! Checkpoints: weights, moments and progress in one safetensors file, from which training continues bit for bit.
//! Random numbers need not be saved, since they are functions of seed and step. A file of weights alone is written
//! separately; its metadata describe the model.

use super::{adamw, Progress, Trainer};
use crate::error::{Error, Result};
use crate::model::weights::{archive, WeightValues, WeightsOrigin};
use crate::nn::GivenValues;
use crate::store::{check_archive, Archive};
use candle_core::safetensors::Load;
use candle_core::Shape;
use safetensors::SafeTensors;
use std::io::{self, Write};

const PROGRESS: &str = "progress";
const RUN: &str = "run";

impl Trainer<'_> {
    /// Writes everything that [`Self::restore`] needs, without copying it in memory first.
    ///
    /// # Errors
    ///
    /// Fails if writing fails, or if the weights are a step ahead of the losses that were returned ([`Self::settle`]).
    pub fn write_checkpoint(&self, out: &mut dyn Write) -> io::Result<()> {
        self.must_be_settled()?;
        let progress = serde_json::to_string(&self.progress).expect("progress is plain data");
        let mut archive = Archive::new([(PROGRESS, progress), (RUN, self.config.id())]).digested();
        for slot in self.optimizer.slots() {
            let var = slot.var.as_tensor();
            archive.add(slot.name.clone(), var.dims(), || adamw::bytes(var));
            let moments = moments(&slot.name);
            let shape = slot.moments_shape();
            archive.add(moments, shape.dims(), || adamw::moments_bytes(slot));
        }
        archive.write(out)
    }

    /// Writes the current weights as a safetensors file. Its metadata hold the run's config as canonical JSON, its id,
    /// and the numbers of epochs and steps made.
    pub fn write_weights(&self, out: &mut dyn Write) -> io::Result<()> {
        self.must_be_settled()?;
        let origin =
            WeightsOrigin { run: Some(self.config.id()), epoch: self.progress.epochs.len(), step: self.progress.step };
        let slots = self.optimizer.slots().iter();
        let weights = slots.map(|slot| (&slot.name, slot.var.as_tensor()));
        archive(self.config, &origin, weights).write(out)
    }

    fn must_be_settled(&self) -> io::Result<()> {
        let ahead = || io::Error::other("the weights are one step ahead of the reported losses");
        self.stepper.is_settled().then_some(()).ok_or_else(ahead)
    }

    /// Sets the weights before the first step to those of `weights`.
    ///
    /// # Errors
    ///
    /// Fails if a weight cannot be read, is missing or has another shape than its parameter.
    pub fn start_from(&mut self, weights: &WeightValues) -> Result<()> {
        for slot in self.optimizer.slots() {
            let name = &slot.name;
            let value = weights.value(name)?.filter(|value| value.shape() == slot.var.shape());
            let value =
                value.ok_or_else(|| Error::usage(format!("the weights have no {name} of the model's shape")))?;
            slot.var.set(&value.to_device(&self.device)?.to_dtype(slot.var.dtype())?)?;
        }
        Ok(())
    }

    /// Restores the state of a checkpoint; `place` names the checkpoint in errors.
    ///
    /// # Errors
    ///
    /// Fails if the checkpoint is damaged, belongs to another run, or does not fit the model.
    pub fn restore(&mut self, bytes: &[u8], place: &str) -> Result<()> {
        let broken = |what: String| Error::corrupt(place, what);
        check_archive(bytes).map_err(|what| broken(what.to_owned()))?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| broken(e.to_string()))?;
        let metadata = header.metadata().clone().unwrap_or_default();
        if metadata.get(RUN) != Some(&self.config.id()) {
            return Err(broken("it belongs to another run".to_owned()));
        }
        let progress: Progress = metadata
            .get(PROGRESS)
            .and_then(|p| serde_json::from_str(p).ok())
            .filter(|progress| self.can_reach(progress))
            .ok_or_else(|| broken("its progress is missing or impossible".to_owned()))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| broken(e.to_string()))?;
        for slot in self.optimizer.slots() {
            let find = |name: &str, shape: &Shape| {
                let found = tensors.tensor(name).ok();
                let found = found.and_then(|view| view.load(&self.device).ok());
                found
                    .filter(|tensor| tensor.shape() == shape)
                    .ok_or_else(|| broken(format!("tensor {name} is missing or misshapen")))
            };
            slot.var.set(&find(&slot.name, slot.var.shape())?)?;
            slot.set_moments(&find(&moments(&slot.name), &slot.moments_shape())?)?;
        }
        self.optimizer.resume(progress.step);
        self.progress = progress;
        Ok(())
    }

    /// Whether the step of `progress` lies in the epoch that follows its finished epochs.
    fn can_reach(&self, progress: &Progress) -> bool {
        let over = progress.epochs.len() * self.steps_per_epoch();
        (over..=over + self.steps_per_epoch()).contains(&progress.step)
    }
}

fn moments(name: &str) -> String {
    format!("adamw/{name}")
}
