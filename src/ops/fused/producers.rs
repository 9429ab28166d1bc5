//! Which fused op made which tensor, as long as the tensor lives.

use super::lock;
use candle_core::{Tensor, TensorId};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// The receiving end of a gradient: an application of a fused op.
pub(crate) trait Sink<F>: Send + Sync {
    /// Adds to the gradient of output `index`.
    fn receive(&self, index: usize, grad: Vec<F>);
}

/// Where a tensor came from: its op, which of its outputs, and the token that stands for it.
#[derive(Clone)]
pub(super) struct Source<F> {
    pub(super) sink: Arc<dyn Sink<F>>,
    pub(super) index: usize,
    pub(super) token: Tensor,
}

/// The living outputs of fused ops.
pub(crate) struct Registry<F>(Mutex<HashMap<TensorId, Living<F>>>);

/// [`Source`] without a hold on the op: the output itself has one.
struct Living<F> {
    sink: Weak<dyn Sink<F>>,
    index: usize,
    token: Tensor,
}

impl<F> Registry<F> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Where `x` came from; `None` for variables and results of candle's own ops.
    pub(super) fn of(&self, x: &Tensor) -> Option<Source<F>> {
        let living = lock(&self.0);
        let Living { sink, index, token } = living.get(&x.id())?;
        Some(Source {
            sink: sink.upgrade()?,
            index: *index,
            token: token.clone(),
        })
    }

    pub(super) fn insert(&self, x: &Tensor, sink: Weak<dyn Sink<F>>, index: usize, token: Tensor) {
        lock(&self.0).insert(x.id(), Living { sink, index, token });
    }

    /// Called when the output called `id` is gone.
    pub(super) fn remove(&self, id: TensorId) {
        let gone = lock(&self.0).remove(&id);
        drop(gone); // after the lock: the token may be the last hold on other outputs
    }
}

/// The registry of a number type.
pub(crate) trait Producers: Sized + 'static {
    fn all() -> &'static Registry<Self>;
}

macro_rules! producers {
    ($float:ty) => {
        impl Producers for $float {
            fn all() -> &'static Registry<Self> {
                static ALL: LazyLock<Registry<$float>> = LazyLock::new(Registry::new);
                &ALL
            }
        }
    };
}

producers!(f32);
producers!(f64);
