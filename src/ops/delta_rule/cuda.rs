//! Launches of the kernels of `cuda/delta_rule.cu`.

use super::{DeltaRule, A, B};
use crate::gpu::sizes::matrix_state::SPAN;
use crate::gpu::{Arg, Buffer, Grid, Kernel, View, WARP};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::matrix_state::{StateSizes, DECAYS, KEYS, QUERIES, VALUES};
use crate::runtime::sums::add_parts;
use candle_core::{bail, DType, Result};

const MODULE: &str = "delta_rule";
/// Columns of a thread, and warps of a block, of the walks by columns.
const COLUMNS: usize = 2;
const MAX_WARPS: usize = 4;
/// Rows and threads of a block of the sums over columns.
const SIDE: usize = 16;
const THREADS: usize = 128;

/// Variant of the walks by columns, limited to the number of rows that a warp can hold.
struct Height {
    name: &'static str,
    /// Rows of a thread.
    rows: usize,
    /// Events staged at once.
    steps: usize,
}

const HEIGHTS: [Height; 2] = [Height { name: "short", rows: 8, steps: 8 }, Height { name: "tall", rows: 32, steps: 2 }];

/// Division of the walks by columns into threads and blocks.
struct Walk {
    height: &'static Height,
    /// Number of threads that share a column.
    team: usize,
    grid: Grid,
}

impl CudaOp for DeltaRule {
    /// The result; then, if tracked, the states before spans of events, the projections and the events.
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let Self(op) = self;
        let Launch { gpu, ins, tracked } = call;
        let (walk, io) = (Walk::new(op)?, ins[1].dtype());
        let events = op.event_table(gpu)?;
        let kept = |count: usize| tracked.then(|| gpu.alloc(DType::F32, count)).transpose();
        let (mut states, mut projections) = (kept(states(op))?, kept(of_columns(op))?);
        let mut o = gpu.alloc(io, op.batch * op.times.rows * op.heads * op.values)?;
        let mut args = inputs(ins, &[], events.as_ref());
        args.extend([states.as_mut().into(), (&mut o).into(), projections.as_mut().into(), walk.team.into()]);
        args.extend(op.args());
        gpu.launch(walk.kernel("forward", io), walk.grid, &args)?;
        let saved = [states, projections, events];
        Ok([o].into_iter().chain(saved.into_iter().flatten()).collect())
    }

    /// The gradients of q, k, v, g, a and b.
    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let Self(op) = self;
        let (walk, io) = (Walk::new(op)?, call.only().grad.dtype());
        let [before, projections, ..] = call.saved else {
            unreachable!("the forward pass kept states and projections")
        };
        let mut gv = needed(call, VALUES, io, 1)?;
        let mut after = call.gpu.alloc(DType::F32, before.len())?;
        let mut of_projections = call.gpu.alloc(DType::F32, projections.len())?;
        let mut args = inputs_back(call);
        args.extend([(&mut after).into(), gv.as_mut().into(), (&mut of_projections).into(), walk.team.into()]);
        args.extend(op.args());
        let kernel = walk.kernel("back", io);
        call.gpu.launch(kernel, walk.grid, &args)?;
        let found = [projections, &of_projections, before, &after];
        let [gq, gk, gg, ga, gb] = sum_columns(op, call, found)?;
        Ok(vec![gq, gk, gv, gg, ga, gb])
    }
}

impl Walk {
    fn new(op: &StateSizes) -> Result<Self> {
        let fits = |height: &&Height| op.keys <= height.rows * WARP;
        let Some(height) = HEIGHTS.iter().find(fits) else {
            let (keys, most) = (op.keys, HEIGHTS[1].rows * WARP);
            bail!("delta_rule: keys of {keys} features, kernels take up to {most}");
        };
        let team = op.keys.div_ceil(height.rows).next_power_of_two();
        let of_warp = WARP / team * COLUMNS;
        let warps = op.values.div_ceil(of_warp).min(MAX_WARPS);
        let columns = warps * of_warp;
        // Every staged event has five numbers per row and three per column.
        let staged = height.steps * (5 * team * height.rows + 3 * columns);
        let grid = Grid {
            blocks: [op.batch * op.heads, op.values.div_ceil(columns), 1],
            threads: warps * WARP,
            shared: staged * size_of::<f32>(),
        };
        Ok(Self { height, team, grid })
    }

    fn kernel(&self, pass: &str, io: DType) -> Kernel {
        let name = format!("delta_rule_{pass}_{}", self.height.name);
        Kernel::of(MODULE, &name, io)
    }
}

/// Number of elements of the stored states.
fn states(op: &StateSizes) -> usize {
    op.batch * op.heads * op.events().div_ceil(SPAN) * op.keys * op.values
}

/// Number of elements of (B, L, s, e).
fn of_columns(op: &StateSizes) -> usize {
    op.batch * op.len * op.heads * op.values
}

/// The leading arguments of the kernels.
fn inputs<'a>(ins: &[View<'a>], go: &[View<'a>], events: Option<&'a Buffer>) -> Vec<Arg<'a>> {
    let tensors = ins.iter().chain(go).map(|&x| x.into());
    tensors.chain([events.into()]).collect()
}

/// Returns the gradients of q, k, g, a and b, from the results of the walks by columns.
fn sum_columns(op: &StateSizes, call: LaunchBackward, found: [&Buffer; 4]) -> Result<[Option<Buffer>; 5]> {
    let io = call.only().grad.dtype();
    let tiles = op.keys.div_ceil(SIDE);
    let shares = if op.decays == 1 { tiles } else { 1 };
    let [mut gq, mut gk] = [needed(call, QUERIES, io, 1)?, needed(call, KEYS, io, 1)?];
    let [mut ga, mut gb] = [needed(call, A, io, 1)?, needed(call, B, io, 1)?];
    let mut gg = needed(call, DECAYS, DType::F32, shares)?;
    let mut grads = [&mut gq, &mut gk, &mut ga, &mut gb, &mut gg];
    if grads.iter().any(|grad| grad.is_some()) {
        let mut args = inputs_back(call);
        args.extend(found.map(Arg::from));
        args.extend(grads.iter_mut().map(|grad| Arg::from(grad.as_mut())));
        args.extend(op.args());
        let spans = op.events().div_ceil(SPAN);
        let grid = Grid { blocks: [op.batch * op.heads * spans, tiles, 1], threads: THREADS, shared: 0 };
        let kernel = Kernel::of(MODULE, "delta_rule_sums", io);
        call.gpu.launch(kernel, grid, &args)?;
    }
    let gg = gg.map(|parts| add_parts(call.gpu, parts, shares, io));
    Ok([gq, gk, gg.transpose()?, ga, gb])
}

/// Allocates the gradient of an input, `shares` times, if it is needed.
fn needed(call: LaunchBackward, input: usize, dtype: DType, shares: usize) -> Result<Option<Buffer>> {
    let alloc = || call.gpu.alloc(dtype, shares * call.ins[input].len());
    call.needs_grad[input].then(alloc).transpose()
}

/// The leading arguments of the kernels of the backward pass.
fn inputs_back(call: LaunchBackward) -> Vec<Arg> {
    inputs(call.ins, &[call.only().grad], call.saved.get(2))
}
