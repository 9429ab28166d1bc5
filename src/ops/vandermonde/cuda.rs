//! Launches of the kernels of `cuda/vandermonde.cu`.

use super::Vandermonde;
use crate::gpu::sizes::vandermonde::{RUN, THREADS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use candle_core::{DType, Result};

/// Taps of a block.
const TAPS: usize = RUN * THREADS;

impl CudaOp for Vandermonde {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let mut y = gpu.alloc(ins[0].dtype(), self.width * self.len)?;
        let mut args: Vec<Arg> = ins.iter().map(|x| (*x).into()).collect();
        args.push((&mut y).into());
        self.launch_kernel(gpu, Self::NAME, self.len.div_ceil(TAPS), &args, ins[0].dtype())?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy) = (call.gpu, call.only().grad);
        let alloc = |_: &_| gpu.alloc(gy.dtype(), self.width * self.states);
        let mut grads = call.ins.iter().map(alloc).collect::<Result<Vec<_>>>()?;
        let mut args: Vec<Arg> = call.ins.iter().map(|x| (*x).into()).collect();
        args.push(gy.into());
        args.extend(grads.iter_mut().map(Arg::from));
        self.launch_kernel(gpu, "vandermonde_backward", self.states, &args, gy.dtype())?;
        Ok(grads.into_iter().map(Some).collect())
    }
}

impl Vandermonde {
    fn launch_kernel(&self, gpu: &Gpu, name: &str, across: usize, args: &[Arg], dtype: DType) -> Result<()> {
        let grid = Grid { blocks: [self.width, across, 1], threads: THREADS, shared: 0 };
        let sizes = [self.states.into(), self.len.into()];
        gpu.launch(Kernel::of(Self::NAME, name, dtype), grid, &[args, &sizes].concat())
    }
}
