//! The plain recurrent network (Elman 1990).

use super::sequential::{Cell, Gates, Sequential};
use super::{Entry, Family, ReleasedBlock};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "rnn",
    equation: "y_i = tanh(W u_i + U y_{i-1} + b)",
    cite: "Elman 1990",
    dsf: "no (a tanh around its state)",
    released: ReleasedBlock::RNN,
    stem: "rnn",
    own_init: &["uh", "wh"],
    // Each step waits for the output of the step before it: no rate of the machine bounds that.
    work: |_| None,
    build: |spec, params| {
        let gates = Gates::new(spec.d_model, &["h"], &[], params)?;
        Ok(Box::new(Sequential(Rnn(gates))))
    },
    ..Entry::of(Family::Recurrent)
};

struct Rnn(Gates);

impl Cell for Rnn {
    const STATES: usize = 1;

    fn gates(&self) -> &Gates {
        &self.0
    }

    fn advance(&self, input: &Tensor, output: &Tensor, _state: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![ops::tanh(&(input + output)?)?])
    }
}
