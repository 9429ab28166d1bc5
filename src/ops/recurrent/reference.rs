//! Definition in ordinary tensor ops.

use super::RecurrentCell;
use crate::linear::linear;
use crate::pointwise::{sigmoid, softplus, tanh};
use crate::time_steps::time_steps;
use candle_core::{Result, Tensor};

pub(super) fn recurrent(wu: &Tensor, u: &Tensor, cell: &RecurrentCell) -> Result<Tensor> {
    let mut state = cell.init((wu.dim(0)?, u.dim(1)?), wu)?;
    let mut ys = Vec::with_capacity(wu.dim(1)?);
    for wu in time_steps(wu)? {
        state = step(cell, &wu, &linear(&state[0], u, None)?, &state)?;
        ys.push(state[0].clone());
    }
    Tensor::stack(&ys, 1)
}

pub(super) fn step(cell: &RecurrentCell, wu: &Tensor, uy: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
    match cell {
        RecurrentCell::Linear => Ok(vec![(wu + uy)?]),
        RecurrentCell::Elman => Ok(vec![tanh(&(wu + uy)?)?]),
        RecurrentCell::Gru { bias } => gru(wu, uy, bias, &state[0]),
        RecurrentCell::Lstm => lstm(&(wu + uy)?, &state[1]),
        RecurrentCell::SLstm => slstm(&(wu + uy)?, &state[1..]),
    }
}

/// Pre-activation `(batch, d)` of gate `index` of all gates' `(batch, gates · d)`.
fn gate(gates: &Tensor, index: usize, width: usize) -> Result<Tensor> {
    gates.narrow(1, index * width, width)
}

fn gru(wu: &Tensor, uy: &Tensor, bias: &Tensor, y: &Tensor) -> Result<Vec<Tensor>> {
    let width = y.dim(1)?;
    let sum = |i: usize| gate(wu, i, width)? + gate(uy, i, width)?;
    let (r, z) = (sigmoid(&sum(0)?)?, sigmoid(&sum(1)?)?);
    let un_y = gate(uy, 2, width)?.broadcast_add(&bias.to_dtype(y.dtype())?)?;
    let n = tanh(&(gate(wu, 2, width)? + (r * un_y)?)?)?;
    Ok(vec![(&n + (z * (y - &n)?)?)?])
}

fn lstm(z: &Tensor, x: &Tensor) -> Result<Vec<Tensor>> {
    let z = |i: usize| gate(z, i, x.dim(1)?);
    let f_x = (sigmoid(&z(1)?)? * x)?;
    let x = (f_x + (sigmoid(&z(2)?)? * tanh(&z(0)?)?)?)?;
    let y = (sigmoid(&z(3)?)? * tanh(&x)?)?;
    Ok(vec![y, x])
}

fn slstm(z: &Tensor, states: &[Tensor]) -> Result<Vec<Tensor>> {
    let [c, n, m] = states else {
        candle_core::bail!("recurrent: {} states beside y, needed are c, n and m", states.len());
    };
    let z = |i: usize| gate(z, i, c.dim(1)?);
    let log_sigmoid = |x: Tensor| softplus(&x.neg()?)?.neg();
    let (log_f, log_i) = ((log_sigmoid(z(1)?)? + m)?, z(2)?);
    // y does not depend on m, which therefore needs no gradient.
    let m = log_f.detach().maximum(&log_i.detach())?;
    let (f, i) = ((log_f - &m)?.exp()?, (log_i - &m)?.exp()?);
    let c = ((c * &f)? + (&i * tanh(&z(0)?)?)?)?;
    let n = ((n * f)? + i)?;
    let y = (sigmoid(&z(3)?)? * (&c / &n)?)?;
    Ok(vec![y, c, n, m])
}
