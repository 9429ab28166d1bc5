//! LSTM (5) to (7); Hochreiter & Schmidhuber 1997,
//!
//! x_t = f_t ⊙ x_{t-1} + i_t ⊙ tanh(W_u u_t + U_u y_{t-1} + b_u),  y_t = o_t ⊙ tanh(x_t)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | x, y | cell state and output | `(batch, d)` |
//! | f, i, o | forget, input and output gate, σ(W u_t + U y_{t-1} + b) each | `(batch, d)` |

use super::sequential::{RecurrentGates, Sequential};
use super::{Entry, Family, ReleasedBlock};
use crate::ops::RecurrentCell;

pub(super) const ENTRY: Entry = Entry {
    name: "lstm",
    equation: "x_i = f x_{i-1} + i tanh(W u_i + U y_{i-1}), y_i = o tanh(x_i)",
    cite: "(5)-(7)",
    dsf: "no (gates read y_{i-1})",
    released: ReleasedBlock::RNN,
    stem: "lstm",
    own_init: &["bf", "uf", "ui", "uo", "uu", "wf", "wi", "wo", "wu"],
    // Sequential: each step waits for the output of the one before it, so that no throughput of the machine bounds its
    // time.
    work: |_| None,
    build: |spec, params| {
        // A forget bias of 1 keeps the initial gate open (Jozefowicz et al. 2015).
        let gates = RecurrentGates::new(spec.d_model, &["u", "f", "i", "o"], &[("f", 1.0)], params)?;
        Ok(Box::new(Sequential { gates, cell: RecurrentCell::Lstm }))
    },
    ..Entry::of(Family::Recurrent)
};
