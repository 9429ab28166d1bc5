//! Launches of the kernels of `cuda/select_rows.cu`.

use super::SelectRows;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::tile::Tiles;
use candle_core::{DType, Result};

/// Up to this many rows of a sequence, a thread compares its step with all of them.
const FEW: usize = 32;

impl CudaOp for SelectRows {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let (io, rows) = (ins[0].dtype(), self.batch * self.rows);
        let mut y = gpu.alloc(io, rows * self.width)?;
        gpu.with_tensor(Some(&self.positions), |positions| {
            let args = [ins[0].into(), positions.into(), (&mut y).into()];
            self.run(gpu, "forward", io, rows, &args)
        })?;
        Ok(vec![y])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy, steps) = (call.gpu, call.only().grad, self.batch * self.len);
        let mut gx = gpu.alloc(gy.dtype(), call.ins[0].len())?;
        if self.rows <= FEW {
            gpu.with_tensor(Some(&self.positions), |positions| {
                self.run(gpu, "backward_few", gy.dtype(), steps, &[gy.into(), positions.into(), (&mut gx).into()])
            })?;
            return Ok(vec![Some(gx)]);
        }
        let mut first = gpu.alloc(DType::U32, steps)?;
        let mut next = gpu.alloc(DType::U32, self.batch * self.rows)?;
        gpu.with_tensor(Some(&self.positions), |positions| {
            let lists = [positions.into(), (&mut first).into(), (&mut next).into()];
            let sizes = [self.batch, self.len, self.rows].map(Arg::from);
            let grid = Grid::for_each(steps + self.batch * self.rows);
            let kernel = Kernel::new("select_rows", "select_rows_lists");
            gpu.launch(kernel, grid, &[lists, sizes].concat())
        })?;
        let args = [gy.into(), (&first).into(), (&next).into(), (&mut gx).into()];
        self.run(gpu, "backward", gy.dtype(), steps, &args)?;
        Ok(vec![Some(gx)])
    }
}

impl SelectRows {
    /// Launches a kernel on `rows` rows.
    fn run(&self, gpu: &Gpu, part: &str, io: DType, rows: usize, args: &[Arg]) -> Result<()> {
        let tiles = Tiles::of(rows, self.width);
        let sizes = [self.rows.into(), self.len.into()];
        let kernel = Kernel::of("select_rows", &format!("select_rows_{part}"), io);
        gpu.launch(kernel, tiles.grid(), &[args, &sizes, &tiles.args()].concat())
    }
}
