//! sLSTM, the scalar memory of xLSTM (Beck et al. 2024): an LSTM with an exponential input gate and a normaliser state,
//!
//! c_t = f_t c_{t-1} + i_t tanh(z_t),  n_t = f_t n_{t-1} + i_t,  y_t = o_t c_t / n_t
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | c, n | memory and normaliser, both divided by e^m | `(batch, d)` |
//! | f, i, o | forget gate σ(·), input gate e^(·), output gate σ(·) of W u_t + U y_{t-1} + b | `(batch, d)` |
//! | m | stabiliser: the largest exponent so far, which cancels in y | `(batch, d)` |

use super::matrix_state::log_sigmoid;
use super::sequential::{gate, RecurrentCell, RecurrentGates, Sequential};
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
    // Sequential: each step waits for the output of the one before it, so that no throughput of the machine bounds its
    // time.
    work: |_| None,
    build: |spec, params| {
        let gates = RecurrentGates::new(spec.d_model, &["z", "f", "i", "o"], &[("f", 3.0)], params)?;
        Ok(Box::new(Sequential(SLstm(gates))))
    },
    ..Entry::of(Family::Recurrent)
};

/// Gates in the order z, f, i, o.
struct SLstm(RecurrentGates);

/// Finite stand-in for ln 0.
const LOG_ZERO: f64 = -1e30;

impl RecurrentCell for SLstm {
    /// y, c, n and m.
    const STATES: usize = 4;

    fn gates(&self) -> &RecurrentGates {
        &self.0
    }

    fn initial(&self, index: usize) -> f64 {
        initial(index)
    }

    fn step(&self, wu: &Tensor, uy: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
        step(wu, uy, state)
    }
}

/// Initial value of y, c, n or m.
pub(super) fn initial(index: usize) -> f64 {
    if index == 3 {
        LOG_ZERO
    } else {
        0.0
    }
}

/// Next y, c, n and m for the gates' pre-activations W u_t + b and U y_{t-1}, `(batch, 4d)` each, in the order z, f, i,
/// o.
pub(super) fn step(wu: &Tensor, uy: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
    let z = (wu + uy)?; // (batch, 4d)
    let z = |i: usize| gate(&z, i, &state[0]);
    let [_, c, n, m] = state else {
        unreachable!("the state holds four tensors");
    };
    let (log_f, log_i) = ((log_sigmoid(&z(1)?)? + m)?, z(2)?);
    // y does not depend on m, which therefore needs no gradient.
    let m = log_f.detach().maximum(&log_i.detach())?;
    let (f, i) = ((log_f - &m)?.exp()?, (log_i - &m)?.exp()?);
    let c = ((c * &f)? + (&i * ops::tanh(&z(0)?)?)?)?;
    let n = ((n * f)? + i)?;
    let y = (ops::sigmoid(&z(3)?)? * (&c / &n)?)?;
    Ok(vec![y, c, n, m])
}
