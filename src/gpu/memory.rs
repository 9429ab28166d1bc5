//! Memory of a GPU.

use super::{Gpu, Grid, Kernel, Pointer};
use candle_core::op::BackpropOp;
use candle_core::{bail, DType, Result, Shape, Storage, Tensor};
use std::marker::PhantomData;

/// Memory that is ours alone.
pub(crate) struct Buffer {
    gpu: Gpu,
    storage: Storage,
    address: u64,
    dtype: DType,
    count: usize,
}

/// Elements of a buffer or a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    address: u64,
    dtype: DType,
    count: usize,
    held: PhantomData<&'a ()>,
}

impl Buffer {
    pub(super) fn new(gpu: &Gpu, storage: Storage, dtype: DType, count: usize) -> Result<Self> {
        let address = gpu.0.machine.address(&storage)?;
        Ok(Self {
            gpu: gpu.clone(),
            storage,
            address,
            dtype,
            count,
        })
    }

    /// All of it.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            address: self.address,
            dtype: self.dtype,
            count: self.count,
            held: PhantomData,
        }
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The type of its elements.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Adds another buffer's elements.
    pub(crate) fn add(&mut self, more: &Buffer) -> Result<()> {
        if (more.dtype, more.count) != (self.dtype, self.count) {
            bail!("two gradients of one tensor differ in size or type");
        }
        let gpu = self.gpu.clone();
        let kernel = Kernel::of("pointwise", "add_to", self.dtype);
        let count = self.count;
        gpu.launch(
            kernel,
            Grid::for_each(count),
            &[more.into(), self.into(), count.into()],
        )
    }

    /// The storage, for candle.
    pub(crate) fn into_storage(self) -> Storage {
        self.storage
    }

    /// A tensor outside any graph.
    pub(crate) fn into_tensor(self, shape: impl Into<Shape>) -> Tensor {
        Tensor::from_storage(self.storage, shape, BackpropOp::none(), false)
    }
}

impl<'a> View<'a> {
    pub(super) fn new(address: u64, dtype: DType, start: usize, count: usize) -> Result<Self> {
        if !matches!(dtype, DType::F32 | DType::BF16 | DType::U32) {
            bail!("kernels know f32, bf16 and u32, not {dtype:?}");
        }
        Ok(Self {
            address: address + (start * dtype.size_in_bytes()) as u64,
            dtype,
            count,
            held: PhantomData,
        })
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The type of its elements.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether it starts at a multiple of `count` elements, so that vectors of as many can be read.
    pub(crate) fn aligned(&self, count: usize) -> bool {
        let bytes = count * self.dtype.size_in_bytes();
        self.address.is_multiple_of(bytes as u64)
    }

    /// `count` elements from `start` on.
    pub(crate) fn part(&self, start: usize, count: usize) -> Self {
        assert!(start + count <= self.count, "part of a view");
        let bytes = start * self.dtype.size_in_bytes();
        Self {
            address: self.address + bytes as u64,
            count,
            ..*self
        }
    }

    /// The same without a hold on the memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> View<'static> {
        View {
            address: self.address,
            dtype: self.dtype,
            count: self.count,
            held: PhantomData,
        }
    }

    /// As an argument.
    pub(super) fn pointer(&self) -> Pointer<'a> {
        Pointer {
            address: self.address,
            dtype: self.dtype,
            count: self.count,
            held: PhantomData,
        }
    }
}
