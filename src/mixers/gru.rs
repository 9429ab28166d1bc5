//! The gated recurrent unit (Cho et al. 2014), its reset gate behind the recurrent map as in cuDNN and PyTorch.

use super::sequential::{part, Cell, Gates, Sequential};
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
    // Each step waits for the output of the step before it: no rate of the machine bounds that.
    work: |_| None,
    build: |spec, params| Ok(Box::new(Sequential(Gru::new(spec.d_model, params)?))),
    ..Entry::of(Family::Recurrent)
};

struct Gru {
    /// In the order (reset, update, candidate).
    gates: Gates,
    /// Inside the reset, `(d)`.
    c: Tensor,
}

impl Gru {
    fn new(d: usize, params: &Params) -> Result<Self> {
        Ok(Self {
            gates: Gates::new(d, &["r", "z", "n"], &[], params)?,
            c: params.bias("c", d, d)?,
        })
    }
}

impl Cell for Gru {
    const STATES: usize = 1;

    fn gates(&self) -> &Gates {
        &self.gates
    }

    fn advance(&self, input: &Tensor, output: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
        let y = &state[0];
        let gate = |i: usize| ops::sigmoid(&(part(input, i, y)? + part(output, i, y)?)?);
        let (reset, update) = (gate(0)?, gate(1)?);
        let past = (reset * part(output, 2, y)?.broadcast_add(&self.c.to_dtype(y.dtype())?)?)?;
        let candidate = ops::tanh(&(part(input, 2, y)? + past)?)?;
        Ok(vec![(&candidate + (update * (y - &candidate)?)?)?])
    }
}
