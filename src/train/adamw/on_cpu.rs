//! The optimiser's step on a CPU.

use super::{lock, Moments, Rates, Slot};
use crate::config::AdamConfig;
use candle_core::backprop::GradStore;
use candle_core::{bail, CpuStorage, InplaceOp2, Layout, Result, Storage, Tensor};
use multiversion::multiversion;
use rayon::prelude::*;
use std::sync::Mutex;

/// Elements a task. A step is elementwise, and the sums of tasks are added in their order, so the number
/// of threads cannot change a bit.
const CHUNK: usize = 1 << 14;

/// One step on every slot that has a gradient.
pub(super) fn step(
    slots: &[Slot],
    grads: &GradStore,
    config: &AdamConfig,
    rates: &Rates,
) -> Result<()> {
    let grad = |slot: &Slot| grads.get(&slot.var).map(Tensor::contiguous).transpose();
    let grads = slots.iter().map(grad).collect::<Result<Vec<_>>>()?;
    let scale = match config.clip {
        Some(most) => scale(&grads, most)?,
        None => 1.0,
    };
    for (slot, grad) in slots.iter().zip(&grads) {
        if let (Moments::Cpu(moments), Some(grad)) = (&slot.moments, grad) {
            let decay = if slot.decays { rates.decay } else { 1.0 };
            let by = By {
                config,
                rates: &Rates { decay, ..*rates },
                scale,
            };
            slot.var.inplace_op2(grad, &Step { moments, by })?;
        }
    }
    Ok(())
}

/// What gradients are multiplied by so that their norm, over all of them, is at most `most`; to the term
/// that keeps it a number, PyTorch's `clip_grad_norm_`.
fn scale(grads: &[Option<Tensor>], most: f64) -> Result<f64> {
    let mut sum = 0.0;
    for grad in grads.iter().flatten() {
        let (storage, layout) = grad.storage_and_layout();
        let span = span(layout)?;
        sum += match &*storage {
            Storage::Cpu(CpuStorage::F32(values)) => sum_of_squares(&values[span]),
            Storage::Cpu(CpuStorage::F64(values)) => sum_of_squares(&values[span]),
            _ => bail!("adamw on a CPU works on gradients of f32 or f64 there"),
        };
    }
    // Not `min`, which would pass over a norm that is no number.
    let scale = most / (sum.sqrt() + 1e-6);
    Ok(if scale > 1.0 { 1.0 } else { scale })
}

fn sum_of_squares<F: Copy + Into<f64> + Sync>(values: &[F]) -> f64 {
    let parts: Vec<f64> = values.par_chunks(CHUNK).map(squares).collect();
    parts.iter().sum()
}

/// The sum of a task, in eight running ones.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn squares<F: Copy + Into<f64>>(values: &[F]) -> f64 {
    let (whole, rest) = values.as_chunks::<8>();
    let mut sums = [0.0f64; 8];
    for values in whole {
        for (sum, &value) in sums.iter_mut().zip(values) {
            let value: f64 = value.into();
            *sum += value * value;
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        let value: f64 = value.into();
        *sum += value * value;
    }
    sums.iter().sum()
}

/// What a step does to a parameter.
struct By<'a> {
    config: &'a AdamConfig,
    rates: &'a Rates,
    /// Of its gradient.
    scale: f64,
}

/// g ← scale g,  m ← β₁ m + (1-β₁) g,  v ← β₂ v + (1-β₂) g²,
/// θ ← θ·decay - rate · m / (√v / correction + eps), in one pass over memory.
struct Step<'a> {
    moments: &'a Mutex<CpuStorage>,
    by: By<'a>,
}

macro_rules! kernel {
    ($name:ident, $float:ty) => {
        fn $name(theta: &mut [$float], moments: &mut [$float], grad: &[$float], by: &By) {
            let (config, rates, scale) = (by.config, by.rates, by.scale as $float);
            let (b1, b2) = (config.beta1 as $float, config.beta2 as $float);
            let (eps, correction) = (config.eps as $float, rates.correction as $float);
            let (rate, decay) = (rates.rate as $float, rates.decay as $float);
            let (m, v) = moments.split_at_mut(theta.len());
            theta
                .par_chunks_mut(CHUNK)
                .zip(m.par_chunks_mut(CHUNK).zip(v.par_chunks_mut(CHUNK)))
                .zip(grad.par_chunks(CHUNK))
                .for_each(|((theta, (m, v)), g)| {
                    for ((theta, g), (m, v)) in theta.iter_mut().zip(g).zip(m.iter_mut().zip(v)) {
                        let g = scale * g;
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
                step_f32(&mut theta[to], moments, &grad[from], &self.by);
            }
            (CpuStorage::F64(theta), CpuStorage::F64(moments), CpuStorage::F64(grad)) => {
                step_f64(&mut theta[to], moments, &grad[from], &self.by);
            }
            _ => bail!("adamw works on f32 or f64 parameters with gradients of the same type"),
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
