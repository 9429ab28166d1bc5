//! AdamW (Loshchilov & Hutter 2019) with moments that can be saved. A parameter without a gradient is left unchanged:
//! it neither moves nor decays.

mod on_cpu;
mod on_gpu;

use crate::config::{AdamConfig, Decay, TrainConfig};
use crate::gpu::{self, Gpu, View};
use crate::nn::Params;
use candle_core::backend::BackendDevice;
use candle_core::backprop::GradStore;
use candle_core::cpu_backend::CpuDevice;
use candle_core::{bail, CpuStorage, DType, Result, Shape, Tensor, Var};
use on_gpu::OnGpu;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Hyperparameters of the released trainer.
const RELEASED: AdamConfig = AdamConfig { beta1: 0.9, beta2: 0.999, eps: 1e-8, clip: None, decay: Decay::All };

/// Optimiser state of one set of parameters.
pub struct AdamW {
    slots: Vec<Slot>,
    config: AdamConfig,
    weight_decay: f64,
    steps: i32,
    on_gpu: Option<OnGpu>,
}

/// A parameter and its moments.
pub(super) struct Slot {
    pub name: String,
    pub var: Var,
    moments: Moments,
    /// Whether weight decay applies to this parameter.
    decays: bool,
}

/// First moments, then second ones, `(2, elements)`, in the parameter's dtype.
enum Moments {
    /// Host memory. The mutex is needed because a Candle in-place op gives mutable access to one tensor only.
    Cpu(Mutex<CpuStorage>),
    /// Memory of the parameter's GPU.
    Gpu(Var),
}

impl Moments {
    /// Zero moments on the device of `var`.
    fn zeros(var: &Var) -> Result<Self> {
        let shape = moments_shape(var);
        match gpu::of(var) {
            Some(_) => Ok(Self::Gpu(Var::zeros(shape, var.dtype(), var.device())?)),
            None => {
                let zeros = CpuDevice.zeros_impl(&shape, var.dtype())?;
                Ok(Self::Cpu(Mutex::new(zeros)))
            }
        }
    }

    fn on_gpu(&self) -> Option<&Tensor> {
        match self {
            Self::Gpu(moments) => Some(moments),
            Self::Cpu(_) => None,
        }
    }
}

fn moments_shape(var: &Var) -> Shape {
    (2, var.elem_count()).into()
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
        let slot = |(name, var): (String, Var)| {
            Ok(Slot { moments: Moments::zeros(&var)?, decays: decays(&name, &var), name, var })
        };
        let slots: Vec<Slot> = vars.into_iter().map(slot).collect::<Result<_>>()?;
        let gpu = slots.first().and_then(|slot| gpu::of(&slot.var));
        Ok(Self {
            on_gpu: gpu.map(|gpu| OnGpu::new(gpu, &config, &slots)).transpose()?,
            slots,
            config,
            weight_decay,
            steps: 0,
        })
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
                let launch = |loss: Option<View>| on_gpu.launch(&self.slots, grads, loss);
                on_gpu.gpu().with_tensor(loss, launch)
            }
            None => on_cpu::step(&self.slots, grads, &self.config, &rates),
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
        self.on_gpu()?.launch(&self.slots, grads, Some(loss))
    }

    /// The GPU whose kernels make the steps, if the parameters are on one.
    pub(super) fn gpu(&self) -> Option<&Gpu> {
        self.on_gpu.as_ref().map(OnGpu::gpu)
    }

    fn on_gpu(&self) -> Result<&OnGpu> {
        match &self.on_gpu {
            Some(on_gpu) => Ok(on_gpu),
            None => bail!("the parameters are not on a GPU"),
        }
    }

    /// Advances the step count and returns the rates of that step at learning rate `lr`.
    fn next_rates(&mut self, lr: f64) -> Rates {
        self.steps += 1;
        Rates {
            rate: lr / (1.0 - self.config.beta1.powi(self.steps)),
            correction: (1.0 - self.config.beta2.powi(self.steps)).sqrt(),
            decay: 1.0 - lr * self.weight_decay,
        }
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Sets the number of steps made so far, after a checkpoint was loaded or a step was undone.
    pub(super) fn resume(&mut self, steps: usize) {
        self.steps = steps as i32;
    }
}

/// Factors of one step that are the same for all parameters.
struct Rates {
    rate: f64,
    correction: f64,
    /// Factor of a parameter to which weight decay applies, 1 - lr · weight decay.
    decay: f64,
}

impl Rates {
    /// Bits of the f32 values, in the order in which the kernels read them.
    fn words(&self) -> [u32; 3] {
        [self.rate, self.correction, self.decay].map(|x| (x as f32).to_bits())
    }
}

fn lock(moments: &Mutex<CpuStorage>) -> MutexGuard<'_, CpuStorage> {
    moments.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    /// Shape of the saved moments.
    pub fn moments_shape(&self) -> Shape {
        moments_shape(&self.var)
    }

    /// Returns the moments as little-endian bytes of f32.
    pub fn moments_bytes(&self) -> Result<Vec<u8>> {
        match &self.moments {
            Moments::Gpu(moments) => bytes(moments),
            Moments::Cpu(moments) => match &*lock(moments) {
                CpuStorage::F32(values) => Ok(le_bytes(values)),
                _ => bail!("checkpoints hold f32"),
            },
        }
    }

    /// Replaces the moments by `saved`, of shape [`Self::moments_shape`].
    pub fn set_moments(&self, saved: &Tensor) -> Result<()> {
        match &self.moments {
            Moments::Gpu(moments) => moments.set(saved)?,
            Moments::Cpu(moments) => {
                *lock(moments) = CpuStorage::F32(saved.flatten_all()?.to_vec1()?);
            }
        }
        Ok(())
    }
}

/// Returns the f32 values of `tensor` as little-endian bytes, for a checkpoint.
pub(super) fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    if tensor.dtype() != DType::F32 {
        bail!("checkpoints hold f32, not {:?}", tensor.dtype());
    }
    Ok(le_bytes(&tensor.flatten_all()?.to_vec1::<f32>()?))
}

fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests;
