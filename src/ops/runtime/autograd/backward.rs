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
    let grads = by_fused_ops(loss);
    let single = Vec::<f32>::leaves(Leaves::end);
    let double = Vec::<f64>::leaves(Leaves::end);
    let on_gpu = Buffer::leaves(Leaves::end);
    let mut grads = grads?;
    insert(&mut grads, single)?;
    insert(&mut grads, double)?;
    insert(&mut grads, on_gpu)?;
    Ok(grads)
}

/// The gradients that candle's own ops find; none if `loss` follows from variables by fused ops alone.
fn by_fused_ops(loss: &Tensor) -> Result<GradStore> {
    let walked = passed::<Buffer>(loss)? || passed::<Vec<f32>>(loss)? || passed::<Vec<f64>>(loss)?;
    if walked {
        Ok(GradStore::default())
    } else {
        loss.backward()
    }
}

/// Passes gradients back from `loss` through fused ops, in candle's order but without candle, which would begin with a
/// tensor that holds the one gradient of the loss. Returns false, and does nothing, if `loss` is no output that can be
/// differentiated so, or if it depends on other ops.
fn passed<V: Values>(loss: &Tensor) -> Result<bool> {
    let registry = V::registry();
    let source = registry.of(loss).filter(|source| source.sink.saves_gradients_of(source.index));
    let Some(source) = source else { return Ok(false) };
    let nodes = source.token.sorted_nodes();
    let nodes = nodes.iter().filter(|node| !node.is_variable());
    let places: Option<Vec<_>> = nodes.map(|node| registry.node(node.id())).collect();
    let Some(places) = places else { return Ok(false) };
    source.sink.pass_saved_back()?;
    // The first node is the root of the loss.
    for (sink, place) in places.into_iter().skip(1) {
        sink.pass_back(place)?;
    }
    Ok(true)
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
