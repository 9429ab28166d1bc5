//! The selective scan in which all states of a channel share one decay: SSD, Mamba-2.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::chunked::{Chunked, Times};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// y_t\[c\] = Σ_k h_t\[c,k\] c_t\[k\] with
/// h_t\[c,k\] = exp(δ_t\[c\] a\[c\]) h_{t-1}\[c,k\] + δ_t\[c\] u_t\[c\] b_t\[k\].
///
/// `u`, `delta`: (B, L, d); `a`: (d); `b`: (B, L, n); `c`: (B, L, n), result (B, L, d). With
/// `positions`, (B, R) of u32 that ascend within each sequence, `c` is (B, R, n) at these steps,
/// and the result (B, R, d). This is [`selective_scan`](crate::selective_scan()) with one decay per
/// channel, computed by matrix products: Dao & Gu 2024, with the decay inside each channel. The
/// decay must not grow: δ a <= 0. Beyond 64 steps, either pass stores one state per 64 steps, for
/// as many sequences as fit into a fixed amount of memory.
pub fn ssd(
    u: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    positions: Option<&Tensor>,
) -> Result<Tensor> {
    let ins = [u, delta, a, b, c];
    let op = Ssd::check(ins, positions)?;
    apply_or(op, &ins, |_| reference::ssd(ins, positions))
}

struct Ssd {
    sums: Chunked,
    /// The times of the rows, for kernels.
    positions: Option<Tensor>,
}

impl Ssd {
    const OP: &'static str = "ssd";

    fn check([u, delta, a, b, c]: [&Tensor; 5], positions: Option<&Tensor>) -> Result<Self> {
        let [batch, len, channels] = shape::dims(Self::OP, ("u", u))?;
        let [_, _, states] = shape::dims(Self::OP, ("b", b))?;
        let [_, rows, _] = shape::dims(Self::OP, ("c", c))?;
        let times = match positions {
            Some(positions) => {
                let (by, of) = (("c", [batch, rows]), ("u", len));
                let times = shape::ascending(Self::OP, positions, by, of, 0)?;
                Times::lists(times, rows, 1)
            }
            None => Times::all(len),
        };
        let by = ("u", u);
        shape::expect(Self::OP, ("delta", delta), by, &[batch, len, channels])?;
        shape::parameter(Self::OP, ("a", a), by, &[channels])?;
        shape::expect(Self::OP, ("b", b), by, &[batch, len, states])?;
        shape::expect(Self::OP, ("c", c), ("b", b), &[batch, times.rows, states])?;
        let sums = Chunked { sequences: batch, len, channels, states, times };
        let positions = positions.map(Tensor::contiguous).transpose()?;
        Ok(Self { sums, positions })
    }
}

impl Op for Ssd {
    const NAME: &'static str = Self::OP;

    fn out_shapes(&self) -> Vec<Shape> {
        let op = &self.sums;
        vec![(op.sequences, op.times.rows, op.channels).into()]
    }
}

#[cfg(test)]
mod tests;
