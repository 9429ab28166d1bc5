//! Borrowed elements in memory of a GPU.

use candle_core::{bail, DType, Result};
use std::marker::PhantomData;

/// Contiguous elements of a buffer or a tensor, borrowed for `'a`.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    address: u64,
    dtype: DType,
    count: usize,
    held: PhantomData<&'a ()>,
}

#[allow(clippy::len_without_is_empty)] // like buffers
impl View<'_> {
    /// Returns `count` elements of the memory at `address`, beginning at element `start`.
    pub fn new(address: u64, dtype: DType, start: usize, count: usize) -> Result<Self> {
        if !matches!(dtype, DType::F32 | DType::BF16 | DType::U32) {
            bail!("kernels know f32, bf16 and u32, not {dtype:?}");
        }
        Ok(Self { address: address + (start * dtype.size_in_bytes()) as u64, dtype, count, held: PhantomData })
    }

    /// Address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.count * self.dtype.size_in_bytes()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether the address is aligned to `count` elements, so that vectors of that many elements can be loaded.
    pub fn aligned(&self, count: usize) -> bool {
        let bytes = count * self.dtype.size_in_bytes();
        self.address.is_multiple_of(bytes as u64)
    }

    /// Returns `count` elements beginning at `start`.
    pub fn part(&self, start: usize, count: usize) -> Self {
        assert!(start + count <= self.count, "part of a view");
        let bytes = start * self.dtype.size_in_bytes();
        Self { address: self.address + bytes as u64, count, ..*self }
    }

    /// Returns the view without its lifetime, for the emulation, which keeps the memory alive.
    pub fn kept(&self) -> View<'static> {
        View { held: PhantomData, ..*self }
    }
}
