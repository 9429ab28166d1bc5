//! Launches of the kernels of `cuda/dplr_kernel.cu`.

use super::DplrKernel;
use crate::gpu::sizes::dplr_kernel::THREADS;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use candle_core::{DType, Result};

impl CudaOp for DplrKernel {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let mut values = gpu.alloc(DType::F32, self.width * 2 * self.roots())?;
        let mut y = gpu.alloc(DType::F32, self.width * self.len)?;
        let mut args: Vec<Arg> = ins.iter().map(|x| (*x).into()).collect();
        args.extend([(&mut values).into(), self.states.into(), self.period.into()]);
        self.launch_kernel(gpu, &self.of_rank("transfer"), self.roots().div_ceil(THREADS), &args)?;
        let args = [(&values).into(), (&mut y).into(), self.len.into(), self.period.into()];
        self.launch_kernel(gpu, "dplr_kernel_inverse", self.len.div_ceil(THREADS), &args)?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy) = (call.gpu, call.only().grad);
        let sums = (self.rank + 1) * (self.rank + 1);
        let mut weights = gpu.alloc(DType::F32, self.width * sums * 2 * self.roots())?;
        let ins = || call.ins.iter().map(|x| Arg::from(*x));
        let mut args: Vec<Arg> = ins().collect();
        args.extend([gy.into(), (&mut weights).into(), self.states.into(), self.len.into(), self.period.into()]);
        self.launch_kernel(gpu, &self.of_rank("weigh"), self.roots().div_ceil(THREADS), &args)?;
        let alloc = |x: &View| gpu.alloc(DType::F32, x.len());
        let mut grads = call.ins.iter().map(alloc).collect::<Result<Vec<_>>>()?;
        let mut args: Vec<Arg> = ins().collect();
        args.push((&weights).into());
        args.extend(grads.iter_mut().map(Arg::from));
        args.extend([self.states.into(), self.period.into()]);
        self.launch_kernel(gpu, &self.of_rank("slopes"), self.states, &args)?;
        Ok(grads.into_iter().map(Some).collect())
    }
}

impl DplrKernel {
    fn of_rank(&self, name: &str) -> String {
        format!("{}_{name}_{}", Self::NAME, self.rank + 1)
    }

    fn launch_kernel(&self, gpu: &Gpu, name: &str, across: usize, args: &[Arg]) -> Result<()> {
        let grid = Grid { blocks: [self.width, across, 1], threads: THREADS, shared: 0 };
        gpu.launch(Kernel::new(Self::NAME, name), grid, args)
    }
}
