//! AdamW's update of one parameter on a CPU (Loshchilov & Hutter 2019), and the sum of squares that gradient clipping
//! needs. Both are one pass over memory.

use crate::runtime::float::{in_single, Float};
use crate::runtime::parallel::{lock, InParallel};
use candle_core::{bail, CpuStorage, InplaceOp2, Layout, Result, Storage, Tensor};
use dsf_simd::simd;
use std::ops::Range;
use std::sync::Mutex;

/// Elements per task. An update is elementwise, and the sums of tasks are added in order, so the number of threads
/// changes no bit.
const CHUNK: usize = 1 << 14;

/// The numbers of an update: g ← scale g,  m ← β₁ m + (1-β₁) g,  v ← β₂ v + (1-β₂) g²,
/// θ ← θ·decay - rate · m / (√v / correction + eps).
#[derive(Clone, Copy, Debug)]
pub struct AdamWStep {
    /// β₁.
    pub beta1: f64,
    /// β₂.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// The learning rate divided by 1 - β₁^t.
    pub rate: f64,
    /// √(1 - β₂^t).
    pub correction: f64,
    /// Factor of the parameter; 1 without weight decay.
    pub decay: f64,
    /// Factor of the gradient; 1 without clipping.
    pub scale: f64,
}

impl AdamWStep {
    /// Updates `parameter`, contiguous and of f32 or f64, by its gradient. `moments` holds the first moments, then the
    /// second, of the same type.
    pub fn update(&self, parameter: &Tensor, grad: &Tensor, moments: &Mutex<CpuStorage>) -> Result<()> {
        parameter.inplace_op2(grad, &Update { by: self, moments })
    }
}

/// Σ x² over a contiguous tensor of f32 or f64 on a CPU, in f64.
pub fn sum_of_squares(x: &Tensor) -> Result<f64> {
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

fn update<F: Float>(theta: &mut [F], moments: &mut [F], grad: &[F], by: &AdamWStep) {
    let (m, v) = moments.split_at_mut(theta.len());
    theta
        .chunks_mut(CHUNK)
        .zip(m.chunks_mut(CHUNK).zip(v.chunks_mut(CHUNK)))
        .zip(grad.chunks(CHUNK))
        .in_parallel(|((theta, (m, v)), g)| update_chunk(theta, [m, v], g, by));
}

#[simd]
fn update_chunk<F: Float>(theta: &mut [F], [m, v]: [&mut [F]; 2], grad: &[F], by: &AdamWStep) {
    let [b1, b2] = [by.beta1, by.beta2].map(F::of);
    let [eps, rate] = [by.eps, by.rate].map(F::of);
    let [correction, decay, scale] = [by.correction, by.decay, by.scale].map(F::of);
    let one = F::of(1.0);
    for ((theta, &g), (m, v)) in theta.iter_mut().zip(grad).zip(m.iter_mut().zip(v)) {
        let g = scale * g;
        *m = b1.fma(*m, (one - b1) * g);
        *v = b2.fma(*v, (one - b2) * g * g);
        *theta = theta.fma(decay, -rate * *m / (v.sqrt() / correction + eps));
    }
}

struct Update<'a> {
    by: &'a AdamWStep,
    /// A lock is needed, since Candle passes only one mutable tensor to an in-place op.
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
                    self.by,
                ));
            }
            (CpuStorage::F64(theta), CpuStorage::F64(moments), CpuStorage::F64(grad)) => {
                update(&mut theta[to], moments, &grad[from], self.by);
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
