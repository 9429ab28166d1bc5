//! AdamW (Loshchilov & Hutter 2019): parameters and their moments are updated in place, in one pass over memory.

mod cpu;
mod cuda;
#[cfg(test)]
mod reference;

use crate::gpu;
use crate::runtime::parallel::lock;
use candle_core::backend::BackendDevice;
use candle_core::cpu_backend::CpuDevice;
use candle_core::{bail, CpuStorage, DType, Result, Shape, Tensor, Var};
pub use cuda::AdamWKernels;
use std::sync::Mutex;

/// Hyperparameters that are the same for all steps and parameters. On a CPU, [`Self::step`] makes a step; on a GPU,
/// [`AdamWKernels`] does.
#[derive(Clone, Copy, Debug)]
pub struct AdamWSettings {
    /// β₁.
    pub beta1: f64,
    /// β₂.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Largest global norm of the gradients; `None` for no limit.
    pub clip: Option<f64>,
}

/// Factors of one step that are the same for all parameters.
#[derive(Clone, Copy, Debug)]
pub struct AdamWRates {
    /// The learning rate divided by 1 - β₁^t.
    pub rate: f64,
    /// √(1 - β₂^t).
    pub correction: f64,
    /// Factor of a parameter to which weight decay applies, 1 - learning rate · weight decay.
    pub decay: f64,
}

impl AdamWRates {
    /// Bits of the f32 values, in the order in which the kernels read them.
    pub fn words(&self) -> [u32; 3] {
        [self.rate, self.correction, self.decay].map(|x| (x as f32).to_bits())
    }
}

/// A parameter and its moments.
pub struct AdamWSlot {
    /// Name of the parameter.
    pub name: String,
    /// The parameter, contiguous and of f32 or f64.
    pub var: Var,
    moments: Moments,
    /// Whether weight decay applies to it.
    decays: bool,
}

/// First moments, then second ones, `(2, elements)`, in the parameter's dtype.
enum Moments {
    /// Host memory. A lock is needed, since Candle passes only one mutable tensor to an in-place op.
    Cpu(Mutex<CpuStorage>),
    /// Memory of the parameter's GPU.
    Gpu(Var),
}

impl AdamWSlot {
    /// A parameter with moments of zero on its device; `decays` tells whether weight decay applies to it.
    pub fn new(name: String, var: Var, decays: bool) -> Result<Self> {
        let shape = moments_shape(&var);
        let moments = match gpu::of(&var) {
            Some(_) => Moments::Gpu(Var::zeros(shape, var.dtype(), var.device())?),
            None => Moments::Cpu(Mutex::new(CpuDevice.zeros_impl(&shape, var.dtype())?)),
        };
        Ok(Self { name, var, moments, decays })
    }

    /// Shape of the moments.
    pub fn moments_shape(&self) -> Shape {
        moments_shape(&self.var)
    }

    /// First moments, then second ones.
    ///
    /// # Errors
    ///
    /// Fails if they are not f32.
    pub fn moments(&self) -> Result<Vec<f32>> {
        match &self.moments {
            Moments::Gpu(moments) if moments.dtype() == DType::F32 => moments.flatten_all()?.to_vec1(),
            Moments::Gpu(moments) => bail!("adamw: moments of {:?}, but only f32 can be saved", moments.dtype()),
            Moments::Cpu(moments) => match &*lock(moments) {
                CpuStorage::F32(values) => Ok(values.clone()),
                _ => bail!("adamw: moments of another type, but only f32 can be saved"),
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

fn moments_shape(var: &Var) -> Shape {
    (2, var.elem_count()).into()
}

#[cfg(test)]
mod tests;
