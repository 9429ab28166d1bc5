//! Definition in ordinary tensor ops.

use super::{table, Positions};
use candle_core::{Result, Tensor, D};

pub(super) fn rotary(x: &Tensor, heads: usize, dims: usize, base: f64, positions: &Positions) -> Result<Tensor> {
    let (batch, rows, channels) = x.dims3()?;
    let positions = positions.known()?;
    let angles = Tensor::from_vec(table::<f64>(&positions, dims, base), ((), rows, 1, dims), x.device())?;
    let angles = angles.to_dtype(x.dtype())?;
    let half = dims / 2;
    let (cos, sin) = (angles.narrow(3, 0, half)?, angles.narrow(3, half, half)?);
    let x = x.reshape((batch, rows, heads, channels / heads))?;
    let (a, b) = (x.narrow(3, 0, half)?, x.narrow(3, half, half)?);
    let rotated_a = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let rotated_b = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    let mut parts = vec![rotated_a, rotated_b];
    if dims < channels / heads {
        parts.push(x.narrow(3, dims, channels / heads - dims)?);
    }
    Tensor::cat(&parts, D::Minus1)?.reshape((batch, rows, channels))
}
