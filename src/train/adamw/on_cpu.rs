//! AdamW step on a CPU.

use super::{Moments, Rates, Slot};
use crate::config::AdamConfig;
use crate::ops::{self, AdamWStep};
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor};

/// Makes one step on every slot that has a gradient.
pub(super) fn step(slots: &[Slot], grads: &GradStore, config: &AdamConfig, rates: &Rates) -> Result<()> {
    let grad = |slot: &Slot| grads.get(&slot.var).map(Tensor::contiguous).transpose();
    let grads = slots.iter().map(grad).collect::<Result<Vec<_>>>()?;
    let by = AdamWStep {
        beta1: config.beta1,
        beta2: config.beta2,
        eps: config.eps,
        rate: rates.rate,
        correction: rates.correction,
        decay: rates.decay,
        scale: match config.clip {
            Some(most) => scale(&grads, most)?,
            None => 1.0,
        },
    };
    for (slot, grad) in slots.iter().zip(&grads) {
        if let (Moments::Cpu(moments), Some(grad)) = (&slot.moments, grad) {
            let decay = if slot.decays { by.decay } else { 1.0 };
            AdamWStep { decay, ..by }.update(&slot.var, grad, moments)?;
        }
    }
    Ok(())
}

/// Factor by which all gradients are multiplied so that their global norm is at most `most`, including the term against
/// division by zero in PyTorch's `clip_grad_norm_`.
fn scale(grads: &[Option<Tensor>], most: f64) -> Result<f64> {
    let mut sum = 0.0;
    for grad in grads.iter().flatten() {
        sum += ops::sum_of_squares(grad)?;
    }
    // `f64::min` would ignore a NaN norm.
    let scale = most / (sum.sqrt() + 1e-6);
    Ok(if scale > 1.0 { 1.0 } else { scale })
}
