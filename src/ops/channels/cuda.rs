//! Launches of the kernels of `cuda/channels.cu`.

use super::{AddScaled, ScaleHeads, SoftplusBiased};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View, WARP};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use crate::runtime::sums::sum_parts;
use crate::runtime::tile::Tiles;
use candle_core::{DType, Result};

/// Threads per block of the kernels in which each warp handles a row or a head.
const THREADS: usize = 256;

impl CudaOp for AddScaled {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.launch_forward(call)?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, grad, tiles) = (call.gpu, call.only().grad, self.tiles());
        let mut gy = like(gpu, grad)?;
        let mut parts = tiles.parts(gpu)?;
        let mut gx = call.needs_grad[0].then(|| like(gpu, grad)).transpose()?;
        let ins = [call.ins[1].into(), call.ins[2].into(), grad.into()];
        let outs = [gx.as_mut().map_or(Arg::Null, Arg::from), (&mut gy).into(), (&mut parts).into()];
        on_tiles::<Self>(gpu, "backward", grad.dtype(), tiles, &[&ins[..], &outs].concat())?;
        let gscale = sum_parts(gpu, &parts, self.width)?;
        Ok(vec![gx, Some(gy), Some(gscale)])
    }
}

impl CudaOp for SoftplusBiased {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.launch_forward(call)?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, grad, tiles) = (call.gpu, call.only().grad, self.tiles());
        let (x, io) = (call.ins[0], grad.dtype());
        let mut gx = like(gpu, x)?;
        let mut parts = tiles.parts(gpu)?;
        let ins = [x.into(), call.ins[1].into(), grad.into()];
        let single = self.given != self.width;
        let to = match single {
            true => Arg::Null,
            false => (&mut gx).into(),
        };
        let args = [to, (&mut parts).into(), self.given.into()];
        on_tiles::<Self>(gpu, "backward", io, tiles, &[&ins[..], &args].concat())?;
        if single {
            let args = [(&mut gx).into(), x.len().into(), self.width.into()];
            let args = [&ins[..], &args].concat();
            gpu.launch(kernel::<Self>("rows", io), by_warps(x.len()), &args)?;
        }
        let gbias = sum_parts(gpu, &parts, self.width)?;
        Ok(vec![Some(gx), Some(gbias)])
    }
}

impl CudaOp for ScaleHeads {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.launch_forward(call)?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, [x, scale]) = (call.gpu, [call.ins[0], call.ins[1]]);
        let (mut gx, mut gs) = (like(gpu, x)?, like(gpu, scale)?);
        let ins = [x.into(), scale.into(), call.only().grad.into()];
        let sizes = [self.head.into(), scale.len().into()];
        let args = [&ins[..], &[(&mut gx).into(), (&mut gs).into()], &sizes].concat();
        gpu.launch(kernel::<Self>("backward", x.dtype()), by_warps(scale.len()), &args)?;
        Ok(vec![Some(gx), Some(gs)])
    }
}

fn kernel<O: Op>(part: &str, io: DType) -> Kernel {
    Kernel::of("channels", &format!("{}_{part}", O::NAME), io)
}

fn on_tiles<O: Op>(gpu: &Gpu, part: &str, io: DType, tiles: Tiles, args: &[Arg]) -> Result<()> {
    let args = [args, &tiles.args()].concat();
    gpu.launch(kernel::<O>(part, io), tiles.grid(), &args)
}

/// One warp for each of `count` rows or heads.
fn by_warps(count: usize) -> Grid {
    Grid::of(count.div_ceil(THREADS / WARP), THREADS)
}

fn like(gpu: &Gpu, of: View) -> Result<Buffer> {
    gpu.alloc(of.dtype(), of.len())
}

impl AddScaled {
    fn tiles(&self) -> Tiles {
        Tiles::of(self.shape.elem_count() / self.width, self.width)
    }

    fn launch_forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Buffer> {
        let mut out = like(gpu, ins[0])?;
        let args = [ins[0].into(), ins[1].into(), ins[2].into(), (&mut out).into()];
        on_tiles::<Self>(gpu, "forward", ins[0].dtype(), self.tiles(), &args)?;
        Ok(out)
    }
}

impl SoftplusBiased {
    fn tiles(&self) -> Tiles {
        Tiles::of(self.leading.iter().product(), self.width)
    }

    fn launch_forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Buffer> {
        let (io, tiles) = (ins[0].dtype(), self.tiles());
        let mut y = gpu.alloc(io, ins[0].len() / self.given * self.width)?;
        let args = [ins[0].into(), ins[1].into(), (&mut y).into(), self.given.into()];
        on_tiles::<Self>(gpu, "forward", io, tiles, &args)?;
        Ok(y)
    }
}

impl ScaleHeads {
    fn launch_forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Buffer> {
        let [x, scale] = [ins[0], ins[1]];
        let mut y = like(gpu, x)?;
        let args = [x.into(), scale.into(), (&mut y).into(), self.head.into()];
        let width = self.shape.dims().last().copied().unwrap_or(self.head);
        let tiles = Tiles::of(x.len() / width, width);
        on_tiles::<Self>(gpu, "forward", x.dtype(), tiles, &args)?;
        Ok(y)
    }
}
