//! Owned memory of a GPU.

use super::{Arg, Gpu, Grid, Kernel, View};
use candle_core::op::BackpropOp;
use candle_core::{bail, DType, Result, Shape, Storage, Tensor};

/// An allocation in memory of a GPU, which nothing else refers to.
pub struct Buffer {
    gpu: Gpu,
    storage: Storage,
    all: View<'static>,
}

#[allow(clippy::len_without_is_empty)] // a buffer of nothing is never asked for
impl Buffer {
    pub(super) fn new(gpu: &Gpu, storage: Storage, dtype: DType, count: usize) -> Result<Self> {
        let all = View::new(gpu.0.machine.address(&storage)?, dtype, 0, count)?;
        let gpu = gpu.clone();
        Ok(Self { gpu, storage, all })
    }

    /// All elements.
    pub fn view(&self) -> View<'_> {
        self.all
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The type of an element.
    pub fn dtype(&self) -> DType {
        self.all.dtype()
    }

    /// Adds the elements of another buffer of the same length and type.
    pub fn add(&mut self, more: &Buffer) -> Result<()> {
        let count = self.len();
        if (more.dtype(), more.len()) != (self.dtype(), count) {
            bail!("two gradients of one tensor differ in size or type");
        }
        let gpu = self.gpu.clone();
        let kernel = Kernel::of("pointwise", "add_to", self.dtype());
        gpu.launch(
            kernel,
            Grid::for_each(count),
            &[more.into(), self.into(), count.into()],
        )
    }

    /// The storage of a candle tensor with these elements.
    pub fn into_storage(self) -> Storage {
        self.storage
    }

    /// A tensor with these elements, without a place in any graph.
    pub fn into_tensor(self, shape: impl Into<Shape>) -> Tensor {
        Tensor::from_storage(self.storage, shape, BackpropOp::none(), false)
    }
}

impl<'a> From<&'a Buffer> for Arg<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        buffer.view().into()
    }
}

impl<'a> From<Option<&'a Buffer>> for Arg<'a> {
    fn from(buffer: Option<&'a Buffer>) -> Self {
        buffer.map_or(Self::Null, Self::from)
    }
}

/// Memory that a kernel writes.
impl<'a> From<&'a mut Buffer> for Arg<'a> {
    fn from(buffer: &'a mut Buffer) -> Self {
        buffer.view().into()
    }
}

impl<'a> From<Option<&'a mut Buffer>> for Arg<'a> {
    fn from(buffer: Option<&'a mut Buffer>) -> Self {
        buffer.map_or(Self::Null, Self::from)
    }
}
