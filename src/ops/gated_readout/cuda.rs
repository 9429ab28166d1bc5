//! Launches of the kernels of `cuda/gated_readout.cu`.

use super::Readout;
use crate::gpu::sizes::gated_readout::EACH;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::pointwise::Pointwise;
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use candle_core::Result;

impl<P: Pointwise> CudaOp for Readout<P> {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let mut y = gpu.alloc(ins[0].dtype(), ins[0].len())?;
        run::<P>(gpu, "forward", ins, &[(&mut y).into()])?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy) = (call.gpu, call.only().grad);
        let grads = call.ins.iter().map(|x| gpu.alloc(x.dtype(), x.len()));
        let mut grads = grads.collect::<Result<Vec<_>>>()?;
        let mut to = grads.iter_mut();
        let to = [(); 3].map(|()| to.next().into());
        run::<P>(gpu, "backward", call.ins, &[&[gy.into()], &to[..]].concat())?;
        Ok(grads.into_iter().map(Some).collect())
    }
}

/// Launches a kernel with arguments h, g, z (null without an output gate), `args` and the number of
/// elements.
fn run<P: Pointwise>(gpu: &Gpu, part: &str, ins: &[View], args: &[Arg]) -> Result<()> {
    let (io, count) = (ins[0].dtype(), ins[0].len());
    let output = ins.get(2).copied();
    let ins = [ins[0].into(), ins[1].into(), output.into()];
    let args = [&ins[..], args, &[count.into()]].concat();
    let kernel = Kernel::of("gated_readout", &format!("gated_readout_{}_{part}", P::NAME), io);
    gpu.launch(kernel, Grid::for_each(count.div_ceil(EACH)), &args)
}
