//! Arguments of kernels.

use super::View;

/// Argument of a kernel. Views, buffers and numbers convert into one.
#[derive(Clone, Debug)]
pub enum Arg<'a> {
    /// `Global<T>`: memory that the kernel reads or writes.
    Pointer(View<'a>),
    /// A null `Global<T>`, for an optional tensor that is absent.
    Null,
    /// `uint32_t`.
    U32(u32),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
    /// `Table<T, N>`.
    Table(Vec<Arg<'a>>),
    /// A size that exceeds 32 bits; [`Gpu::launch`](super::Gpu::launch) refuses it.
    TooLarge(usize),
}

impl Arg<'_> {
    /// Returns the argument without its lifetime, for the emulation, which keeps the memory alive.
    pub fn kept(&self) -> Arg<'static> {
        match self {
            Arg::Pointer(view) => Arg::Pointer(view.kept()),
            Arg::Null => Arg::Null,
            Arg::U32(value) => Arg::U32(*value),
            Arg::F32(value) => Arg::F32(*value),
            Arg::F64(value) => Arg::F64(*value),
            Arg::Table(entries) => Arg::Table(entries.iter().map(Arg::kept).collect()),
            Arg::TooLarge(size) => Arg::TooLarge(*size),
        }
    }

    /// Returns the size, if it exceeds 32 bits.
    pub(super) fn too_large(&self) -> Option<usize> {
        match self {
            Self::TooLarge(size) => Some(*size),
            _ => None,
        }
    }
}

impl<'a> From<View<'a>> for Arg<'a> {
    fn from(view: View<'a>) -> Self {
        Self::Pointer(view)
    }
}

impl<'a> From<Option<View<'a>>> for Arg<'a> {
    fn from(view: Option<View<'a>>) -> Self {
        view.map_or(Self::Null, Self::from)
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

impl From<f64> for Arg<'_> {
    fn from(value: f64) -> Self {
        Self::F64(value)
    }
}

/// Sizes are `uint32_t` in kernels.
impl From<usize> for Arg<'_> {
    fn from(value: usize) -> Self {
        u32::try_from(value).map_or(Self::TooLarge(value), Self::U32)
    }
}
