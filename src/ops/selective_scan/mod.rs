//! The scan with a diagonal transition that depends on the input: S6, Mamba, the released SSD.

mod backward;
mod cpu;
mod reference;

use super::fused::{apply_one, runs_on, Backward, Forward, FusedOp};
use super::{float::Float, shape};
use candle_core::{bail, Result, Shape, Tensor};

/// y_t\[c\] = Σ_k h_t\[c,k\] c_t\[k\] with h_t\[c,k\] = exp(δ_t\[c\] a\[c,k\]) h_{t-1}\[c,k\] + δ_t\[c\] u_t\[c\] b_t\[k\].
///
/// `u`, `delta`: (B, L, d); `a`: (d, n), or (d, 1) when the n states of a channel share a decay;
/// `b`, `c`: (B, L, n); result (B, L, d). Equation (4) without the skip, and h_{-1} = 0. The decay
/// must not grow: δ a <= 0. No (B, L, d, n) tensor is formed in either direction.
pub fn selective_scan(
    u: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
) -> Result<Tensor> {
    let scan = SelectiveScan::check(u, delta, a, b, c)?;
    if runs_on(u) {
        apply_one(scan, &[u, delta, a, b, c])
    } else {
        reference::selective_scan(u, delta, a, b, c)
    }
}

/// The sizes: batch, length, channels, states per channel, decays per channel (1 or `states`).
#[derive(Clone, Copy)]
struct SelectiveScan {
    batch: usize,
    len: usize,
    channels: usize,
    states: usize,
    decays: usize,
}

impl SelectiveScan {
    const OP: &'static str = "selective_scan";

    fn check(u: &Tensor, delta: &Tensor, a: &Tensor, b: &Tensor, c: &Tensor) -> Result<Self> {
        let [batch, len, channels] = shape::dims(Self::OP, ("u", u))?;
        let [_, _, states] = shape::dims(Self::OP, ("b", b))?;
        let [_, decays] = shape::dims(Self::OP, ("a", a))?;
        if decays != 1 && decays != states {
            bail!(
                "{}: a has shape {:?}, but b of shape {:?} asks for 1 or {states} columns",
                Self::OP,
                a.dims(),
                b.dims()
            );
        }
        let by = ("u", u);
        shape::expect(Self::OP, ("delta", delta), by, &[batch, len, channels])?;
        shape::expect(Self::OP, ("a", a), by, &[channels, decays])?;
        shape::expect(Self::OP, ("b", b), by, &[batch, len, states])?;
        shape::expect(Self::OP, ("c", c), ("b", b), &[batch, len, states])?;
        Ok(Self {
            batch,
            len,
            channels,
            states,
            decays,
        })
    }
}

impl FusedOp for SelectiveScan {
    const NAME: &'static str = Self::OP;

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.len, self.channels).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![cpu::forward(self, ins)]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        backward::backward(self, call.ins, call.only().grad)
    }
}

#[cfg(test)]
mod tests;
