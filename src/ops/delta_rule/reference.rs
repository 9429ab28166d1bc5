//! The reference: a loop over time of ordinary tensor ops.

use crate::runtime::rows::gather_rows;
use candle_core::{Result, Tensor};

pub(super) fn delta_rule([q, k, v, g, a, b]: [&Tensor; 6], rows: Option<&Tensor>) -> Result<Tensor> {
    let (batch, len, heads, keys) = k.dims4()?;
    let values = v.dim(3)?;
    let mut state = Tensor::zeros((batch, heads, keys, values), k.dtype(), k.device())?;
    let mut states = Vec::with_capacity(len);
    for t in 0..len {
        let column = |x: &Tensor| x.narrow(1, t, 1)?.squeeze(1)?.unsqueeze(3); // (B, s, .., 1)
        let projection = column(b)?.broadcast_mul(&state)?.sum_keepdim(2)?;
        let kept = column(g)?.exp()?.broadcast_mul(&state)?;
        let turned = column(a)?.broadcast_mul(&projection)?;
        let written = column(k)?.broadcast_mul(&v.narrow(1, t, 1)?.transpose(1, 2)?)?;
        state = ((kept + turned)? + written)?;
        states.push(state.clone());
    }
    let states = Tensor::stack(&states, 1)?; // (B, L, s, m, e)
    let states = match rows {
        Some(rows) => gather_rows(&states, rows)?,
        None => states,
    };
    states.broadcast_mul(&q.unsqueeze(4)?)?.sum(3)
}
