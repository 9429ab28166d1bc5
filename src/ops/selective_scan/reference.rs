//! The reference: a loop over time of ordinary tensor ops.

use super::{SelectiveScan, StepRule};
use crate::pointwise::reference::phi1;
use crate::runtime::rows::flat_rows;
use candle_core::{Result, Tensor};

pub(super) fn selective_scan(ins: [&Tensor; 5], scan: &SelectiveScan) -> Result<Tensor> {
    let [u, delta, a, b, c] = ins;
    let (batch, len, channels, states) = (scan.batch, scan.len, scan.channels, scan.states);
    let rows = match &scan.positions {
        Some(positions) => flat_rows(positions, len)?,
        None => Tensor::arange(0, (batch * len) as u32, u.device())?,
    };
    let c = Tensor::zeros((batch * len, states), u.dtype(), u.device())?
        .index_add(&rows, &c.reshape(((), states))?, 0)?
        .reshape((batch, len, states))?;
    let a = a.to_dtype(u.dtype())?.unsqueeze(0)?; // (1, d, n)
    let mut h = Tensor::zeros((batch, channels, states), u.dtype(), u.device())?;
    let mut y = Vec::with_capacity(len);
    for t in 0..len {
        let column = |x: &Tensor| x.narrow(1, t, 1)?.transpose(1, 2); // (B, d, 1)
        let delta_t = column(delta)?;
        let x = delta_t.broadcast_mul(&a)?;
        let [decay, scale] = match scan.rule {
            StepRule::Euler => [x.exp()?, delta_t.clone()],
            StepRule::Hold => [x.exp()?, phi1(&x)?.broadcast_mul(&delta_t)?],
            StepRule::Bilinear => {
                let denominator = (1.0 - (&x / 2.0)?)?;
                [((1.0 + (&x / 2.0)?)? / &denominator)?, denominator.recip()?.broadcast_mul(&delta_t)?]
            }
        };
        let drive = scale.broadcast_mul(&column(u)?)?.broadcast_mul(&b.narrow(1, t, 1)?)?;
        h = (decay.broadcast_mul(&h)? + drive)?;
        y.push(h.broadcast_mul(&c.narrow(1, t, 1)?)?.sum(2)?);
    }
    let y = Tensor::stack(&y, 1)?.reshape(((), channels))?;
    y.index_select(&rows, 0)?.reshape((batch, scan.rows, channels))
}
