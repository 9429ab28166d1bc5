//! Launches of the kernels of `cuda/residual.cu`.

use super::Residual;
use crate::dropout::cuda::masked_on;
use crate::gpu::sizes::residual::THREADS;
use crate::gpu::{Arg, Buffer, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::mask::Mask;
use crate::runtime::sums::sum_parts;
use crate::runtime::tuned::Tuned;
use candle_core::{DType, Result};

/// Blocks of a backward pass, each with a partial sum; few in tests, so that each loops several
/// times.
const BLOCKS: Tuned = Tuned::new(1024, 2);

impl CudaOp for Residual {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
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

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
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

impl Residual {
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
