//! The parts of a tensor along an axis, and the concatenation of tensors along one. Candle would pad the gradient of each
//! part to the whole, and add those; it copies concatenated tensors one by one, and their gradients, too.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply, apply_one, runs_on, Op};
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
    if !are_views && sizes.len() <= MAPS && x.elem_count() > 0 && runs_on(x) {
        return apply(Split(Division { shape: x.shape().clone(), axis, sizes: sizes.to_vec() }), &[x]);
    }
    reference::split(x, axis, sizes)
}

/// Concatenation of tensors of one type along `axis`; their other axes are equal.
pub fn join(parts: &[impl AsRef<Tensor>], axis: usize) -> Result<Tensor> {
    let parts: Vec<&Tensor> = parts.iter().map(AsRef::as_ref).collect();
    match Division::of_whole(&parts, axis).filter(|_| runs_on(parts[0])) {
        Some(whole) => apply_one(Join(whole), &parts),
        None => reference::join(&parts, axis),
    }
}

/// A tensor and the sizes of its parts along an axis.
struct Division {
    shape: Shape,
    axis: usize,
    sizes: Vec<usize>,
}

impl Division {
    /// The whole that `parts` make, if the op can join them.
    fn of_whole(parts: &[&Tensor], axis: usize) -> Option<Self> {
        let first = *parts.first()?;
        let others = |x: &Tensor| {
            let mut dims = x.dims().to_vec();
            (axis < dims.len()).then(|| dims.remove(axis)).map(|_| (dims, x.dtype()))
        };
        let wanted = others(first)?;
        let fit = (2..=MAPS).contains(&parts.len())
            && parts.iter().all(|x| others(x).as_ref() == Some(&wanted) && x.elem_count() > 0);
        let sizes: Vec<usize> = parts.iter().filter_map(|x| x.dim(axis).ok()).collect();
        let mut dims = first.dims().to_vec();
        dims[axis] = sizes.iter().sum();
        fit.then(|| Self { shape: dims.into(), axis, sizes })
    }

    /// Rows of the whole, each of which has a piece of every part.
    fn rows(&self) -> usize {
        self.shape.dims()[..self.axis].iter().product()
    }

    /// Elements of a row in each part.
    fn widths(&self) -> impl Iterator<Item = usize> + '_ {
        let behind = self.shape.dims()[self.axis + 1..].iter().product::<usize>();
        self.sizes.iter().map(move |size| size * behind)
    }

    /// Shapes of the parts.
    fn shapes(&self) -> Vec<Shape> {
        let part = |&size: &usize| {
            let mut sizes = self.shape.dims().to_vec();
            sizes[self.axis] = size;
            sizes.into()
        };
        self.sizes.iter().map(part).collect()
    }
}

struct Split(Division);

impl Op for Split {
    const NAME: &'static str = "split";

    fn out_shapes(&self) -> Vec<Shape> {
        self.0.shapes()
    }
}

struct Join(Division);

impl Op for Join {
    const NAME: &'static str = "join";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.0.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
