//! A run on disk: weights, moments and progress in one safetensors file, from which training goes
//! on bit for bit. Random numbers need no saving: they are functions of seed and step.

use super::{adamw, Progress, Trainer};
use crate::error::{Error, Result};
use candle_core::{safetensors as io, Shape};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::SafeTensors;
use std::collections::HashMap;

const PROGRESS: &str = "progress";
const RUN: &str = "run";

impl Trainer<'_> {
    /// Everything that [`Self::restore`] needs.
    pub fn checkpoint(&self) -> Result<Vec<u8>> {
        let mut tensors = Vec::new();
        for slot in self.optimizer.slots() {
            tensors.push((slot.name.clone(), adamw::bytes(&slot.var)?));
            let saved = (slot.moments_bytes()?, slot.moments_shape());
            tensors.push((moments(&slot.name), saved));
        }
        let views = tensors.iter().map(|(name, (bytes, shape))| {
            let view = TensorView::new(Dtype::F32, shape.dims().to_vec(), bytes);
            Ok((name, view.map_err(candle_core::Error::wrap)?))
        });
        let progress = serde_json::to_string(&self.progress).expect("progress is plain data");
        let metadata = HashMap::from([
            (PROGRESS.to_owned(), progress),
            (RUN.to_owned(), self.config.id()),
        ]);
        let bytes = safetensors::serialize(views.collect::<Result<Vec<_>>>()?, Some(metadata));
        Ok(bytes.map_err(candle_core::Error::wrap)?)
    }

    /// Goes back to the state of a checkpoint. `place` names it in errors.
    pub fn restore(&mut self, bytes: &[u8], place: &str) -> Result<()> {
        let broken = |what: String| {
            Error::usage(format!(
                "{place}: {what}; delete it to train from the start"
            ))
        };
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| broken(e.to_string()))?;
        let metadata = header.metadata().clone().unwrap_or_default();
        if metadata.get(RUN) != Some(&self.config.id()) {
            return Err(broken("a checkpoint of another run".to_owned()));
        }
        let progress: Progress = metadata
            .get(PROGRESS)
            .and_then(|p| serde_json::from_str(p).ok())
            .filter(|progress| self.can_reach(progress))
            .ok_or_else(|| broken("the progress is missing or impossible".to_owned()))?;
        let tensors = io::load_buffer(bytes, &self.device).map_err(|e| broken(e.to_string()))?;
        for slot in self.optimizer.slots() {
            let find = |name: &str, shape: &Shape| {
                let found = tensors.get(name).filter(|t| t.shape() == shape);
                found.ok_or_else(|| broken(format!("tensor {name} is missing or misshapen")))
            };
            slot.var.set(find(&slot.name, slot.var.shape())?)?;
            slot.set_moments(find(&moments(&slot.name), &slot.moments_shape())?)?;
        }
        self.optimizer.resume(progress.step);
        self.progress = progress;
        Ok(())
    }

    /// Whether the steps and epochs of `progress` belong together.
    fn can_reach(&self, progress: &Progress) -> bool {
        let over = progress.epochs.len() * self.steps_per_epoch();
        (over..=over + self.steps_per_epoch()).contains(&progress.step)
    }
}

fn moments(name: &str) -> String {
    format!("adamw/{name}")
}
