//! Owned memory of a GPU.

use super::sizes::maps::TENSORS;
use super::{Arg, Gpu, Grid, Kernel, View};
use candle_core::op::BackpropOp;
use candle_core::{bail, DType, Result, Shape, Storage, Tensor};

/// Exclusively owned memory of a GPU: an allocation, or a part of one.
pub struct Buffer {
    gpu: Gpu,
    memory: Memory,
    all: View<'static>,
}

enum Memory {
    Whole(Storage),
    /// A tensor with the elements of this part of its allocation.
    Part(Tensor),
}

#[allow(clippy::len_without_is_empty)] // no buffer is empty
impl Buffer {
    pub(super) fn new(gpu: &Gpu, storage: Storage, dtype: DType, count: usize) -> Result<Self> {
        let all = View::new(gpu.0.machine.address(&storage)?, dtype, 0, count)?;
        let gpu = gpu.clone();
        let memory = Memory::Whole(storage);
        Ok(Self { gpu, memory, all })
    }

    /// Returns the elements of a contiguous tensor, without a copy. Nothing else may hold its memory.
    pub fn of(gpu: &Gpu, x: Tensor) -> Result<Self> {
        let all = {
            let (storage, layout) = x.storage_and_layout();
            let view = gpu.view(&storage, layout)?;
            View::new(view.address(), view.dtype(), 0, view.len())?
        };
        Ok(Self { gpu: gpu.clone(), memory: Memory::Part(x), all })
    }

    /// Returns all elements.
    pub fn view(&self) -> View<'_> {
        self.all
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.all.dtype()
    }

    /// Adds the elements of other buffers of the same length and type, one after another.
    pub fn add(&mut self, more: &[Buffer]) -> Result<()> {
        let (count, dtype, gpu) = (self.len(), self.dtype(), self.gpu.clone());
        if more.iter().any(|x| (x.dtype(), x.len()) != (dtype, count)) {
            bail!("two gradients of one tensor differ in size or type");
        }
        for some in more.chunks(TENSORS) {
            let mut parts: Vec<Arg> = some.iter().map(Arg::from).collect();
            parts.resize(TENSORS, Arg::Null);
            let args = [Arg::Table(parts), (&mut *self).into(), some.len().into(), count.into()];
            gpu.launch(Kernel::of("pointwise", "add_to", dtype), Grid::for_each(count), &args)?;
        }
        Ok(())
    }

    /// Splits the buffer into consecutive parts with the given numbers of elements. The memory is freed with the last
    /// part.
    pub fn cut(self, counts: &[usize]) -> Result<Vec<Self>> {
        if counts == [self.len()] {
            return Ok(vec![self]);
        }
        let (gpu, all) = (self.gpu.clone(), self.all);
        let whole = self.into_tensor(all.len())?;
        let mut start = 0;
        let part = |&count: &usize| {
            let part = Self {
                gpu: gpu.clone(),
                memory: Memory::Part(whole.narrow(0, start, count)?),
                all: all.part(start, count),
            };
            start += count;
            Ok(part)
        };
        counts.iter().map(part).collect()
    }

    /// Converts to the storage of a Candle tensor; a part is copied.
    pub fn into_storage(self) -> Result<Storage> {
        match self.memory {
            Memory::Whole(storage) => Ok(storage),
            Memory::Part(_) => self.gpu.copy(self.all)?.into_storage(),
        }
    }

    /// Converts to a tensor without history in the autograd graph.
    pub fn into_tensor(self, shape: impl Into<Shape>) -> Result<Tensor> {
        match self.memory {
            Memory::Whole(storage) => {
                let bare = BackpropOp::none();
                Ok(Tensor::from_storage(storage, shape, bare, false))
            }
            Memory::Part(part) => part.reshape(shape.into()),
        }
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
