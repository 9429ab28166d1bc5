//! Rotary position embeddings on a GPU.

use super::{Places, Rotary};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::ops::fused::{Launch, LaunchBackward};
use candle_core::{DType, Result};

impl Rotary {
    /// The rotated rows, followed by the cosines and sines saved for the backward pass.
    pub(super) fn launch_forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let table = self.launch_table(gpu)?;
        let y = self.launch_turn(gpu, ins[0], &table, 1.0)?;
        Ok(vec![y, table])
    }

    pub(super) fn launch_back(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let gx = self.launch_turn(call.gpu, call.only().grad, &call.kept[0], -1.0)?;
        Ok(vec![Some(gx)])
    }

    fn launch_table(&self, gpu: &Gpu) -> Result<Buffer> {
        match &self.places {
            Places::FromZero(rows) => self.launch_table_of(gpu, None, *rows),
            Places::Given(positions) => {
                let (storage, layout) = positions.storage_and_layout();
                let positions = gpu.view(&storage, layout)?;
                self.launch_table_of(gpu, Some(positions), positions.len())
            }
        }
    }

    fn launch_table_of(&self, gpu: &Gpu, positions: Option<View>, rows: usize) -> Result<Buffer> {
        let mut table = gpu.alloc(DType::F32, rows * self.dims)?;
        let half = self.dims / 2;
        let args = [
            positions.into(),
            (&mut table).into(),
            rows.into(),
            half.into(),
        ];
        let kernel = Kernel::new("rotary", "rotary_table");
        gpu.launch(kernel, Grid::for_each(rows * half), &args)?;
        Ok(table)
    }

    fn launch_turn(&self, gpu: &Gpu, x: View, table: &Buffer, sign: f32) -> Result<Buffer> {
        let (io, count) = (x.dtype(), x.len());
        let mut y = gpu.alloc(io, count)?;
        // Groups of four neighbours are then of one head, and turned together or not at all.
        let whole = self.width.is_multiple_of(4) && self.dims.is_multiple_of(8);
        let vector = whole && x.aligned(4) && y.view().aligned(4);
        let mut args: Vec<Arg> = vec![x.into(), table.into(), (&mut y).into(), sign.into()];
        let places = table.len() / self.dims;
        let sizes = [count, self.channels, self.width, self.dims / 2, places];
        args.extend(sizes.map(Arg::from));
        args.push(vector.into());
        let kernel = Kernel::of("rotary", "rotary_turn", io);
        gpu.launch(kernel, Grid::for_each(count.div_ceil(4)), &args)?;
        Ok(y)
    }
}
