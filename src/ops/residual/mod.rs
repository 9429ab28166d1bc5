//! A residual connection in one pass, with an optional trained scale of the skip path and dropout
//! of the branch.

use crate::dropout::{mask_chunk, masked_on, reference as dropped};
use crate::gpu::{Arg, Buffer, Grid, Kernel, View};
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{dot, sum_parts as sum};
use crate::runtime::mask::{Dropout, Mask};
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::sums::sum_parts;
use crate::runtime::tuned::Tuned;
use crate::runtime::zeros::copied;
use candle_core::{DType, Result, Shape, Tensor};
use dsf_simd::simd;

/// Elements per task, and per partial sum of the gradient of the scale.
const CHUNK: usize = 1 << 14;
/// Threads per block; must equal that of `cuda/residual.cu`.
const THREADS: usize = 256;
/// Blocks of a backward pass, each with a partial sum; few in tests, so that each loops several
/// times.
const BLOCKS: Tuned = Tuned::new(1024, 2);

/// scale x + dropout(branch), with the mask of [`dropout`](crate::dropout()).
///
/// `x`, `branch`: of one shape; `scale`: (1), or `None` for 1; result like `x`.
pub fn residual(x: &Tensor, branch: &Tensor, dropout: Option<Dropout>, scale: Option<&Tensor>) -> Result<Tensor> {
    shape::expect(Residual::NAME, ("branch", branch), ("x", x), x.dims())?;
    if let Some(scale) = scale {
        shape::parameter(Residual::NAME, ("scale", scale), ("x", x), &[1])?;
    }
    let mask = match dropout {
        Some(dropout) => Mask::new(Residual::NAME, dropout)?,
        None => None,
    };
    if runs_on(x) && x.elem_count() > 0 {
        let shape = x.shape().clone();
        let ins: Vec<&Tensor> = [x, branch].into_iter().chain(scale).collect();
        return apply_one(Residual { shape, mask }, &ins);
    }
    let branch = match mask {
        Some(mask) => dropped(branch, mask)?,
        None => branch.clone(),
    };
    match scale {
        Some(scale) => x.broadcast_mul(&scale.to_dtype(x.dtype())?)? + branch,
        None => x + branch,
    }
}

struct Residual {
    shape: Shape,
    mask: Option<Mask>,
}

impl Residual {
    fn drop<F: Float>(&self, task: usize, x: &mut [F]) {
        if let Some(mask) = &self.mask {
            mask_chunk(mask, (task * CHUNK) as u64, x);
        }
    }

    fn vector(views: &[View]) -> Arg<'static> {
        views.iter().all(|view| view.aligned(4)).into()
    }

    /// The gradients without a scale: that of x is that of the result.
    fn launch_plain(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, grad) = (call.gpu, call.only().grad);
        let of_branch = || match &self.mask {
            Some(mask) => masked_on(gpu, mask, grad),
            None => gpu.copy(grad),
        };
        let of_x = call.needs_grad[0].then(|| gpu.copy(grad)).transpose()?;
        Ok(vec![of_x, call.needs_grad[1].then(of_branch).transpose()?])
    }
}

impl FusedOp for Residual {
    const NAME: &'static str = "residual";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = copied(ins[1]);
        let scale = ins.get(2).map_or(F::one(), |scale| scale[0]);
        y.chunks_mut(CHUNK).zip(ins[0].chunks(CHUNK)).enumerate().in_parallel(|(task, (y, x))| {
            self.drop(task, y);
            add_scaled(x, scale, y);
        });
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let grad = call.only().grad;
        let mut of_branch = copied(grad);
        of_branch.chunks_mut(CHUNK).enumerate().in_parallel(|(task, of_branch)| self.drop(task, of_branch));
        let mut of_x = copied(grad);
        let Some(scale) = call.ins.get(2) else {
            return vec![of_x, of_branch];
        };
        let mut parts = vec![F::zero(); grad.len().div_ceil(CHUNK)];
        of_x.chunks_mut(CHUNK)
            .zip(&mut parts)
            .zip(call.ins[0].chunks(CHUNK))
            .in_parallel(|((of_x, part), x)| *part = scale_and_sum(scale[0], x, of_x));
        vec![of_x, of_branch, sum(&parts, 1)]
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (io, count) = (ins[0].dtype(), ins[0].len());
        let mut y = gpu.alloc(io, count)?;
        let vector = Self::vector(&[ins[0], ins[1], y.view()]);
        let mut args: Vec<Arg> = vec![ins[0].into(), ins[1].into(), ins.get(2).copied().into()];
        args.extend(Mask::args(self.mask.as_ref(), gpu)?);
        args.extend([(&mut y).into(), count.into(), vector]);
        let kernel = Kernel::of("residual", "residual_forward", io);
        gpu.launch(kernel, Grid::for_each(count.div_ceil(4)), &args)?;
        Ok(vec![y])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let Some(&scale) = call.ins.get(2) else {
            return self.launch_plain(call);
        };
        let (gpu, x, grad) = (call.gpu, call.ins[0], call.only().grad);
        let (io, count) = (x.dtype(), x.len());
        let [mut of_x, mut of_branch] = [gpu.alloc(io, count)?, gpu.alloc(io, count)?];
        let blocks = count.div_ceil(4 * THREADS).min(BLOCKS.get());
        let mut parts = gpu.alloc(DType::F32, blocks)?;
        let vector = Self::vector(&[x, grad, of_x.view(), of_branch.view()]);
        let mut args: Vec<Arg> = vec![x.into(), scale.into()];
        args.extend(Mask::args(self.mask.as_ref(), gpu)?);
        args.extend([grad.into(), (&mut of_x).into(), (&mut of_branch).into()]);
        args.extend([(&mut parts).into(), count.into(), vector]);
        let kernel = Kernel::of("residual", "residual_backward", io);
        gpu.launch(kernel, Grid::of(blocks, THREADS), &args)?;
        let of_scale = sum_parts(gpu, &parts, 1)?;
        Ok(vec![Some(of_x), Some(of_branch), Some(of_scale)])
    }
}

/// `y += scale x`.
#[simd]
fn add_scaled<F: Float>(x: &[F], scale: F, y: &mut [F]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = scale.fma(x, *y);
    }
}

/// Returns Σ x grad, and multiplies `grad` by `scale`.
#[simd]
fn scale_and_sum<F: Float>(scale: F, x: &[F], grad: &mut [F]) -> F {
    let sum = dot(x, grad);
    grad.iter_mut().for_each(|grad| *grad *= scale);
    sum
}

#[cfg(test)]
mod tests;
