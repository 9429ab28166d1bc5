//! The selective scan, with a diagonal transition that depends on the input: S6, Mamba, the
//! released SSD.

mod cpu;
pub(crate) mod cuda;
mod reference;
mod rule;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};
pub use rule::StepRule;

/// y_t\[c\] = Σ_k h_t\[c,k\] c_t\[k\] with
/// h_t\[c,k\] = exp(δ_t\[c\] a\[c,k\]) h_{t-1}\[c,k\] + δ_t\[c\] u_t\[c\] b_t\[k\].
///
/// `u`, `delta`: (B, L, d); `a`: (d, n); `b`: (B, L, n); `c`: (B, R, n); result (B, R, d). Equation
/// (4) without the skip, and h_{-1} = 0. `positions`: (B, R) of u32, ascending and below L, the
/// time of each row of `c` and of the result; without it R = L and row i is at time i. The decay
/// must not grow: δ a <= 0; a decay below 2^-126 counts as 0 in f32. No (B, L, d, n) tensor is
/// stored in either pass; a tracked forward pass saves a 64th of one, on a GPU a sixteenth. There
/// `a` is f32 for any type of the other inputs.
pub fn selective_scan(
    u: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    b: &Tensor,
    c: &Tensor,
    positions: Option<&Tensor>,
) -> Result<Tensor> {
    discretised_scan(StepRule::Euler, [u, delta, a, b, c], positions)
}

/// [`selective_scan`] of `[u, delta, a, b, c]` under another [`StepRule`]: h_t\[c,k\] = ā h_{t-1}\[c,k\] +
/// b̄ u_t\[c\] b_t\[k\] with the ā and b̄ of δ_t\[c\] and a\[c,k\] by the rule.
pub fn discretised_scan(rule: StepRule, ins: [&Tensor; 5], positions: Option<&Tensor>) -> Result<Tensor> {
    let scan = SelectiveScan { rule, ..SelectiveScan::check(ins, positions)? };
    apply_or(scan, &ins, |scan| reference::selective_scan(ins, scan))
}

/// The sizes: batch, length, channels, states per channel, rows read out.
struct SelectiveScan {
    rule: StepRule,
    batch: usize,
    len: usize,
    channels: usize,
    states: usize,
    rows: usize,
    /// The time of each row: one list for all sequences, or one per sequence. Empty for positions
    /// on a GPU.
    times: Vec<usize>,
    /// The positions as given.
    positions: Option<Tensor>,
    /// Steps per chunk of the kernels; `None` for a choice by the shapes.
    chunk: Option<usize>,
    /// True if the channels of a sequence are divided among several tasks.
    split: bool,
}

impl SelectiveScan {
    const OP: &'static str = "selective_scan";

    fn check([u, delta, a, b, c]: [&Tensor; 5], positions: Option<&Tensor>) -> Result<Self> {
        let [batch, len, channels] = shape::dims(Self::OP, ("u", u))?;
        let [_, _, states] = shape::dims(Self::OP, ("b", b))?;
        let by = ("u", u);
        shape::expect(Self::OP, ("delta", delta), by, &[batch, len, channels])?;
        shape::expect(Self::OP, ("b", b), by, &[batch, len, states])?;
        shape::parameter(Self::OP, ("a", a), ("b", b), &[channels, states])?;
        let rows = match positions {
            Some(_) => shape::dims::<3>(Self::OP, ("c", c))?[1],
            None => len,
        };
        shape::expect(Self::OP, ("c", c), ("b", b), &[batch, rows, states])?;
        let times = match positions {
            Some(positions) => shape::ascending(Self::OP, positions, ("c", [batch, rows]), ("u", len), 1)?,
            None => (0..len).collect(),
        };
        Ok(Self {
            rule: StepRule::Euler,
            batch,
            len,
            channels,
            states,
            rows,
            times,
            positions: positions.map(Tensor::contiguous).transpose()?,
            chunk: None,
            split: batch < rayon::current_num_threads().min(cpu::TASKS),
        })
    }

    /// The times of the rows of a sequence.
    fn times_of(&self, sequence: usize) -> &[usize] {
        let lists = self.times.len() / self.rows;
        &self.times[sequence.min(lists - 1) * self.rows..][..self.rows]
    }
}

impl Op for SelectiveScan {
    const NAME: &'static str = Self::OP;

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.rows, self.channels).into()]
    }
}

#[cfg(test)]
mod tests;
