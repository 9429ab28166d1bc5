//! The parts of a tensor along an axis. Candle would pad the gradient of each part to the whole, and add those.

mod cuda;
mod reference;

use crate::runtime::autograd::{apply_on_gpu, runs_on_gpu, Op};
use crate::runtime::maps::MAPS;
use candle_core::{bail, Result, Shape, Tensor};

/// The consecutive parts of `x` with the given sizes along `axis`, contiguous.
///
/// # Errors
///
/// Fails unless the sizes add up to that of the axis.
pub fn split(x: &Tensor, axis: usize, sizes: &[usize]) -> Result<Vec<Tensor>> {
    let whole = x.dim(axis)?;
    if sizes.iter().sum::<usize>() != whole {
        bail!("split: sizes {sizes:?} do not add up to the {whole} of axis {axis}");
    }
    // Consecutive parts without gradients are views.
    let are_views = !x.track_op() && x.dims()[..axis].iter().all(|&size| size == 1);
    if !are_views && sizes.len() <= MAPS && runs_on_gpu(x) {
        return apply_on_gpu(Split { shape: x.shape().clone(), axis, sizes: sizes.to_vec() }, &[x]);
    }
    reference::split(x, axis, sizes)
}

struct Split {
    shape: Shape,
    axis: usize,
    sizes: Vec<usize>,
}

impl Op for Split {
    const NAME: &'static str = "split";

    fn out_shapes(&self) -> Vec<Shape> {
        let part = |&size: &usize| {
            let mut sizes = self.shape.dims().to_vec();
            sizes[self.axis] = size;
            sizes.into()
        };
        self.sizes.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests;
