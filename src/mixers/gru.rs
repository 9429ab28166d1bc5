//! Gated recurrent unit (Cho et al. 2014), with the reset gate applied after the recurrent map as in cuDNN and PyTorch,
//!
//! n_t = tanh(W_n u_t + r_t ⊙ (U_n y_{t-1} + c) + b_n),  y_t = (1 - z_t) ⊙ n_t + z_t ⊙ y_{t-1}
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | r, z | reset and update gate, σ(W u_t + U y_{t-1} + b) each | `(batch, d)` |
//! | n | candidate state | `(batch, d)` |

use super::sequential::{RecurrentGates, Sequential};
use super::{Entry, Family, ReleasedBlock};
use crate::ops::RecurrentCell;

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
    build: |spec, params| {
        let d = spec.d_model;
        let gates = RecurrentGates::new(d, &["r", "z", "n"], &[], params)?;
        Ok(Box::new(Sequential { gates, cell: RecurrentCell::Gru { bias: params.bias("c", d, d)? } }))
    },
    ..Entry::of(Family::Recurrent)
};
