//! Passes on the CPU: the update of a parameter, and the sum of squares that gradient clipping needs.

use super::{AdamWRates, AdamWSettings, AdamWSlot, Moments};
use crate::runtime::float::{in_single, Float};
use crate::runtime::parallel::{lock, InParallel};
use candle_core::backprop::GradStore;
use candle_core::{bail, CpuStorage, InplaceOp2, Layout, Result, Storage, Tensor};
use dsf_simd::simd;
use std::ops::Range;
use std::sync::Mutex;

/// Elements per task. An update is elementwise, and the sums of tasks are added in order, so the number of threads
/// changes no bit.
const CHUNK: usize = 1 << 14;

/// Numbers of the update of one parameter.
#[derive(Clone, Copy)]
struct Factors {
    settings: AdamWSettings,
    rates: AdamWRates,
    /// Factor of the gradient; 1 without clipping.
    scale: f64,
}

impl AdamWSettings {
    /// Makes one step on every parameter that has a gradient. All lie on a CPU. A parameter without a gradient is left
    /// unchanged: it neither moves nor decays.
    pub fn step(&self, slots: &[AdamWSlot], grads: &GradStore, rates: &AdamWRates) -> Result<()> {
        let grad = |slot: &AdamWSlot| grads.get(&slot.var).map(Tensor::contiguous).transpose();
        let grads = slots.iter().map(grad).collect::<Result<Vec<_>>>()?;
        let scale = match self.clip {
            Some(most) => scale(&grads, most)?,
            None => 1.0,
        };
        for (slot, grad) in slots.iter().zip(&grads) {
            if let (Moments::Cpu(moments), Some(grad)) = (&slot.moments, grad) {
                let decay = if slot.decays { rates.decay } else { 1.0 };
                let by = Factors { settings: *self, rates: AdamWRates { decay, ..*rates }, scale };
                slot.var.inplace_op2(grad, &Update { by, moments })?;
            }
        }
        Ok(())
    }
}

/// Factor by which all gradients are multiplied so that their global norm is at most `most`, including the term against
/// division by zero in PyTorch's `clip_grad_norm_`.
fn scale(grads: &[Option<Tensor>], most: f64) -> Result<f64> {
    let mut sum = 0.0;
    for grad in grads.iter().flatten() {
        sum += sum_of_squares(grad)?;
    }
    // `f64::min` would ignore a NaN norm.
    let scale = most / (sum.sqrt() + 1e-6);
    Ok(if scale > 1.0 { 1.0 } else { scale })
}

/// Σ x² over a contiguous tensor of f32 or f64 on a CPU, in f64.
fn sum_of_squares(x: &Tensor) -> Result<f64> {
    let (storage, layout) = x.storage_and_layout();
    let span = span(layout)?;
    match &*storage {
        Storage::Cpu(CpuStorage::F32(values)) => Ok(squares(&values[span])),
        Storage::Cpu(CpuStorage::F64(values)) => Ok(squares(&values[span])),
        _ => bail!("adamw on a CPU works on gradients of f32 or f64 there"),
    }
}

fn squares<F: Copy + Into<f64> + Sync>(values: &[F]) -> f64 {
    let parts: Vec<f64> = values.chunks(CHUNK).map_in_parallel(squares_of_chunk);
    parts.iter().sum()
}

/// Sum of a task, in eight running sums.
#[simd]
fn squares_of_chunk<F: Copy + Into<f64>>(values: &[F]) -> f64 {
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

fn update<F: Float>(theta: &mut [F], moments: &mut [F], grad: &[F], by: &Factors) {
    let (m, v) = moments.split_at_mut(theta.len());
    theta
        .chunks_mut(CHUNK)
        .zip(m.chunks_mut(CHUNK).zip(v.chunks_mut(CHUNK)))
        .zip(grad.chunks(CHUNK))
        .in_parallel(|((theta, (m, v)), g)| update_chunk(theta, [m, v], g, by));
}

#[simd]
fn update_chunk<F: Float>(theta: &mut [F], [m, v]: [&mut [F]; 2], grad: &[F], by: &Factors) {
    let Factors { settings, rates, scale } = *by;
    let [b1, b2, eps] = [settings.beta1, settings.beta2, settings.eps].map(F::of);
    let [rate, correction, decay, scale] = [rates.rate, rates.correction, rates.decay, scale].map(F::of);
    let one = F::of(1.0);
    for ((theta, &g), (m, v)) in theta.iter_mut().zip(grad).zip(m.iter_mut().zip(v)) {
        let g = scale * g;
        *m = b1.fma(*m, (one - b1) * g);
        *v = b2.fma(*v, (one - b2) * g * g);
        *theta = theta.fma(decay, -rate * *m / (v.sqrt() / correction + eps));
    }
}

struct Update<'a> {
    by: Factors,
    moments: &'a Mutex<CpuStorage>,
}

impl InplaceOp2 for Update<'_> {
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
                in_single!(F => update(
                    F::wrap_mut(&mut theta[to]),
                    F::wrap_mut(moments),
                    F::wrap_slice(&grad[from]),
                    &self.by,
                ));
            }
            (CpuStorage::F64(theta), CpuStorage::F64(moments), CpuStorage::F64(grad)) => {
                update(&mut theta[to], moments, &grad[from], &self.by);
            }
            _ => bail!("adamw works on f32 or f64 parameters with gradients of the same type"),
        }
        Ok(())
    }
}

fn span(layout: &Layout) -> Result<Range<usize>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => bail!("adamw works on contiguous tensors"),
    }
}
