//! Elman network (Elman 1990), the plain recurrent network: y_t = tanh(W u_t + U y_{t-1} + b).

use super::sequential::{RecurrentGates, Sequential};
use super::{Entry, Family, ReleasedBlock};
use crate::ops::RecurrentCell;

pub(super) const ENTRY: Entry = Entry {
    name: "rnn",
    equation: "y_i = tanh(W u_i + U y_{i-1} + b)",
    cite: "Elman 1990",
    dsf: "no (a tanh around its state)",
    released: ReleasedBlock::RNN,
    stem: "rnn",
    own_init: &["uh", "wh"],
    // Sequential: each step waits for the output of the one before it, so that no throughput of the machine bounds its
    // time.
    work: |_| None,
    build: |spec, params| {
        let gates = RecurrentGates::new(spec.d_model, &["h"], &[], params)?;
        Ok(Box::new(Sequential { gates, cell: RecurrentCell::Elman }))
    },
    ..Entry::of(Family::Recurrent)
};
