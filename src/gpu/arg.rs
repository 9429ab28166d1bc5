//! Arguments of kernels.

use super::{Buffer, View};
use candle_core::DType;
use std::marker::PhantomData;

/// Memory that a kernel reads or writes.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), allow(dead_code))] // a driver asks for the address alone
pub(crate) struct Pointer<'a> {
    pub(super) address: u64,
    pub(super) dtype: DType,
    pub(super) count: usize,
    pub(super) held: PhantomData<&'a ()>,
}

/// An argument of a kernel; conversions make one of whatever fits.
#[derive(Clone, Debug)]
pub(crate) enum Arg<'a> {
    /// `Global<T>`.
    Pointer(Pointer<'a>),
    /// `Global<T>` of nothing, for optional tensors.
    Null,
    /// `uint32_t`.
    U32(u32),
    /// `float`.
    F32(f32),
    /// `Table<T, N>`.
    Table(Vec<Arg<'a>>),
    /// A size beyond 32 bits; refused at the launch.
    TooLarge(usize),
}

impl Arg<'_> {
    /// The same without a hold on the memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> Arg<'static> {
        match self {
            Arg::Pointer(p) => Arg::Pointer(Pointer {
                held: PhantomData,
                ..*p
            }),
            Arg::Null => Arg::Null,
            Arg::U32(value) => Arg::U32(*value),
            Arg::F32(value) => Arg::F32(*value),
            Arg::Table(entries) => Arg::Table(entries.iter().map(Arg::kept).collect()),
            Arg::TooLarge(size) => Arg::TooLarge(*size),
        }
    }

    pub(super) fn too_large(&self) -> Option<usize> {
        match self {
            Self::TooLarge(size) => Some(*size),
            _ => None,
        }
    }
}

impl<'a> From<View<'a>> for Arg<'a> {
    fn from(view: View<'a>) -> Self {
        Self::Pointer(view.pointer())
    }
}

impl<'a> From<Option<View<'a>>> for Arg<'a> {
    fn from(view: Option<View<'a>>) -> Self {
        view.map_or(Self::Null, Self::from)
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

/// Memory that the kernel writes.
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

impl From<u32> for Arg<'_> {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<bool> for Arg<'_> {
    fn from(value: bool) -> Self {
        Self::U32(value.into())
    }
}

impl From<f32> for Arg<'_> {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

/// Sizes are `uint32_t` in kernels.
impl From<usize> for Arg<'_> {
    fn from(value: usize) -> Self {
        u32::try_from(value).map_or(Self::TooLarge(value), Self::U32)
    }
}
