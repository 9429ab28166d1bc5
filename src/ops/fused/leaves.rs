//! Gradients of variables, added up beside candle, which adds each to a fresh tensor of zeros.

use super::values::Values;
use crate::gpu::Buffer;
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, TensorId};
use std::cell::RefCell;
use std::collections::HashMap;

/// The variables that gradients of type `V` have reached, while [`backward`] runs.
pub(super) struct Leaves<V>(RefCell<Option<HashMap<TensorId, (Tensor, V)>>>);

impl<V: Values> Leaves<V> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Takes the gradient of a variable, or gives it back if that is candle's business.
    pub(super) fn take(&self, x: &Tensor, grad: V) -> Result<Option<V>> {
        let mut leaves = self.0.borrow_mut();
        let Some(leaves) = leaves.as_mut().filter(|_| x.is_variable()) else {
            return Ok(Some(grad));
        };
        match leaves.get_mut(&x.id()) {
            Some((_, sum)) => V::add(sum, grad)?,
            None => {
                leaves.insert(x.id(), (x.clone(), grad));
            }
        }
        Ok(None)
    }

    fn begin() {
        V::leaves(|leaves| *leaves.0.borrow_mut() = Some(HashMap::new()));
    }

    fn end() -> HashMap<TensorId, (Tensor, V)> {
        V::leaves(|leaves| leaves.0.borrow_mut().take()).unwrap_or_default()
    }
}

/// The gradients of `loss`, as its own `backward` gives them. Runs once for a graph.
pub fn backward(loss: &Tensor) -> Result<GradStore> {
    Leaves::<Vec<f32>>::begin();
    Leaves::<Vec<f64>>::begin();
    Leaves::<Buffer>::begin();
    let grads = loss.backward();
    let single = Leaves::<Vec<f32>>::end();
    let double = Leaves::<Vec<f64>>::end();
    let on_gpu = Leaves::<Buffer>::end();
    let mut grads = grads?;
    insert(&mut grads, single)?;
    insert(&mut grads, double)?;
    insert(&mut grads, on_gpu)?;
    Ok(grads)
}

/// Adds what fused ops found to what ops of candle found.
fn insert<V: Values>(grads: &mut GradStore, found: HashMap<TensorId, (Tensor, V)>) -> Result<()> {
    for (x, grad) in found.into_values() {
        let grad = grad.into_tensor(x.shape());
        let sum = match grads.remove(&x) {
            Some(other) => (other + grad)?,
            None => grad,
        };
        grads.insert(&x, sum);
    }
    Ok(())
}
