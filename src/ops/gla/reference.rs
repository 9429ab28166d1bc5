//! The reference: a loop over time of ordinary tensor ops.

use crate::runtime::rows::gather_rows;
use candle_core::{Result, Tensor};

pub(super) fn gla([q, k, v, g]: [&Tensor; 4], rows: Option<&Tensor>) -> Result<Tensor> {
    let (batch, len, heads, keys) = k.dims4()?;
    let values = v.dim(3)?;
    let mut state = Tensor::zeros((batch, heads, keys, values), k.dtype(), k.device())?;
    let mut states = Vec::with_capacity(len);
    for t in 0..len {
        let now = |x: &Tensor| x.narrow(1, t, 1)?.squeeze(1); // (B, s, ..)
        let decay = now(g)?.unsqueeze(3)?.exp()?;
        let written = now(k)?.unsqueeze(3)?.broadcast_mul(&now(v)?.unsqueeze(2)?)?;
        state = (decay.broadcast_mul(&state)? + written)?;
        states.push(state.clone());
    }
    let states = Tensor::stack(&states, 1)?; // (B, L, s, m, e)
    let states = match rows {
        Some(rows) => gather_rows(&states, rows)?,
        None => states,
    };
    states.broadcast_mul(&q.unsqueeze(4)?)?.sum(3)
}
