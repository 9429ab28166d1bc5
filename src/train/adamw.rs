//! AdamW (Loshchilov & Hutter 2019) with moments that can be saved. Decay falls on every parameter
//! that has a gradient, as in the released trainer, and on no other.

mod on_gpu;

use crate::gpu;
use candle_core::backend::BackendDevice;
use candle_core::backprop::GradStore;
use candle_core::cpu_backend::CpuDevice;
use candle_core::{bail, CpuStorage, DType, InplaceOp2, Layout, Result, Shape, Tensor, Var};
use on_gpu::OnGpu;
use rayon::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPS: f64 = 1e-8;
/// Elements a task; a step is elementwise, so the split cannot change a bit.
const CHUNK: usize = 1 << 14;

/// The optimiser of one set of parameters.
pub struct AdamW {
    slots: Vec<Slot>,
    weight_decay: f64,
    steps: i32,
    on_gpu: Option<OnGpu>,
}

/// A parameter and its moments.
pub(super) struct Slot {
    pub name: String,
    pub var: Var,
    moments: Moments,
}

/// First moments, then second, of the parameter's number type.
enum Moments {
    /// Behind a lock because candle hands an op that changes a tensor no other mutable thing.
    Cpu(Mutex<CpuStorage>),
    /// Where the parameter lies.
    Gpu(Var),
}

