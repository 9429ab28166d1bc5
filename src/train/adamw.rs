//! AdamW (Loshchilov & Hutter 2019) with moments that can be saved. Decay falls on every parameter
//! that has a gradient, as in the released trainer, and on no other.

use candle_core::backend::BackendDevice;
use candle_core::backprop::GradStore;
use candle_core::cpu_backend::CpuDevice;
use candle_core::{bail, CpuStorage, DType, InplaceOp2, Layout, Result, Shape, Tensor, Var};
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
}

/// A parameter and its moments.
pub(super) struct Slot {
    pub name: String,
    pub var: Var,
    /// First moments, then second, of the parameter's number type. Behind a lock because candle
    /// hands an op that changes a tensor no other mutable thing.
    moments: Mutex<CpuStorage>,
}

impl AdamW {
    /// Moments at zero for `vars`.
    pub fn new(vars: Vec<(String, Var)>, weight_decay: f64) -> Result<Self> {
        let slot = |(name, var): (String, Var)| {
            let zeros = Shape::from((2, var.elem_count()));
            let moments = CpuDevice.zeros_impl(&zeros, var.dtype())?;
            let moments = Mutex::new(moments);
            Ok(Slot { name, var, moments })
        };
        Ok(Self {
            slots: vars.into_iter().map(slot).collect::<Result<_>>()?,
            weight_decay,
            steps: 0,
        })
    }

    /// One step at rate `lr`. Call it after `backward`, never between forward and backward.
    pub fn step(&mut self, grads: &GradStore, lr: f64) -> Result<()> {
        self.steps += 1;
        for slot in &self.slots {
            if let Some(grad) = grads.get(&slot.var) {
                let step = Step {
                    moments: &slot.moments,
                    rate: lr / (1.0 - BETA1.powi(self.steps)),
                    correction: (1.0 - BETA2.powi(self.steps)).sqrt(),
                    decay: 1.0 - lr * self.weight_decay,
                };
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
    rate: f64,
    correction: f64,
    decay: f64,
}

macro_rules! kernel {
    ($name:ident, $float:ty) => {
        fn $name(theta: &mut [$float], moments: &mut [$float], grad: &[$float], by: &Step) {
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
                step_f32(&mut theta[to], moments, &grad[from], self);
            }
            (CpuStorage::F64(theta), CpuStorage::F64(moments), CpuStorage::F64(grad)) => {
                step_f64(&mut theta[to], moments, &grad[from], self);
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
        (2, self.var.elem_count()).into()
    }

    /// The moments as bytes of f32.
    pub fn moments_bytes(&self) -> Result<Vec<u8>> {
        match &*lock(&self.moments) {
            CpuStorage::F32(values) => Ok(le_bytes(values)),
            _ => bail!("checkpoints hold f32"),
        }
    }

    /// Takes up moments of [`Self::moments_shape`].
    pub fn set_moments(&self, saved: &Tensor) -> Result<()> {
        *lock(&self.moments) = CpuStorage::F32(saved.flatten_all()?.to_vec1()?);
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
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn the_first_step_moves_by_the_rate_against_the_sign_and_decays() {
        let var = Var::new(&[1.0f64, -2.0, 3.0], &Device::Cpu).unwrap();
        let idle = Var::new(&[5.0f64], &Device::Cpu).unwrap();
        let vars = vec![("a".into(), var.clone()), ("idle".into(), idle.clone())];
        let mut adamw = AdamW::new(vars, 0.1).unwrap();
        let weights = Tensor::new(&[2.0f64, 4.0, -1.0], &Device::Cpu).unwrap();
        let loss = (var.as_tensor() * weights).unwrap().sum_all().unwrap();
        adamw.step(&loss.backward().unwrap(), 0.01).unwrap();
        let expected = [1.0f64, -2.0, 3.0]
            .iter()
            .zip([1.0, 1.0, -1.0])
            .map(|(x, sign)| x * (1.0 - 0.001) - 0.01 * sign);
        for (got, want) in var.to_vec1::<f64>().unwrap().iter().zip(expected) {
            assert!((got - want).abs() < 1e-9, "{got} {want}");
        }
        assert_eq!(
            idle.to_vec1::<f64>().unwrap(),
            [5.0],
            "no gradient, no decay"
        );
    }
}
