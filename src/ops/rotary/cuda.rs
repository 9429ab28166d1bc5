//! Rotary position embeddings on a GPU.

use super::{Positions, Rotary};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use candle_core::{DType, Result};

impl CudaOp for Rotary {
    /// The rotated rows, followed by the cosines and sines saved for the backward pass.
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let table = self.launch_table(gpu)?;
        let y = self.launch_rotation(gpu, ins[0], &table, 1.0)?;
        Ok(vec![y, table])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let gx = self.launch_rotation(call.gpu, call.only().grad, &call.saved[0], -1.0)?;
        Ok(vec![Some(gx)])
    }
}

impl Rotary {
    fn launch_table(&self, gpu: &Gpu) -> Result<Buffer> {
        let (positions, rows) = match &self.positions {
            Positions::FromZero(rows) => (None, *rows),
            Positions::Given(positions) => (Some(positions), positions.elem_count()),
        };
        let mut table = gpu.alloc(DType::F32, rows * self.dims)?;
        let half = self.dims / 2;
        let kernel = Kernel::new("rotary", "rotary_table");
        gpu.with_tensor(positions, |positions| {
            let out = (&mut table).into();
            let args = [positions.into(), out, self.base.log2().into(), rows.into(), half.into()];
            gpu.launch(kernel, Grid::for_each(rows * half), &args)
        })?;
        Ok(table)
    }

    fn launch_rotation(&self, gpu: &Gpu, x: View, table: &Buffer, sign: f32) -> Result<Buffer> {
        let (io, count) = (x.dtype(), x.len());
        let mut y = gpu.alloc(io, count)?;
        // Four consecutive elements then belong to one head, and are all rotated or all not.
        let whole = self.width.is_multiple_of(4) && self.dims.is_multiple_of(8);
        let vector = whole && x.aligned(4) && y.view().aligned(4);
        let mut args: Vec<Arg> = vec![x.into(), table.into(), (&mut y).into(), sign.into()];
        let positions = table.len() / self.dims;
        let sizes = [count, self.channels, self.width, self.dims / 2, positions];
        args.extend(sizes.map(Arg::from));
        args.push(vector.into());
        let kernel = Kernel::of("rotary", "rotary_rotate", io);
        gpu.launch(kernel, Grid::for_each(count.div_ceil(4)), &args)?;
        Ok(y)
    }
}
