//! Launches of the kernels of `cuda/cascade.cu`.

use super::Cascade;
use crate::gpu::sizes::cascade::SPAN;
use crate::gpu::{Arg, Buffer, Grid, Kernel, WARP};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use candle_core::{bail, DType, Result};

/// Maximum number of states, limited by the shared memory of a block.
const MOST: usize = 1024;

impl CudaOp for Cascade {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let mut y = gpu.alloc(DType::F32, self.width * self.len)?;
        let mut args: Vec<Arg> = ins.iter().map(|x| (*x).into()).collect();
        args.extend([(&mut y).into(), self.states.into(), self.len.into()]);
        gpu.launch(Kernel::new(Self::NAME, "cascade"), self.grid(4)?, &args)?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy) = (call.gpu, call.only().grad);
        let alloc = |_: &_| gpu.alloc(DType::F32, self.width * self.states);
        let mut grads = call.ins.iter().map(alloc).collect::<Result<Vec<_>>>()?;
        let padded = self.width * self.states.next_multiple_of(WARP);
        let mut stored = gpu.alloc(DType::F32, padded * self.len.div_ceil(SPAN))?;
        let mut span = gpu.alloc(DType::F32, padded * 2 * SPAN.min(self.len))?;
        let mut args: Vec<Arg> = call.ins.iter().map(|x| (*x).into()).collect();
        args.extend([gy.into(), (&mut stored).into(), (&mut span).into()]);
        args.extend(grads.iter_mut().map(Arg::from));
        args.extend([self.states.into(), self.len.into()]);
        let kernel = Kernel::new(Self::NAME, "cascade_backward");
        gpu.launch(kernel, self.grid(8)?, &args)?;
        Ok(grads.into_iter().map(Some).collect())
    }
}

impl Cascade {
    /// Returns one warp per channel, with `arrays` numbers per state in shared memory.
    fn grid(&self, arrays: usize) -> Result<Grid> {
        if self.states > MOST {
            let (name, states) = (Self::NAME, self.states);
            bail!("{name}: {states} states a channel, kernels take up to {MOST}");
        }
        let held = self.states.next_multiple_of(WARP) * arrays;
        Ok(Grid { blocks: [self.width, 1, 1], threads: WARP, shared: held * size_of::<f32>() })
    }
}
