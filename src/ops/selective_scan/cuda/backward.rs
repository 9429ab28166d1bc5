//! Launches of the backward pass.

use super::super::{SelectiveScan, StepRule};
use super::{named, starts, Blocks, Way};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::runtime::autograd::LaunchBackward;
use crate::runtime::sums::{add_parts, sum_parts};
use candle_core::{DType, Result};

const MODULE: &str = "selective_scan_backward";

/// Partial sums of the gradients that are needed.
struct Parts {
    /// The sums over states of the gradients that reach δ through a and through δ u: (blocks along
    /// states, B, L, d).
    along_a: Option<Buffer>,
    along_b: Option<Buffer>,
    /// (blocks along channels, B, L, n) and (blocks along channels, B, R, n).
    b: Option<Buffer>,
    c: Option<Buffer>,
    /// (B chunks, d, n).
    a: Option<Buffer>,
}

impl Parts {
    fn new(scan: &SelectiveScan, gpu: &Gpu, blocks: &Blocks, needs_grad: &[bool]) -> Result<Self> {
        let alloc = |needs_grad: bool, count: usize| {
            let buffer = needs_grad.then(|| gpu.alloc(DType::F32, count));
            buffer.transpose()
        };
        let steps = scan.batch * scan.len;
        let along = blocks.along_states * steps * scan.channels;
        let of_rows = blocks.along_channels * scan.states;
        let of_a = scan.batch * blocks.chunks * scan.channels * scan.states;
        Ok(Self {
            along_a: alloc(needs_grad[1], along)?,
            along_b: alloc(needs_grad[0] || needs_grad[1], along)?,
            b: alloc(needs_grad[3], of_rows * steps)?,
            c: alloc(needs_grad[4], of_rows * scan.batch * scan.rows)?,
            a: alloc(needs_grad[2], of_a)?,
        })
    }

    fn args(&mut self) -> [Arg<'_>; 5] {
        let Self { along_a, along_b, b, c, a } = self;
        [along_a, along_b, b, c, a].map(|part| part.as_mut().into())
    }
}

/// The gradients of u, δ, a, b and c.
pub(super) fn backward(scan: &SelectiveScan, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
    let (gpu, gy) = (call.gpu, call.only().grad);
    let [u, delta, a, b, c] = *call.ins else { unreachable!("five inputs") };
    let (io, blocks) = (u.dtype(), Blocks::backward(scan));
    let [kept, rows @ ..] = call.saved else { unreachable!("the forward pass kept states") };
    let rows = || Arg::from(rows.first().map(Buffer::view));
    let carries = {
        let ends = Blocks::forward(scan).cut_as(&blocks);
        let ins = [gy.into(), delta.into(), a.into(), c.into(), rows()];
        starts((scan, gpu, &ends), io, a, Way::Back, &ins)?
    };
    let mut parts = Parts::new(scan, gpu, &blocks, call.needs_grad)?;
    let ins = [u.into(), delta.into(), a.into(), b.into(), c.into(), gy.into()];
    let states = [rows(), kept.into(), carries.as_ref().map(Buffer::view).into()];
    let args = [&ins[..], &states, &parts.args(), &blocks.sizes(scan)].concat();
    gpu.launch(Kernel::of(MODULE, &named("walk_back", scan.rule), io), blocks.grid(scan), &args)?;
    let add = |parts: Option<Buffer>| {
        let sum = parts.map(|parts| add_parts(gpu, parts, blocks.along_channels, io));
        sum.transpose()
    };
    let (b, c) = (add(parts.b.take())?, add(parts.c.take())?);
    let size = scan.channels * scan.states;
    let a = parts.a.take().map(|parts| sum_parts(gpu, &parts, size)).transpose()?;
    let [u, delta] = along((scan.rule, gpu), [u, delta], &parts, &blocks, call.needs_grad)?;
    Ok(vec![u, delta, a, b, c])
}

/// The gradients of u and δ.
fn along(
    (rule, gpu): (StepRule, &Gpu),
    [u, delta]: [View; 2],
    parts: &Parts,
    blocks: &Blocks,
    needs_grad: &[bool],
) -> Result<[Option<Buffer>; 2]> {
    let Some(along_b) = &parts.along_b else {
        return Ok([None, None]);
    };
    let alloc = |needs_grad: bool| needs_grad.then(|| gpu.alloc(u.dtype(), u.len())).transpose();
    let (mut gu, mut gdelta) = (alloc(needs_grad[0])?, alloc(needs_grad[1])?);
    let along_a = parts.along_a.as_ref().map(Buffer::view);
    let args = [
        u.into(),
        delta.into(),
        along_a.into(),
        along_b.into(),
        gu.as_mut().into(),
        gdelta.as_mut().into(),
        blocks.along_states.into(),
        u.len().into(),
    ];
    let name = if rule == StepRule::Euler { "along" } else { "along_by_state" };
    let kernel = Kernel::of(MODULE, name, u.dtype());
    gpu.launch(kernel, Grid::for_each(u.len()), &args)?;
    Ok([gu, gdelta])
}
