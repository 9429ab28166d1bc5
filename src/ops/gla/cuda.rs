//! Launches of the kernels of `cuda/gla.cu`.

use super::Gla;
use crate::gpu::sizes::matrix_state::SPAN;
use crate::gpu::{Arg, Buffer, Grid, Kernel, WARP};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::matrix_state::StateSizes;
use crate::runtime::sums::add_parts;
use candle_core::{DType, Result};

const MODULE: &str = "gla";
/// Columns of a block.
const WIDTH: usize = WARP;
/// Rows of a thread, and warps of a block, of the forward pass.
const ROWS: usize = 8;
const MAX_WARPS: usize = 16;
/// Rows and threads of a block of the backward pass.
const SIDE: usize = 16;
const THREADS: usize = 128;

impl CudaOp for Gla {
    /// The result; then, if tracked, the states before spans of events, and the events.
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let Self(op) = self;
        let Launch { gpu, ins, tracked } = call;
        let io = ins[1].dtype();
        let events = op.event_table(gpu)?;
        let heads = op.batch * op.heads;
        let states = heads * op.events().div_ceil(SPAN) * op.keys * op.values;
        let mut kept = tracked.then(|| gpu.alloc(DType::F32, states)).transpose()?;
        let tiles = op.keys.div_ceil(MAX_WARPS * ROWS);
        let warps = op.keys.div_ceil(ROWS).div_ceil(tiles);
        let dtype = if tiles == 1 { io } else { DType::F32 };
        let mut o = gpu.alloc(dtype, tiles * heads * op.times.rows * op.values)?;
        let to = match tiles {
            1 => [(&mut o).into(), Arg::Null],
            _ => [Arg::Null, (&mut o).into()],
        };
        let mut args: Vec<Arg> = ins.iter().map(|&x| x.into()).collect();
        args.extend([events.as_ref().map(Buffer::view).into(), kept.as_mut().into()]);
        args.extend(to);
        args.extend(op.args());
        let grid = grid(op, tiles, warps * WARP);
        gpu.launch(Kernel::of(MODULE, "gla_forward", io), grid, &args)?;
        let o = add_parts(gpu, o, tiles, io)?;
        Ok([Some(o), kept, events].into_iter().flatten().collect())
    }

    /// The gradients of q, k, v and g.
    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let Self(op) = self;
        let (gpu, go) = (call.gpu, call.only().grad);
        let [kept, events @ ..] = call.saved else { unreachable!("the forward pass kept states") };
        let (across, along) = (op.values.div_ceil(WIDTH), op.keys.div_ceil(SIDE));
        let of_decays = if op.decays == 1 { across * along } else { across };
        let counts = [across, across, along, of_decays];
        let mut parts = Vec::with_capacity(counts.len());
        for ((&count, x), &needed) in counts.iter().zip(call.ins).zip(call.needs_grad) {
            let part = needed.then(|| gpu.alloc(DType::F32, count * x.len()));
            parts.push(part.transpose()?);
        }
        let mut args: Vec<Arg> = call.ins.iter().map(|&x| x.into()).collect();
        args.extend([go.into(), events.first().map(Buffer::view).into(), kept.into()]);
        args.extend(parts.iter_mut().map(|part| Arg::from(part.as_mut())));
        args.extend(op.args());
        let kernel = Kernel::of(MODULE, "gla_backward", go.dtype());
        gpu.launch(kernel, grid(op, along, THREADS), &args)?;
        let add = |(part, count): (Option<Buffer>, usize)| {
            let sum = part.map(|part| add_parts(gpu, part, count, go.dtype()));
            sum.transpose()
        };
        parts.into_iter().zip(counts).map(add).collect()
    }
}

/// Blocks for every head, tile of columns and tile of rows.
fn grid(op: &StateSizes, tiles: usize, threads: usize) -> Grid {
    Grid { blocks: [op.batch * op.heads, op.values.div_ceil(WIDTH), tiles], threads, shared: 0 }
}
