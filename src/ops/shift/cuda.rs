//! Launches of the kernels of `cuda/shift.cu`.

use super::Shift;
use crate::gpu::{Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use candle_core::Result;

impl CudaOp for Shift {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.run(gpu, "shift_forward", ins[0])?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        Ok(vec![Some(self.run(call.gpu, "shift_backward", call.only().grad)?)])
    }
}

impl Shift {
    fn run(&self, gpu: &Gpu, kernel: &str, x: View) -> Result<Buffer> {
        let mut y = gpu.alloc(x.dtype(), x.len())?;
        let sizes = [x.len().into(), self.len.into(), self.width.into()];
        let args = [&[x.into(), (&mut y).into()], &sizes[..]].concat();
        gpu.launch(Kernel::of("shift", kernel, x.dtype()), Grid::for_each(x.len()), &args)?;
        Ok(y)
    }
}
