//! Pooling by kernels: over pieces of sequences first, which are then merged.

use super::{Pool, Pooled};
use crate::gpu::sizes::pool::{GROUPS, THREADS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::tuned::Tuned;
use candle_core::{DType, Result};

/// Steps per block; small in tests, so that sequences have several pieces.
const EACH: Tuned = Tuned::new(256, 32);
/// Channels per block.
const COLUMNS: usize = 4 * GROUPS;

impl CudaOp for Pooled {
    /// The pooled rows; then, for the maximum, the steps of the maxima.
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (x, count) = (ins[0], self.batch * self.width);
        let mut y = gpu.alloc(x.dtype(), count)?;
        let mut kept = None;
        gpu.with_tensor(self.lengths.as_ref(), |lengths| match self.pool {
            Pool::Mean => {
                let parts = self.pieces(gpu, x, lengths, "sum", None)?;
                let args = [(&parts).into(), lengths.into(), (&mut y).into()];
                self.merge(gpu, "mean", x.dtype(), &args, Some(EACH.get()))
            }
            Pool::Last => {
                let args = [x.into(), lengths.into(), (&mut y).into()];
                self.merge(gpu, "last", x.dtype(), &args, None)
            }
            Pool::Max => {
                let mut steps = gpu.alloc(DType::U32, self.parts())?;
                let mut chosen = gpu.alloc(DType::U32, count)?;
                let parts = self.pieces(gpu, x, lengths, "max", Some(&mut steps))?;
                let ins = [(&parts).into(), (&steps).into(), lengths.into()];
                let args = [&ins[..], &[(&mut y).into(), (&mut chosen).into()]].concat();
                self.merge(gpu, "max", x.dtype(), &args, Some(EACH.get()))?;
                kept = Some(chosen);
                Ok(())
            }
        })?;
        Ok([y].into_iter().chain(kept).collect())
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy, count) = (call.gpu, call.only().grad, call.ins[0].len());
        let mut gx = gpu.alloc(gy.dtype(), count)?;
        let views = [gy, gx.view()];
        let vector = self.width.is_multiple_of(4) && views.iter().all(|view| view.aligned(4));
        let shared = self.pool == Pool::Mean;
        gpu.with_tensor(self.lengths.as_ref(), |lengths| {
            let mut args: Vec<Arg> = vec![gy.into(), lengths.into(), call.saved.first().into()];
            args.extend([(&mut gx).into(), count.into(), self.len.into()]);
            args.extend([self.width.into(), shared.into(), vector.into()]);
            let kernel = Kernel::of("pool", "pool_backward", gy.dtype());
            gpu.launch(kernel, Grid::for_each(count.div_ceil(4)), &args)
        })?;
        Ok(vec![Some(gx)])
    }
}

impl Pooled {
    /// The number of results of all pieces.
    fn parts(&self) -> usize {
        self.batch * self.len.div_ceil(EACH.get()) * self.width
    }

    /// Pools each piece of each sequence; `steps` receives the steps of the maxima.
    fn pieces(
        &self,
        gpu: &Gpu,
        x: View,
        lengths: Option<View>,
        part: &str,
        steps: Option<&mut Buffer>,
    ) -> Result<Buffer> {
        let mut parts = gpu.alloc(DType::F32, self.parts())?;
        let vector = self.width.is_multiple_of(4) && x.aligned(4);
        let mut args: Vec<Arg> = vec![x.into(), lengths.into(), (&mut parts).into()];
        args.extend(steps.map(Arg::from));
        args.extend([self.len, self.width, EACH.get()].map(Arg::from));
        args.push(vector.into());
        let grid = Grid {
            blocks: [self.batch, self.len.div_ceil(EACH.get()), self.width.div_ceil(COLUMNS)],
            threads: THREADS,
            shared: 0,
        };
        let kernel = Kernel::of("pool", &format!("pool_{part}_pieces"), x.dtype());
        gpu.launch(kernel, grid, &args)?;
        Ok(parts)
    }

    /// Merges the pieces of `each` steps, with one thread for each element of the result.
    fn merge(&self, gpu: &Gpu, name: &str, io: DType, args: &[Arg], each: Option<usize>) -> Result<()> {
        let count = self.batch * self.width;
        let sizes = [count, self.len, self.width];
        let sizes: Vec<Arg> = sizes.into_iter().chain(each).map(Arg::from).collect();
        let kernel = Kernel::of("pool", &format!("pool_{name}"), io);
        gpu.launch(kernel, Grid::for_each(count), &[args, &sizes].concat())
    }
}
