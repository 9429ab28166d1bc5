//! Launches of the kernels of `cuda/split.cu`: each pass of either op copies a whole to its parts, or parts to a whole.

use super::{Division, Join, Split};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::maps::{padded, table};
use candle_core::{DType, Result};

impl CudaOp for Split {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        self.0.take_apart(gpu, ins[0])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let grads = call.outs.iter().map(|out| out.map(|out| out.grad));
        Ok(vec![Some(self.0.put_together(call.gpu, call.ins[0].dtype(), grads)?)])
    }
}

impl CudaOp for Join {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.0.put_together(gpu, ins[0].dtype(), ins.iter().copied().map(Some))?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let grads = self.0.take_apart(call.gpu, call.only().grad)?.into_iter();
        Ok(grads.zip(call.needs_grad).map(|(grad, needed)| needed.then_some(grad)).collect())
    }
}

impl Division {
    fn take_apart(&self, gpu: &Gpu, whole: View) -> Result<Vec<Buffer>> {
        let (io, rows) = (whole.dtype(), self.rows());
        let parts = self.widths().map(|width| gpu.alloc(io, rows * width));
        let mut parts = parts.collect::<Result<Vec<_>>>()?;
        let to = table(parts.iter_mut());
        self.run(gpu, Kernel::of("split", "take_apart", io), [whole.into(), to])?;
        Ok(parts)
    }

    /// The whole, zero where a part is absent.
    fn put_together<'a>(&self, gpu: &Gpu, io: DType, parts: impl Iterator<Item = Option<View<'a>>>) -> Result<Buffer> {
        let mut whole = gpu.alloc(io, self.shape.elem_count())?;
        self.run(gpu, Kernel::of("split", "put_together", io), [table(parts), (&mut whole).into()])?;
        Ok(whole)
    }

    fn run(&self, gpu: &Gpu, kernel: Kernel, tensors: [Arg; 2]) -> Result<()> {
        let count = self.shape.elem_count();
        let sizes = [&[count.into(), (count / self.rows()).into()], &padded(self.widths())[..]].concat();
        gpu.launch(kernel, Grid::for_each(count), &[&tensors, &sizes[..]].concat())
    }
}
