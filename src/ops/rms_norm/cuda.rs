//! Launches of the kernels of the RMS norm.

use super::RmsNorm;
use crate::gpu::sizes::row::THREADS;
use crate::gpu::{Buffer, Grid, Kernel};
use crate::layer_norm::cuda::{kernels, BLOCKS};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::sums::sum_parts;
use candle_core::{DType, Result};

impl CudaOp for RmsNorm {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let ([x, gamma], rows) = ([ins[0], ins[1]], self.rows());
        let mut y = gpu.alloc(x.dtype(), x.len())?;
        let views = [Some(x), Some(gamma), Some(y.view())];
        let (name, together) = kernels(self.width, &views);
        let sizes = [rows.into(), self.width.into(), (self.root_eps() as f32).into()];
        let args = [&[x.into(), gamma.into(), (&mut y).into()], &sizes[..]].concat();
        let kernel = Kernel::of("rms_norm", &format!("rms_forward_{name}"), x.dtype());
        gpu.launch(kernel, Grid::of(rows.div_ceil(together), THREADS), &args)?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, rows, gy) = (call.gpu, self.rows(), call.only().grad);
        let (x, gamma) = (call.ins[0], call.ins[1]);
        let mut gx = gpu.alloc(x.dtype(), x.len())?;
        let views = [Some(x), Some(gamma), Some(gy), Some(gx.view())];
        let (name, together) = kernels(self.width, &views);
        let blocks = rows.div_ceil(together).min(BLOCKS.get());
        let mut parts = gpu.alloc(DType::F32, blocks * self.width)?;
        let mut args = vec![x.into(), gamma.into(), gy.into(), (&mut gx).into()];
        args.extend([(&mut parts).into(), rows.into(), self.width.into(), (self.root_eps() as f32).into()]);
        let kernel = Kernel::of("rms_norm", &format!("rms_backward_{name}"), x.dtype());
        gpu.launch(kernel, Grid::of(blocks, THREADS), &args)?;
        Ok(vec![Some(gx), Some(sum_parts(gpu, &parts, self.width)?)])
    }
}

impl RmsNorm {
    pub(super) fn rows(&self) -> usize {
        self.shape.elem_count() / self.width
    }
}
