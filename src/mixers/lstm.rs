//! The LSTM (5) to (7).

use super::sequential::{part, Cell, Gates, Sequential};
use super::{Entry, Family, ReleasedBlock};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "lstm",
    equation: "x_i = f x_{i-1} + i tanh(W u_i + U y_{i-1}), y_i = o tanh(x_i)",
    cite: "(5)-(7)",
    dsf: "no (gates read y_{i-1})",
    released: ReleasedBlock::RNN,
    stem: "lstm",
    own_init: &["bf", "uf", "ui", "uo", "uu", "wf", "wi", "wo", "wu"],
    // Each step waits for the output of the step before it: no rate of the machine bounds that.
    work: |_| None,
    build: |spec, params| {
        // A forget bias of 1 lets the state live from the start (Jozefowicz et al. 2015).
        let gates = Gates::new(spec.d_model, &["u", "f", "i", "o"], &[("f", 1.0)], params)?;
        Ok(Box::new(Sequential(Lstm(gates))))
    },
    ..Entry::of(Family::Recurrent)
};

/// Gates in the order (input candidate, forget, input, output).
struct Lstm(Gates);

impl Cell for Lstm {
    /// y and x.
    const STATES: usize = 2;

    fn gates(&self) -> &Gates {
        &self.0
    }

    fn advance(&self, input: &Tensor, output: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
        let z = (input + output)?;
        let gate = |i: usize| part(&z, i, &state[0]);
        let kept = (ops::sigmoid(&gate(1)?)? * &state[1])?;
        let x = (kept + (ops::sigmoid(&gate(2)?)? * ops::tanh(&gate(0)?)?)?)?;
        let y = (ops::sigmoid(&gate(3)?)? * ops::tanh(&x)?)?;
        Ok(vec![y, x])
    }
}
