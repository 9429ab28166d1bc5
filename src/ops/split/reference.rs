//! Definition in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(super) fn split(x: &Tensor, axis: usize, sizes: &[usize]) -> Result<Vec<Tensor>> {
    let mut start = 0;
    let part = |&size: &usize| {
        let part = x.narrow(axis, start, size)?.contiguous();
        start += size;
        part
    };
    sizes.iter().map(part).collect()
}

pub(super) fn join(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    Tensor::cat(parts, axis)
}
