//! Linear attention on a GPU, by the kernels of chunked sums: weights that are scores, or scores
//! over their sum.

use super::super::cpu::linear;
use super::super::{CausalAttention, Weights};
use crate::gpu::{Buffer, Gpu, Grid, Kernel, View, WARP};
use crate::runtime::autograd::{Launch, LaunchBackward};
use crate::runtime::chunked::cuda::{Launched, SummedTimes};
use crate::runtime::convert::converted;
use candle_core::{bail, DType, Result};

/// Up to this length, all pairs are computed.
const SHORT: usize = 128;

/// Returns true if the chunked sum applies and costs less than all pairs. Positions on a GPU cannot
/// be checked to ascend, so the chunked sum does not apply to them.
pub(in super::super) fn applies(op: &CausalAttention) -> bool {
    op.positions.is_none() && op.len > SHORT && linear::sums(op).is_some()
}

/// The result; for normalised weights, also the reciprocal normaliser of each row.
pub(super) fn forward(op: &CausalAttention, call: Launch) -> Result<Vec<Buffer>> {
    let (gpu, [q, k, v]) = (call.gpu, inputs(call.ins)?);
    let e = op.value_width;
    if op.weights == Weights::Plain {
        return Ok(vec![sum(op, gpu, [q, k, v], e).forward()?]);
    }
    let io = v.dtype();
    let wide = with_wide_sum(op, gpu, [q, k, v], |sum| sum.forward())?;
    let rows = wide.len() / (e + 1);
    let mut y = gpu.alloc(io, rows * e)?;
    let mut reciprocals = gpu.alloc(DType::F32, rows)?;
    let out = [(&wide).into(), (&mut y).into(), (&mut reciprocals).into()];
    let args = [&out[..], &[rows.into(), e.into()]].concat();
    gpu.launch(kernel("divide", io), Grid::for_each(rows * WARP), &args)?;
    Ok(vec![y, reciprocals])
}

pub(super) fn backward(op: &CausalAttention, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
    let (gpu, [q, k, v], out) = (call.gpu, inputs(call.ins)?, call.only());
    let e = op.value_width;
    if op.weights == Weights::Plain {
        let grads = sum(op, gpu, [q, k, v], e).backward(out.grad)?;
        return Ok([grads.c, grads.b, grads.x].map(Some).into());
    }
    let Some(reciprocals) = call.saved.first() else {
        bail!("{}: the sums of weights were not saved", CausalAttention::OP);
    };
    let (io, rows, count) = (v.dtype(), reciprocals.len(), v.len());
    let mut gy = gpu.alloc(DType::F32, rows * (e + 1))?;
    let read = [out.grad.into(), out.value.into(), reciprocals.into()];
    let args = [&read[..], &[(&mut gy).into(), rows.into(), e.into()]].concat();
    let grid = Grid::for_each(rows * WARP);
    gpu.launch(kernel("divide_back", io), grid, &args)?;
    let grads = with_wide_sum(op, gpu, [q, k, v], |sum| sum.backward(gy.view()))?;
    let mut gv = gpu.alloc(io, count)?;
    let args = [(&grads.x).into(), (&mut gv).into(), count.into(), e.into()];
    gpu.launch(kernel("leave_last", io), Grid::for_each(count), &args)?;
    let narrow = |grad: Buffer| -> Result<Buffer> { Ok(converted(gpu, grad.view(), io)?.unwrap_or(grad)) };
    Ok(vec![Some(narrow(grads.c)?), Some(narrow(grads.b)?), Some(gv)])
}

fn inputs<'a>(ins: &[View<'a>]) -> Result<[View<'a>; 3]> {
    match *ins {
        [q, k, v] => Ok([q, k, v]),
        _ => bail!("{}: {} inputs instead of three", CausalAttention::OP, ins.len()),
    }
}

fn kernel(name: &str, io: DType) -> Kernel {
    Kernel::of("causal_attention_linear", &format!("linear_{name}"), io)
}

/// The values in f32, with a column of ones appended.
fn with_ones(gpu: &Gpu, v: View, width: usize) -> Result<Buffer> {
    let count = v.len() / width * (width + 1);
    let mut wide = gpu.alloc(DType::F32, count)?;
    let args = [v.into(), (&mut wide).into(), count.into(), width.into()];
    let grid = Grid::for_each(count);
    gpu.launch(kernel("append_ones", v.dtype()), grid, &args)?;
    Ok(wide)
}

/// Calls `run` with the chunked sum over q, k and the values with a column of ones, all in f32.
fn with_wide_sum<T>(
    op: &CausalAttention,
    gpu: &Gpu,
    [q, k, v]: [View; 3],
    run: impl FnOnce(Launched) -> Result<T>,
) -> Result<T> {
    let e = op.value_width;
    let [own_q, own_k] = [q, k].map(|x| converted(gpu, x, DType::F32));
    let (own_q, own_k) = (own_q?, own_k?);
    let [q, k] = [(q, &own_q), (k, &own_k)].map(|(x, own)| own.as_ref().map_or(x, Buffer::view));
    let v = with_ones(gpu, v, e)?;
    run(sum(op, gpu, [q, k, v.view()], e + 1))
}

/// The chunked sum of values of some width.
fn sum<'a>(op: &CausalAttention, gpu: &'a Gpu, [q, k, v]: [View<'a>; 3], width: usize) -> Launched<'a> {
    let rows = SummedTimes { count: op.rows, positions: None, shared: 1 };
    Launched {
        gpu,
        sequences: op.batch * op.heads,
        len: op.len,
        channels: width,
        states: op.key_width,
        rows,
        b: k,
        c: q,
        x: v,
        decay: None,
    }
}
