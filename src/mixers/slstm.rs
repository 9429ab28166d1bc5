//! sLSTM, the scalar memory of xLSTM (Beck et al. 2024): an LSTM with an exponential input gate and a normaliser state,
//!
//! c_t = f_t c_{t-1} + i_t tanh(z_t),  n_t = f_t n_{t-1} + i_t,  y_t = o_t c_t / n_t
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | c, n | memory and normaliser, both divided by e^m | `(batch, d)` |
//! | f, i, o | forget gate σ(·), input gate e^(·), output gate σ(·) of W u_t + U y_{t-1} + b | `(batch, d)` |
//! | m | stabiliser: the largest exponent so far, which cancels in y | `(batch, d)` |

use super::sequential::{RecurrentGates, Sequential};
use super::{Entry, Family, Gradient, ReleasedBlock};
use crate::ops::RecurrentCell;

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
        Ok(Box::new(Sequential { gates, cell: RecurrentCell::SLstm }))
    },
    ..Entry::of(Family::Recurrent)
};
