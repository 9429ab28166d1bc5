//! Launches of the kernels of `cuda/pointwise.cu`.

use super::{Fused, Pointwise};
use crate::gpu::{Buffer, Grid, Kernel};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Used};
use candle_core::Result;

impl<P: Pointwise> CudaOp for Fused<P> {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (io, count) = (ins[0].dtype(), ins[0].len());
        let mut y = gpu.alloc(io, count)?;
        let kernel = Kernel::of("pointwise", &format!("{}_forward", P::NAME), io);
        let args = [ins[0].into(), (&mut y).into(), count.into()];
        gpu.launch(kernel, Grid::for_each(count), &args)?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let Used { value, grad } = call.only();
        let (io, count) = (value.dtype(), value.len());
        let mut gx = call.gpu.alloc(io, count)?;
        let kernel = Kernel::of("pointwise", &format!("{}_backward", P::NAME), io);
        let x = call.ins[0];
        let args = [x.into(), value.into(), grad.into(), (&mut gx).into(), count.into()];
        call.gpu.launch(kernel, Grid::for_each(count), &args)?;
        Ok(vec![Some(gx)])
    }
}
