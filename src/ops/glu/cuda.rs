//! Launches of the kernels of `cuda/glu.cu`.

use super::Halves;
use crate::gpu::{Arg, Buffer, Grid, Kernel, View};
use crate::pointwise::Pointwise;
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use candle_core::{DType, Result};

impl<P: Pointwise> CudaOp for Halves<P> {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let mut y = gpu.alloc(ins[0].dtype(), self.out.elem_count())?;
        let sizes = self.sizes(&[ins[0], y.view()]);
        let args = [&[ins[0].into(), (&mut y).into()], &sizes[..]].concat();
        gpu.launch(self.kernel("forward", ins[0].dtype()), self.grid(), &args)?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (x, gy) = (call.ins[0], call.only().grad);
        let mut gx = call.gpu.alloc(x.dtype(), x.len())?;
        let sizes = self.sizes(&[x, gy, gx.view()]);
        let args = [&[x.into(), gy.into(), (&mut gx).into()], &sizes[..]].concat();
        let kernel = self.kernel("backward", x.dtype());
        call.gpu.launch(kernel, self.grid(), &args)?;
        Ok(vec![Some(gx)])
    }
}

impl<P: Pointwise> Halves<P> {
    fn kernel(&self, part: &str, io: DType) -> Kernel {
        Kernel::of("glu", &format!("glu_{}_{part}", P::NAME), io)
    }

    /// One thread for four elements of the result.
    fn grid(&self) -> Grid {
        Grid::for_each(self.out.elem_count().div_ceil(4))
    }

    /// The trailing arguments of the kernels.
    fn sizes(&self, views: &[View]) -> [Arg<'static>; 4] {
        let vector = self.width.is_multiple_of(4) && views.iter().all(|view| view.aligned(4));
        let (count, width) = (self.out.elem_count(), self.width);
        [count.into(), width.into(), self.curved.into(), vector.into()]
    }
}
