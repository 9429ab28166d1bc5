//! The registry of fused ops' outputs, from a live tensor to the op that produced it, and of their nodes in candle's graph.

use super::lock;
use candle_core::{Result, Tensor, TensorId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// An application of a fused op, as the receiver of its outputs' gradients.
pub(super) trait Sink<V>: Send + Sync {
    /// Adds to the gradient of output `index`.
    fn receive(&self, index: usize, grad: V) -> Result<()>;

    /// Takes the gradient of output `index` so far.
    fn take_received(&self, index: usize) -> Result<Option<V>>;

    /// Ties a second tensor to output `index`, as long as that is alive.
    fn is_also(&self, index: usize, id: TensorId);

    /// Whether the gradients of output `index` with respect to the inputs are saved.
    fn saves_gradients_of(&self, index: usize) -> bool;

    /// Passes those gradients back through the root.
    fn pass_saved_back(&self) -> Result<()>;

    /// Passes gradients back through a node.
    fn pass_back(&self, node: NodePlace) -> Result<()>;
}

/// The producer of a tensor: the op, the index of the output, and the op's token.
#[derive(Clone)]
pub(super) struct Source<V> {
    pub(super) sink: Arc<dyn Sink<V>>,
    pub(super) index: usize,
    pub(super) token: Tensor,
}

/// A node of an application: the first input of a tap, or none for the root.
pub(super) type NodePlace = Option<usize>;

/// The taps and roots that are alive, by tensor id.
type Nodes<V> = HashMap<TensorId, (Weak<dyn Sink<V>>, NodePlace)>;

/// The outputs of fused ops that are alive, and the taps and roots, by tensor id.
pub(super) struct Registry<V> {
    outs: Mutex<HashMap<TensorId, Living<V>>>,
    nodes: Mutex<Nodes<V>>,
}

/// [`Source`] with a weak reference to the op: the output itself owns it.
struct Living<V> {
    sink: Weak<dyn Sink<V>>,
    index: usize,
    token: Tensor,
}

impl<V> Default for Registry<V> {
    fn default() -> Self {
        Self { outs: Mutex::default(), nodes: Mutex::default() }
    }
}

impl<V> Registry<V> {
    /// The producer of `x`; `None` for variables and for results of candle's own ops.
    pub(super) fn of(&self, x: &Tensor) -> Option<Source<V>> {
        let living = lock(&self.outs);
        let Living { sink, index, token } = living.get(&x.id())?;
        Some(Source { sink: sink.upgrade()?, index: *index, token: token.clone() })
    }

    pub(super) fn insert(&self, x: &Tensor, sink: Weak<dyn Sink<V>>, index: usize, token: Tensor) {
        lock(&self.outs).insert(x.id(), Living { sink, index, token });
    }

    /// Registers `y` as another name of `x`, if a fused op produced that.
    pub(super) fn alias(&self, y: &Tensor, x: &Tensor) {
        if let Some(Source { sink, index, token }) = self.of(x) {
            sink.is_also(index, y.id());
            self.insert(y, Arc::downgrade(&sink), index, token);
        }
    }

    /// The place of a tap or a root; `None` for other nodes.
    pub(super) fn node(&self, id: TensorId) -> Option<(Arc<dyn Sink<V>>, NodePlace)> {
        let nodes = lock(&self.nodes);
        let (sink, place) = nodes.get(&id)?;
        Some((sink.upgrade()?, *place))
    }

    pub(super) fn insert_node(&self, id: TensorId, sink: Weak<dyn Sink<V>>, place: NodePlace) {
        lock(&self.nodes).insert(id, (sink, place));
    }

    /// Removes the nodes of an application that is gone.
    pub(super) fn remove_nodes(&self, ids: &[TensorId]) {
        let mut nodes = lock(&self.nodes);
        ids.iter().for_each(|id| drop(nodes.remove(id)));
    }

    /// Whether a tensor is registered.
    #[cfg(test)]
    pub(super) fn knows(&self, id: TensorId) -> bool {
        lock(&self.outs).contains_key(&id)
    }

    /// Removes an output that is no longer alive.
    pub(super) fn remove(&self, id: TensorId) {
        let gone = lock(&self.outs).remove(&id);
        drop(gone); // after the lock: the token may be the last hold on other outputs
    }
}
