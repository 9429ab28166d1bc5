//! Launches of the kernels of `cuda/split.cu`.

use super::Split;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::maps::{padded, table};
use candle_core::Result;

impl CudaOp for Split {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (io, rows) = (ins[0].dtype(), self.rows());
        let parts = self.widths().map(|width| gpu.alloc(io, rows * width));
        let mut parts = parts.collect::<Result<Vec<_>>>()?;
        let to = table(parts.iter_mut());
        self.run(gpu, Kernel::of("split", "split_forward", io), [ins[0].into(), to])?;
        Ok(parts)
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let io = call.ins[0].dtype();
        let mut gx = call.gpu.alloc(io, call.ins[0].len())?;
        let grads = table(call.outs.iter().map(|out| out.map(|out| out.grad)));
        self.run(call.gpu, Kernel::of("split", "split_backward", io), [grads, (&mut gx).into()])?;
        Ok(vec![Some(gx)])
    }
}

impl Split {
    /// Rows of the whole, each of which has a piece of every part.
    fn rows(&self) -> usize {
        self.shape.dims()[..self.axis].iter().product()
    }

    /// Elements of a row in each part.
    fn widths(&self) -> impl Iterator<Item = usize> + '_ {
        let behind = self.shape.dims()[self.axis + 1..].iter().product::<usize>();
        self.sizes.iter().map(move |size| size * behind)
    }

    fn run(&self, gpu: &Gpu, kernel: Kernel, tensors: [Arg; 2]) -> Result<()> {
        let count = self.shape.elem_count();
        let sizes = [&[count.into(), (count / self.rows()).into()], &padded(self.widths())[..]].concat();
        gpu.launch(kernel, Grid::for_each(count), &[&tensors, &sizes[..]].concat())
    }
}
