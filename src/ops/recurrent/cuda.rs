//! Launches of the kernels of `cuda/recurrent.cu`, one per step and direction.

use super::rules::CellRule;
use super::{Recurrent, Sizes, OP};
use crate::gpu::sizes::recurrent::{CHANNELS, ROWS, THREADS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, Matrix, Product, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::sums::sum_rows;
use candle_core::{DType, Result};

impl<R: CellRule> CudaOp for Recurrent<R> {
    /// y; then, if tracked, y of the step before each, the pre-activations, and the states after each step.
    fn forward(&self, Launch { gpu, ins, tracked }: Launch) -> Result<Vec<Buffer>> {
        let Sizes { batch, len, width } = self.0;
        let (io, steps) = (ins[0].dtype(), batch * len);
        let kept_steps = if tracked { steps } else { batch };
        let optional = |wanted: bool, dtype, count| wanted.then(|| gpu.alloc(dtype, count)).transpose();
        let mut y = gpu.alloc(io, steps * width)?;
        let mut before = optional(tracked, io, steps * width)?;
        let mut kept = optional(tracked, io, steps * R::GATES * width)?;
        let states = R::STATES_OF_KERNELS;
        let mut states = optional(states > 0, DType::F32, kept_steps * states * width)?;
        let args: [Arg; 7] = [
            ins[0].into(),
            ins[1].into(),
            ins.get(2).copied().into(),
            (&mut y).into(),
            before.as_mut().into(),
            kept.as_mut().into(),
            states.as_mut().into(),
        ];
        self.run(gpu, "forward", io, &args, 0..len)?;
        let saved = if tracked { [before, kept, states] } else { Default::default() };
        Ok([y].into_iter().chain(saved.into_iter().flatten()).collect())
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let Sizes { batch, len, width } = self.0;
        let LaunchBackward { gpu, ins, saved, .. } = call;
        let [before, kept, states @ ..] = saved else { unreachable!("the forward pass kept y and its gates") };
        let (io, of_states) = (ins[0].dtype(), R::STATES_OF_KERNELS);
        let optional = |wanted: bool, dtype, count| wanted.then(|| gpu.alloc(dtype, count)).transpose();
        let mut gwu = gpu.alloc(io, ins[0].len())?;
        let mut guy = optional(R::APART, io, ins[0].len())?;
        let mut carry = optional(of_states > 0, DType::F32, batch * of_states * width)?;
        let args: [Arg; 8] = [
            ins[0].into(),
            ins[1].into(),
            kept.into(),
            states.first().map(Buffer::view).into(),
            call.only().grad.into(),
            (&mut gwu).into(),
            guy.as_mut().into(),
            carry.as_mut().into(),
        ];
        self.run(gpu, "backward", io, &args, (0..len).rev())?;
        let of_map = guy.as_ref().unwrap_or(&gwu).view();
        let gates = R::GATES * width;
        let grad_map = || -> Result<Buffer> {
            let mut grad = gpu.alloc(DType::F32, gates * width)?;
            let (left, right) = (Matrix::transposed(of_map), Matrix::plain(before.view()));
            gpu.multiply(Product::one([gates, batch * len, width], left, right), &mut grad)?;
            Ok(grad)
        };
        let of_u = call.needs_grad[1].then(grad_map).transpose()?;
        // c is added to the last gate's part of U y.
        let last = |_: &View| sum_rows(gpu, of_map, gates)?.cut(&[gates - width, width]);
        let of_bias = ins.get(2).map(last).transpose()?.map(|mut parts| parts.pop());
        Ok([Some(gwu), of_u].into_iter().chain(of_bias).collect())
    }
}

impl<R: CellRule> Recurrent<R> {
    /// Launches a kernel once per step.
    fn run(&self, gpu: &Gpu, pass: &str, io: DType, args: &[Arg], steps: impl Iterator<Item = usize>) -> Result<()> {
        let Sizes { batch, len, width } = self.0;
        let grid = Grid { blocks: [batch.div_ceil(ROWS), width.div_ceil(CHANNELS), 1], threads: THREADS, shared: 0 };
        let name = format!("{}_{pass}", R::KERNELS);
        let mut args = [args, &[batch.into(), len.into(), width.into(), Arg::U32(0)]].concat();
        let last = args.len() - 1;
        for t in steps {
            args[last] = t.into();
            gpu.launch(Kernel::of(OP, &name, io), grid, &args)?;
        }
        Ok(())
    }
}
