//! Launches of the kernels of `cuda/causal_conv1d.cu`.

use super::CausalConv1d;
use crate::gpu::{Arg, Buffer, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use crate::runtime::sums::sums_of_some;
use candle_core::{DType, Result};

/// Groups of channels, and runs of steps, per block.
pub(super) const LANES: usize = 16;
const RUNS: usize = 8;
/// Steps per run of the forward pass.
const FORWARD_RUN: usize = 4;
const BACKWARD_RUN: usize = 8;

impl CudaOp for CausalConv1d {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let [x, w] = [call.ins[0], call.ins[1]];
        let b = call.ins.get(2).copied();
        let mut y = call.gpu.alloc(x.dtype(), x.len())?;
        let group = self.group(&[x]);
        let tensors = [x.into(), w.into(), b.into(), (&mut y).into()];
        let args = [&tensors[..], &self.arguments()].concat();
        let kernel = kernel("forward", group, x.dtype());
        call.gpu.launch(kernel, self.grid(FORWARD_RUN, group), &args)?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, [x, w]) = (call.gpu, [call.ins[0], call.ins[1]]);
        let gy = call.only().grad;
        let group = self.group(&[x, gy]);
        let grid = self.grid(BACKWARD_RUN, group);
        let wants = |input: usize| call.needs_grad.get(input) == Some(&true);
        let sums = |input: usize, width: usize| {
            let parts = || gpu.alloc(DType::F32, grid.blocks[0] * width);
            wants(input).then(parts).transpose()
        };
        let mut gx = wants(0).then(|| gpu.alloc(x.dtype(), x.len())).transpose()?;
        let mut gw = sums(1, w.len())?;
        let mut gb = sums(2, self.width)?;
        let grads = [&mut gx, &mut gw, &mut gb].map(|to| Arg::from(to.as_mut()));
        let args = [&[x.into(), w.into(), gy.into()], &grads[..], &self.arguments()].concat();
        gpu.launch(kernel("backward", group, x.dtype()), grid, &args)?;
        let parts = [(&gw, w.len()), (&gb, self.width)];
        let there = parts.map(|(parts, width)| Some((parts.as_ref()?.view(), width)));
        let sums = sums_of_some(gpu, &there)?;
        let grads = std::iter::once(gx).chain(sums);
        Ok(grads.take(call.ins.len()).collect())
    }
}

impl CausalConv1d {
    /// Channels per thread: as many as one vector load reads.
    fn group(&self, tensors: &[View]) -> usize {
        const WIDE: usize = 4;
        match self.width.is_multiple_of(WIDE) && tensors.iter().all(|x| x.aligned(WIDE)) {
            true => WIDE,
            false => 1,
        }
    }

    fn grid(&self, run: usize, group: usize) -> Grid {
        let runs = self.batch * self.len.div_ceil(run);
        Grid { blocks: [runs.div_ceil(RUNS), self.width.div_ceil(LANES * group), 1], threads: LANES * RUNS, shared: 0 }
    }

    fn arguments(&self) -> [Arg<'static>; 4] {
        [self.batch, self.len, self.width, self.taps].map(Arg::from)
    }
}

fn kernel(way: &str, group: usize, io: DType) -> Kernel {
    let name = format!("{}_{way}_{group}", CausalConv1d::NAME);
    Kernel::of(CausalConv1d::NAME, &name, io)
}
