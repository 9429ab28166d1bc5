//! Gradients of variables, added up in place: candle would add each to a fresh tensor of zeros.

use candle_core::{Result, Tensor, TensorId};
use std::cell::RefCell;
use std::collections::HashMap;

/// A gradient that others of the same tensor can be added to.
pub(super) trait Accumulate: Sized {
    /// Number of gradients of one tensor that wait to be added together.
    const HELD: usize;

    /// Adds others, one after another.
    fn add(&mut self, more: &[Self]) -> Result<()>;

    /// Adds `grad` to those that `held` has, as soon as there are too many.
    fn hold(held: &mut Vec<Self>, grad: Self) -> Result<()> {
        held.push(grad);
        if held.len() > Self::HELD {
            let whole = Self::total(std::mem::take(held))?;
            held.extend(whole);
        }
        Ok(())
    }

    /// The sum of gradients in their order; `None` without any.
    fn total(held: Vec<Self>) -> Result<Option<Self>> {
        let mut held = held.into_iter();
        let Some(mut sum) = held.next() else { return Ok(None) };
        let more: Vec<Self> = held.collect();
        if !more.is_empty() {
            sum.add(&more)?;
        }
        Ok(Some(sum))
    }
}

/// Each variable with the sum of its gradients.
pub(super) type LeafGradients<V> = HashMap<TensorId, (Tensor, V)>;

/// The gradients of variables that a backward pass has found so far; none between backward passes.
pub(super) struct Leaves<V>(RefCell<Option<LeafGradients<V>>>);

impl<V: Accumulate> Leaves<V> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Starts a backward pass.
    pub(super) fn begin(&self) {
        *self.0.borrow_mut() = Some(HashMap::new());
    }

    /// Ends a backward pass and hands out its sums.
    pub(super) fn end(&self) -> LeafGradients<V> {
        self.0.borrow_mut().take().unwrap_or_default()
    }

    /// Takes the sum of a variable's gradients so far.
    pub(super) fn take_sum(&self, x: &Tensor) -> Option<V> {
        Some(self.0.borrow_mut().as_mut()?.remove(&x.id())?.1)
    }

    /// Adds the gradient of a variable. Outside a backward pass, and for a tensor that is no variable,
    /// returns the gradient, for candle to accumulate.
    pub(super) fn take(&self, x: &Tensor, grad: V) -> Result<Option<V>> {
        let mut leaves = self.0.borrow_mut();
        let Some(leaves) = leaves.as_mut().filter(|_| x.is_variable()) else {
            return Ok(Some(grad));
        };
        match leaves.get_mut(&x.id()) {
            Some((_, sum)) => sum.add(&[grad])?,
            None => {
                leaves.insert(x.id(), (x.clone(), grad));
            }
        }
        Ok(None)
    }
}
