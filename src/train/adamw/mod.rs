//! AdamW (Loshchilov & Hutter 2019) with moments that can be saved. A parameter without a gradient is left unchanged:
//! it neither moves nor decays.

use crate::config::{AdamConfig, Decay, TrainConfig};
use crate::gpu::{self, Gpu, View};
use crate::nn::Params;
use crate::ops::{AdamWKernels, AdamWRates, AdamWSettings, AdamWSlot};
use candle_core::backprop::GradStore;
use candle_core::{bail, DType, Result, Tensor, Var};

/// Hyperparameters of the released trainer.
const RELEASED: AdamConfig = AdamConfig { beta1: 0.9, beta2: 0.999, eps: 1e-8, clip: None, decay: Decay::All };

/// Optimiser state of one set of parameters.
pub struct AdamW {
    slots: Vec<AdamWSlot>,
    settings: AdamWSettings,
    weight_decay: f64,
    steps: i32,
    on_gpu: Option<AdamWKernels>,
}

impl AdamW {
    /// AdamW with the hyperparameters of the released trainer and zero moments for `vars`.
    pub fn new(vars: Vec<(String, Var)>, weight_decay: f64) -> Result<Self> {
        Self::with_config(vars, weight_decay, RELEASED, |_, _| true)
    }

    /// AdamW with the hyperparameters of `train` and zero moments for `params`.
    pub fn configured(params: &Params, train: &TrainConfig) -> Result<Self> {
        let released = || AdamConfig { decay: train.decay.unwrap_or(Decay::All), ..RELEASED };
        let config = train.adam.clone().unwrap_or_else(released);
        let decay = config.decay;
        let decays = |name: &str, var: &Var| match decay {
            Decay::All => true,
            Decay::Matrices => var.rank() >= 2,
            Decay::Maps => params.is_map(name),
        };
        Self::with_config(params.vars(), train.weight_decay, config, decays)
    }

    fn with_config(
        vars: Vec<(String, Var)>,
        weight_decay: f64,
        config: AdamConfig,
        decays: impl Fn(&str, &Var) -> bool,
    ) -> Result<Self> {
        let AdamConfig { beta1, beta2, eps, clip, decay: _ } = config;
        let slot = |(name, var): (String, Var)| {
            let decays = decays(&name, &var);
            AdamWSlot::new(name, var, decays)
        };
        let slots: Vec<AdamWSlot> = vars.into_iter().map(slot).collect::<Result<_>>()?;
        let settings = AdamWSettings { beta1, beta2, eps, clip };
        let gpu = slots.first().and_then(|slot| gpu::of(&slot.var));
        let on_gpu = gpu.map(|gpu| AdamWKernels::new(gpu, &settings, &slots)).transpose()?;
        Ok(Self { slots, settings, weight_decay, steps: 0, on_gpu })
    }

    /// Makes one step at learning rate `lr`. Call it after `backward`, never between forward and backward.
    pub fn step(&mut self, grads: &GradStore, lr: f64) -> Result<()> {
        self.step_if(grads, lr, None)
    }

    /// Same as [`Self::step`], except that a GPU changes nothing if `loss` is given and not finite. The host may not
    /// know the loss yet; once it does, it undoes the step count with [`Self::resume`].
    pub(super) fn step_if(&mut self, grads: &GradStore, lr: f64, loss: Option<&Tensor>) -> Result<()> {
        let rates = self.next_rates(lr);
        match &self.on_gpu {
            Some(on_gpu) => {
                on_gpu.set_rates(&rates)?;
                let launch = |loss: Option<View>| on_gpu.step(&self.slots, grads, loss);
                on_gpu.gpu().with_tensor(loss, launch)
            }
            None => self.settings.step(&self.slots, grads, &rates),
        }
    }

    /// Advances to the next step, at learning rate `lr`, and returns the words that its launches read at
    /// [`Self::rates`].
    pub(super) fn next_words(&mut self, lr: f64) -> [u32; 3] {
        self.next_rates(lr).words()
    }

    /// Device memory from which launches read the values that change from step to step.
    pub(super) fn rates(&self) -> Result<View<'_>> {
        Ok(self.on_gpu()?.rates())
    }

    /// Launches the kernels of a step, for a recording. They change nothing if `loss` is not finite.
    pub(super) fn launch(&self, grads: &GradStore, loss: View) -> Result<()> {
        self.on_gpu()?.step(&self.slots, grads, Some(loss))
    }

    /// The GPU whose kernels make the steps, if the parameters are on one.
    pub(super) fn gpu(&self) -> Option<&Gpu> {
        self.on_gpu.as_ref().map(AdamWKernels::gpu)
    }

    fn on_gpu(&self) -> Result<&AdamWKernels> {
        match &self.on_gpu {
            Some(on_gpu) => Ok(on_gpu),
            None => bail!("the parameters are not on a GPU"),
        }
    }

    /// Advances the step count and returns the rates of that step at learning rate `lr`.
    fn next_rates(&mut self, lr: f64) -> AdamWRates {
        self.steps += 1;
        AdamWRates {
            rate: lr / (1.0 - self.settings.beta1.powi(self.steps)),
            correction: (1.0 - self.settings.beta2.powi(self.steps)).sqrt(),
            decay: 1.0 - lr * self.weight_decay,
        }
    }

    pub(super) fn slots(&self) -> &[AdamWSlot] {
        &self.slots
    }

    /// Sets the number of steps made so far, after a checkpoint was loaded or a step was undone.
    pub(super) fn resume(&mut self, steps: usize) {
        self.steps = steps as i32;
    }
}

/// Returns the f32 values of `tensor` as little-endian bytes, for a checkpoint.
pub(super) fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    if tensor.dtype() != DType::F32 {
        bail!("checkpoints hold f32, not {:?}", tensor.dtype());
    }
    Ok(le_bytes(&tensor.flatten_all()?.to_vec1::<f32>()?))
}

/// Returns the moments of a parameter as little-endian bytes, for a checkpoint.
pub(super) fn moments_bytes(slot: &AdamWSlot) -> Result<Vec<u8>> {
    Ok(le_bytes(&slot.moments()?))
}

fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests;
