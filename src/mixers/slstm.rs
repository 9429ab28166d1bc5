//! sLSTM, the scalar memory of xLSTM (Beck et al. 2024): an LSTM with an exponential input gate and a normaliser.

use super::matrix_state::log_sigmoid;
use super::sequential::{part, Cell, Gates, Sequential};
use super::{Entry, Family, Gradient, ReleasedBlock};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "slstm",
    equation: "c_i = f c_{i-1} + e^a tanh(z), n_i = f n_{i-1} + e^a, y_i = o c_i/n_i",
    cite: "Beck et al. 2024",
    dsf: "no (gates read y_{i-1})",
    released: ReleasedBlock::RNN,
    stem: "slstm",
    own_init: &["bf", "uf", "ui", "uo", "uz", "wf", "wi", "wo", "wz"],
    gradient: &[("bi", Gradient::Cancels)],
    // Each step waits for the output of the step before it: no rate of the machine bounds that.
    work: |_| None,
    build: |spec, params| {
        let gates = Gates::new(spec.d_model, &["z", "f", "i", "o"], &[("f", 3.0)], params)?;
        Ok(Box::new(Sequential(SLstm(gates))))
    },
    ..Entry::of(Family::Recurrent)
};

/// Gates in the order (input candidate, forget, input, output).
struct SLstm(Gates);

/// What stands for the logarithm of nothing.
const NOTHING: f64 = -1e30;

impl Cell for SLstm {
    /// y; the memory and its normaliser, both divided by e^m; and m, the largest exponent so far.
    const STATES: usize = 4;

    fn gates(&self) -> &Gates {
        &self.0
    }

    fn start(&self, index: usize) -> f64 {
        if index == 3 {
            NOTHING
        } else {
            0.0
        }
    }

    fn advance(&self, input: &Tensor, output: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
        let z = (input + output)?;
        let gate = |i: usize| part(&z, i, &state[0]);
        let [_, memory, norm, m] = state else {
            unreachable!("there are four tensors of state");
        };
        let (kept, written) = ((log_sigmoid(&gate(1)?)? + m)?, gate(2)?);
        // Any m gives the same output: it has no gradient.
        let m = kept.detach().maximum(&written.detach())?;
        let (kept, written) = ((kept - &m)?.exp()?, (written - &m)?.exp()?);
        let memory = ((memory * &kept)? + (&written * ops::tanh(&gate(0)?)?)?)?;
        let norm = ((norm * kept)? + written)?;
        let y = (ops::sigmoid(&gate(3)?)? * (&memory / &norm)?)?;
        Ok(vec![y, memory, norm, m])
    }
}
