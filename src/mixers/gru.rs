//! Gated recurrent unit (Cho et al. 2014), with the reset gate applied after the recurrent map as in cuDNN and PyTorch,
//!
//! n_t = tanh(W_n u_t + r_t ⊙ (U_n y_{t-1} + c) + b_n),  y_t = (1 - z_t) ⊙ n_t + z_t ⊙ y_{t-1}
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | r, z | reset and update gate, σ(W u_t + U y_{t-1} + b) each | `(batch, d)` |
//! | n | candidate state | `(batch, d)` |

use super::sequential::{gate, RecurrentCell, RecurrentGates, Sequential};
use super::{Entry, Family, ReleasedBlock};
use crate::nn::Params;
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "gru",
    equation: "y_i = z y_{i-1} + (1-z) tanh(W u_i + r (U y_{i-1} + c))",
    cite: "Cho et al. 2014",
    dsf: "no (gates read y_{i-1})",
    released: ReleasedBlock::RNN,
    stem: "gru",
    own_init: &["un", "ur", "uz", "wn", "wr", "wz"],
    // Sequential: each step waits for the output of the one before it, so that no throughput of the machine bounds its
    // time.
    work: |_| None,
    build: |spec, params| Ok(Box::new(Sequential(Gru::new(spec.d_model, params)?))),
    ..Entry::of(Family::Recurrent)
};

struct Gru {
    /// Gates in the order r, z, n.
    gates: RecurrentGates,
    /// Bias of the recurrent map to n, `(d)`.
    c: Tensor,
}

impl Gru {
    fn new(d: usize, params: &Params) -> Result<Self> {
        Ok(Self { gates: RecurrentGates::new(d, &["r", "z", "n"], &[], params)?, c: params.bias("c", d, d)? })
    }
}

impl RecurrentCell for Gru {
    const STATES: usize = 1;

    fn gates(&self) -> &RecurrentGates {
        &self.gates
    }

    fn step(&self, wu: &Tensor, uy: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
        let y = &state[0];
        let sigmoid_gate = |i: usize| ops::sigmoid(&(gate(wu, i, y)? + gate(uy, i, y)?)?);
        let (r, z) = (sigmoid_gate(0)?, sigmoid_gate(1)?);
        let un_y = gate(uy, 2, y)?.broadcast_add(&self.c.to_dtype(y.dtype())?)?;
        let n = ops::tanh(&(gate(wu, 2, y)? + (r * un_y)?)?)?;
        Ok(vec![(&n + (z * (y - &n)?)?)?])
    }
}
