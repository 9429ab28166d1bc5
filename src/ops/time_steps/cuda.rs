//! Launches of the kernels of `cuda/time_steps.cu`.

use super::TimeSteps;
use crate::gpu::sizes::time_steps::STEPS;
use crate::gpu::{Arg, Buffer, Gpu, Kernel};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::tile::Tiles;
use candle_core::Result;

impl CudaOp for TimeSteps {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (io, count) = (ins[0].dtype(), self.batch * self.width);
        let steps = (0..self.len).map(|_| gpu.alloc(io, count));
        let mut steps = steps.collect::<Result<Vec<_>>>()?;
        for (i, steps) in steps.chunks_mut(STEPS).enumerate() {
            let steps = steps.iter_mut().map(Arg::from).collect();
            let kernel = Kernel::of("time_steps", "time_steps_forward", io);
            self.run(gpu, kernel, i, steps, |steps| [ins[0].into(), steps])?;
        }
        Ok(steps)
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (io, count) = (call.ins[0].dtype(), call.ins[0].len());
        let mut gx = call.gpu.alloc(io, count)?;
        for (i, outs) in call.outs.chunks(STEPS).enumerate() {
            let grads = outs.iter().map(|out| out.map(|out| out.grad).into());
            let kernel = Kernel::of("time_steps", "time_steps_backward", io);
            let to = &mut gx;
            self.run(call.gpu, kernel, i, grads.collect(), |grads| [grads, to.into()])?;
        }
        Ok(vec![Some(gx)])
    }
}

impl TimeSteps {
    /// Launches a kernel on group `index` of the steps; `place` pairs their views with x or with
    /// its gradient.
    fn run<'a>(
        &self,
        gpu: &Gpu,
        kernel: Kernel,
        index: usize,
        mut steps: Vec<Arg<'a>>,
        place: impl FnOnce(Arg<'a>) -> [Arg<'a>; 2],
    ) -> Result<()> {
        let tiles = Tiles::of(self.batch, self.width);
        let grid = tiles.grids(steps.len());
        steps.resize(STEPS, Arg::Null);
        let sizes = [(index * STEPS).into(), self.len.into()];
        let args = [&place(Arg::Table(steps))[..], &sizes, &tiles.args()].concat();
        gpu.launch(kernel, grid, &args)
    }
}
