//! The backward pass of a whole graph.

use super::leaves::{LeafGradients, Leaves};
use super::values::Values;
use crate::gpu::Buffer;
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor};

/// The gradients of `loss` with respect to all variables, equal to those of candle's own
/// `loss.backward()`. A graph with fused ops can be differentiated only once.
pub fn backward(loss: &Tensor) -> Result<GradStore> {
    Vec::<f32>::leaves(Leaves::begin);
    Vec::<f64>::leaves(Leaves::begin);
    Buffer::leaves(Leaves::begin);
    let grads = loss.backward();
    let single = Vec::<f32>::leaves(Leaves::end);
    let double = Vec::<f64>::leaves(Leaves::end);
    let on_gpu = Buffer::leaves(Leaves::end);
    let mut grads = grads?;
    insert(&mut grads, single)?;
    insert(&mut grads, double)?;
    insert(&mut grads, on_gpu)?;
    Ok(grads)
}

/// Adds the gradients found by fused ops to those found by candle's own ops.
fn insert<V: Values>(grads: &mut GradStore, found: LeafGradients<V>) -> Result<()> {
    for (x, grad) in found.into_values() {
        let grad = grad.into_tensor(x.shape())?;
        let sum = match grads.remove(&x) {
            Some(other) => (other + grad)?,
            None => grad,
        };
        grads.insert(&x, sum);
    }
    Ok(())
}
