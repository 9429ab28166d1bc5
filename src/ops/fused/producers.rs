//! Which fused op made which tensor, as long as the tensor lives.

use super::lock;
use candle_core::{Result, Tensor, TensorId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// The receiving end of a gradient: an application of a fused op.
pub(super) trait Sink<V>: Send + Sync {
    /// Adds to the gradient of output `index`.
    fn receive(&self, index: usize, grad: V) -> Result<()>;
}

/// Where a tensor came from: its op, which of its outputs, and the token that stands for it.
#[derive(Clone)]
pub(super) struct Source<V> {
    pub(super) sink: Arc<dyn Sink<V>>,
    pub(super) index: usize,
    pub(super) token: Tensor,
}

/// The living outputs of fused ops.
pub(super) struct Registry<V>(Mutex<HashMap<TensorId, Living<V>>>);

/// [`Source`] without a hold on the op: the output itself has one.
struct Living<V> {
    sink: Weak<dyn Sink<V>>,
    index: usize,
    token: Tensor,
}

impl<V> Default for Registry<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V> Registry<V> {
    /// Where `x` came from; `None` for variables and results of candle's own ops.
    pub(super) fn of(&self, x: &Tensor) -> Option<Source<V>> {
        let living = lock(&self.0);
        let Living { sink, index, token } = living.get(&x.id())?;
        Some(Source {
            sink: sink.upgrade()?,
            index: *index,
            token: token.clone(),
        })
    }

    pub(super) fn insert(&self, x: &Tensor, sink: Weak<dyn Sink<V>>, index: usize, token: Tensor) {
        lock(&self.0).insert(x.id(), Living { sink, index, token });
    }

    /// Called when the output called `id` is gone.
    pub(super) fn remove(&self, id: TensorId) {
        let gone = lock(&self.0).remove(&id);
        drop(gone); // after the lock: the token may be the last hold on other outputs
    }
}
