//! Launches of the kernels of `cuda/dropout.cu`.

use super::Masked;
use crate::gpu::{Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::mask::Mask;
use candle_core::Result;

impl CudaOp for Masked {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![masked_on(gpu, &self.mask, ins[0])?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let grad = call.only().grad;
        Ok(vec![Some(masked_on(call.gpu, &self.mask, grad)?)])
    }
}

/// The elements of `x` times the mask, by a kernel.
pub(crate) fn masked_on(gpu: &Gpu, mask: &Mask, x: View) -> Result<Buffer> {
    let (io, count) = (x.dtype(), x.len());
    let mut y = gpu.alloc(io, count)?;
    let vector = x.aligned(4) && y.view().aligned(4);
    let mask = Mask::args(Some(mask), gpu)?;
    let rest = [(&mut y).into(), count.into(), vector.into()];
    let args = [&[x.into()], &mask[..], &rest[..]].concat();
    let grid = Grid::for_each(count.div_ceil(4));
    gpu.launch(Kernel::of("dropout", "dropout", io), grid, &args)?;
    Ok(y)
}
