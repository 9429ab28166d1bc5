//! The reference: a loop over time of ordinary tensor ops.

use candle_core::{Result, Tensor, D};

pub(super) fn ssd([u, delta, a, b, c]: [&Tensor; 5], positions: Option<&Tensor>) -> Result<Tensor> {
    let (batch, len, channels) = u.dims3()?;
    let decay = delta.broadcast_mul(a)?.exp()?;
    let drive = (delta * u)?;
    let mut h = Tensor::zeros((batch, channels, b.dim(2)?), u.dtype(), u.device())?;
    let mut y = Vec::with_capacity(len);
    for t in 0..len {
        let column = |x: &Tensor| x.narrow(1, t, 1)?.transpose(1, 2); // (B, d, 1)
        let written = column(&drive)?.broadcast_mul(&b.narrow(1, t, 1)?)?;
        h = (column(&decay)?.broadcast_mul(&h)? + written)?;
        y.push(match positions {
            None => h.broadcast_mul(&c.narrow(1, t, 1)?)?.sum(2)?,
            // Every row reads every state, and keeps the read-out at its own time.
            Some(positions) => {
                let now = positions.eq(t as u32)?.to_dtype(u.dtype())?;
                let read = c.matmul(&h.transpose(1, 2)?.contiguous()?)?; // (B, R, d)
                read.broadcast_mul(&now.unsqueeze(D::Minus1)?)?
            }
        });
    }
    let y = Tensor::stack(&y, 1)?;
    match positions {
        None => Ok(y),
        Some(_) => y.sum(1),
    }
}