impl Moments {
    /// At zero.
    fn of(var: &Var) -> Result<Self> {
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
    /// Moments at zero for `vars`.
    pub fn new(vars: Vec<(String, Var)>, weight_decay: f64) -> Result<Self> {
        let slot = |(name, var): (String, Var)| {
            let moments = Moments::of(&var)?;
            Ok(Slot { name, var, moments })
        };
        let slots: Vec<Slot> = vars.into_iter().map(slot).collect::<Result<_>>()?;
        let gpu = slots.first().and_then(|slot| gpu::of(&slot.var));
        Ok(Self {
            on_gpu: gpu.map(|gpu| OnGpu::new(gpu, &slots)).transpose()?,
            slots,
            weight_decay,
            steps: 0,
        })
    }

    /// One step at rate `lr`. Call it after `backward`, never between forward and backward.
    pub fn step(&mut self, grads: &GradStore, lr: f64) -> Result<()> {
        let rates = self.next_rates(lr);
        match &self.on_gpu {
            Some(on_gpu) => {
                on_gpu.set_rates(&rates)?;
                on_gpu.launch(&self.slots, grads, None)
            }
            None => self.step_on_cpu(grads, &rates),
        }
    }

    /// Tells the launches of [`Self::launch`] that the next step, at rate `lr`, is theirs.
    pub(super) fn set_rates(&mut self, lr: f64) -> Result<()> {
        let rates = self.next_rates(lr);
        self.on_gpu()?.set_rates(&rates)
    }

    /// Undoes [`Self::set_rates`]: the step was not made.
    pub(super) fn unset_rates(&mut self) {
        self.steps -= 1;
    }

    /// The launches of a step, for a recording; they move nothing if `loss` is no number.
    pub(super) fn launch(&self, grads: &GradStore, loss: Option<&Tensor>) -> Result<()> {
        self.on_gpu()?.launch(&self.slots, grads, loss)
    }

    fn on_gpu(&self) -> Result<&OnGpu> {
        match &self.on_gpu {
            Some(on_gpu) => Ok(on_gpu),
            None => bail!("the parameters are not on a GPU"),
        }
    }

    /// What the step to come, at rate `lr`, has of its own.
    fn next_rates(&mut self, lr: f64) -> Rates {
        self.steps += 1;
        Rates {
            rate: lr / (1.0 - BETA1.powi(self.steps)),
            correction: (1.0 - BETA2.powi(self.steps)).sqrt(),
            decay: 1.0 - lr * self.weight_decay,
        }
    }

    fn step_on_cpu(&self, grads: &GradStore, rates: &Rates) -> Result<()> {
        for slot in &self.slots {
            if let (Moments::Cpu(moments), Some(grad)) = (&slot.moments, grads.get(&slot.var)) {
                let step = Step { moments, rates };
                slot.var.inplace_op2(&grad.contiguous()?, &step)?;
            }
        }
        Ok(())
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Takes up where a checkpoint left off after `steps` steps.
    pub(super) fn resume(&mut self, steps: usize) {
        self.steps = steps as i32;
    }
}

/// m ← β₁ m + (1-β₁) g,  v ← β₂ v + (1-β₂) g²,  θ ← θ·decay - rate · m / (√v / correction + eps),
/// in one pass over memory.
struct Step<'a> {
    moments: &'a Mutex<CpuStorage>,
    rates: &'a Rates,
}

/// The numbers of a step that do not depend on the parameter.
struct Rates {
    rate: f64,
    correction: f64,
    decay: f64,
}

macro_rules! kernel {
    ($name:ident, $float:ty) => {
        fn $name(theta: &mut [$float], moments: &mut [$float], grad: &[$float], by: &Rates) {
            let (b1, b2, eps) = (BETA1 as $float, BETA2 as $float, EPS as $float);
            let (rate, decay) = (by.rate as $float, by.decay as $float);
            let correction = by.correction as $float;
            let (m, v) = moments.split_at_mut(theta.len());
            theta
                .par_chunks_mut(CHUNK)
                .zip(m.par_chunks_mut(CHUNK).zip(v.par_chunks_mut(CHUNK)))
                .zip(grad.par_chunks(CHUNK))
                .for_each(|((theta, (m, v)), g)| {
                    for ((theta, g), (m, v)) in theta.iter_mut().zip(g).zip(m.iter_mut().zip(v)) {
                        *m = b1 * *m + (1.0 - b1) * g;
                        *v = b2 * *v + (1.0 - b2) * g * g;
                        *theta = *theta * decay - rate * *m / (v.sqrt() / correction + eps);
                    }
                });
        }
    };
}

kernel!(step_f32, f32);
kernel!(step_f64, f64);

impl InplaceOp2 for Step<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(
        &self,
        theta: &mut CpuStorage,
        theta_layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
    ) -> Result<()> {
        let (to, from) = (span(theta_layout)?, span(grad_layout)?);
        match (theta, &mut *lock(self.moments), grad) {
            (CpuStorage::F32(theta), CpuStorage::F32(moments), CpuStorage::F32(grad)) => {
                step_f32(&mut theta[to], moments, &grad[from], self.rates);
            }
            (CpuStorage::F64(theta), CpuStorage::F64(moments), CpuStorage::F64(grad)) => {
                step_f64(&mut theta[to], moments, &grad[from], self.rates);
            }
            _ => bail!("adamw works on f32 or f64 parameters with gradients of the same type"),
        }
        Ok(())
    }
}

fn lock(moments: &Mutex<CpuStorage>) -> MutexGuard<'_, CpuStorage> {
    moments.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    /// The shape of the saved moments.
    pub fn moments_shape(&self) -> Shape {
        moments_shape(&self.var)
    }

    /// The moments as bytes of f32.
    pub fn moments_bytes(&self) -> Result<Vec<u8>> {
        match &self.moments {
            Moments::Gpu(moments) => Ok(bytes(moments)?.0),
            Moments::Cpu(moments) => match &*lock(moments) {
                CpuStorage::F32(values) => Ok(le_bytes(values)),
                _ => bail!("checkpoints hold f32"),
            },
        }
    }

    /// Takes up moments of [`Self::moments_shape`].
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

fn span(layout: &Layout) -> Result<std::ops::Range<usize>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => bail!("adamw works on contiguous tensors"),
    }
}

/// Bytes and shape of a tensor for a checkpoint.
pub(super) fn bytes(tensor: &Tensor) -> Result<(Vec<u8>, Shape)> {
    if tensor.dtype() != DType::F32 {
        bail!("checkpoints hold f32, not {:?}", tensor.dtype());
    }
    let values = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok((le_bytes(&values), tensor.shape().clone()))
}

fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests;
