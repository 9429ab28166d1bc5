//! The definition: a loop over time in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(super) fn selective_scan(
    u: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
) -> Result<Tensor> {
    let (batch, len, channels) = u.dims3()?;
    let states = b.dim(2)?;
    let a = a.unsqueeze(0)?; // (1, d, n or 1)
    let mut h = Tensor::zeros((batch, channels, states), u.dtype(), u.device())?;
    let mut y = Vec::with_capacity(len);
    for t in 0..len {
        let column = |x: &Tensor| x.narrow(1, t, 1)?.transpose(1, 2); // (B, d, 1)
        let delta_t = column(delta)?;
        let decay = delta_t.broadcast_mul(&a)?.exp()?;
        let drive = (&delta_t * column(u)?)?.broadcast_mul(&b.narrow(1, t, 1)?)?;
        h = (decay.broadcast_mul(&h)? + drive)?;
        y.push(h.broadcast_mul(&c.narrow(1, t, 1)?)?.sum(2)?);
    }
    Tensor::stack(&y, 1)
}
