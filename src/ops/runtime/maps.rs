//! Launches over up to [`MAPS`] tensors at once; each tensor has its own blocks.

use crate::gpu::Arg;

pub(crate) use crate::gpu::sizes::maps::TENSORS as MAPS;

/// A table with one pointer for each of [`MAPS`] tensors.
pub(crate) fn table<'a>(tensors: impl Iterator<Item = impl Into<Arg<'a>>>) -> Arg<'a> {
    let mut entries: Vec<Arg> = tensors.map(Into::into).collect();
    entries.resize(MAPS, Arg::Null);
    Arg::Table(entries)
}

/// Sizes for each of [`MAPS`] tensors; zero for absent ones.
pub(crate) fn padded(sizes: impl Iterator<Item = usize>) -> Vec<Arg<'static>> {
    let sizes = sizes.map(Arg::from);
    sizes.chain(std::iter::repeat(Arg::U32(0))).take(MAPS).collect()
}
