//! The scan on a GPU, by the kernels of chunked sums.

use super::Ssd;
use crate::gpu::{Buffer, Gpu, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::chunked::cuda::{GpuDecay, GpuGradients, Launched, SummedTimes};
use candle_core::{bail, Result};

impl CudaOp for Ssd {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        with_sum(self, gpu, ins, |sum| Ok(vec![sum.forward()?]))
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        with_sum(self, call.gpu, call.ins, |sum| {
            let GpuGradients { b, c, x, decay } = sum.backward(call.only().grad)?;
            let Some([step, rate]) = decay else {
                bail!("ssd: a scan without decays");
            };
            Ok([x, step, rate, b, c].map(Some).into())
        })
    }
}

fn with_sum<R>(op: &Ssd, gpu: &Gpu, ins: &[View], run: impl FnOnce(Launched) -> Result<R>) -> Result<R> {
    let &[u, delta, a, b, c] = ins else {
        bail!("ssd: {} inputs instead of five", ins.len());
    };
    gpu.with_tensor(op.positions.as_ref(), |positions| {
        run(Launched {
            gpu,
            sequences: op.sums.sequences,
            len: op.sums.len,
            channels: op.sums.channels,
            states: op.sums.states,
            rows: SummedTimes { count: op.sums.times.rows, positions, shared: 1 },
            b,
            c,
            x: u,
            decay: Some(GpuDecay { step: delta, rate: a }),
        })
    })
}
