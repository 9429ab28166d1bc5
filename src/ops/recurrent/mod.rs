//! Recurrent networks whose step depends on U y_{t-1}, a whole sequence in one op: a linear network, Elman's, GRU, LSTM and
//! the sLSTM of xLSTM. No scan can compute them, so each step is one product with the recurrent map and one pass over
//! the gates. As separate ops, a step of an LSTM takes some twenty of them and as many backward.

mod cpu;
mod cuda;
mod reference;
mod rules;

use crate::pointwise::{Identity, Tanh};
use crate::runtime::autograd::{apply_one, runs_on, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};
use rules::{CellRule, Gru, Lstm, OneGate, SLstm};

/// One step of a recurrent network, given the parts W u_t + b and U y_{t-1} of the pre-activations of its gates. With a the
/// pre-activation of the candidate, the gates r, z, f, i and o are σ of theirs, but for the exponential gate i of sLSTM.
pub enum RecurrentCell {
    /// y_t = a.
    Linear,
    /// y_t = tanh(a).
    Elman,
    /// y_t = n + z ⊙ (y_{t-1} - n) with n = tanh(W_n u_t + b_n + r ⊙ (U_n y_{t-1} + c)); pre-activations of r, z and n.
    Gru {
        /// c `(d)`.
        bias: Tensor,
    },
    /// x_t = f ⊙ x_{t-1} + i ⊙ tanh(a), y_t = o ⊙ tanh(x_t); pre-activations a, then those of f, i and o.
    Lstm,
    /// c_t = f c_{t-1} + i tanh(a), n_t = f n_{t-1} + i, y_t = o c_t / n_t with i = e^(·), where c and n are kept divided by
    /// e^m with m_t = max(ln f + m_{t-1}, ln i). Pre-activations a, then those of f, i and o.
    SLstm,
}

impl RecurrentCell {
    /// Number of gates.
    pub fn gates(&self) -> usize {
        match self {
            Self::Linear => OneGate::<Identity>::GATES,
            Self::Elman => OneGate::<Tanh>::GATES,
            Self::Gru { .. } => Gru::GATES,
            Self::Lstm => Lstm::GATES,
            Self::SLstm => SLstm::GATES,
        }
    }

    /// Number of state tensors, the first of which is y.
    pub fn states(&self) -> usize {
        self.initial().len()
    }

    /// The initial state of `batch` sequences, `(batch, width)` each, with the type and device of `like`.
    pub fn init(&self, (batch, width): (usize, usize), like: &Tensor) -> Result<Vec<Tensor>> {
        let zeros = Tensor::zeros((batch, width), like.dtype(), like.device())?;
        self.initial().iter().map(|&value| zeros.affine(0.0, value)).collect()
    }

    fn initial(&self) -> &'static [f64] {
        match self {
            Self::Linear => OneGate::<Identity>::INITIAL,
            Self::Elman => OneGate::<Tanh>::INITIAL,
            Self::Gru { .. } => Gru::INITIAL,
            Self::Lstm => Lstm::INITIAL,
            Self::SLstm => SLstm::INITIAL,
        }
    }

    /// The next state for `wu` = W u_t + b and `uy` = U y_{t-1}, `(batch, gates · d)` each, and the state, tensors
    /// `(batch, d)` as in [`Self::init`].
    pub fn step(&self, wu: &Tensor, uy: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
        reference::step(self, wu, uy, state)
    }
}

/// The outputs y of all steps, (B, L, d), from the initial state.
///
/// `wu`: W u + b of all gates, (B, L, gates · d); `u`: U of all gates, one below another, (gates · d, d).
pub fn recurrent(wu: &Tensor, u: &Tensor, cell: &RecurrentCell) -> Result<Tensor> {
    let sizes = Sizes::check(wu, u, cell)?;
    if !runs_on(wu) {
        return reference::recurrent(wu, u, cell);
    }
    match cell {
        RecurrentCell::Linear => apply_one(Recurrent(sizes, OneGate(Identity)), &[wu, u]),
        RecurrentCell::Elman => apply_one(Recurrent(sizes, OneGate(Tanh)), &[wu, u]),
        RecurrentCell::Gru { bias } => apply_one(Recurrent(sizes, Gru), &[wu, u, bias]),
        RecurrentCell::Lstm => apply_one(Recurrent(sizes, Lstm), &[wu, u]),
        RecurrentCell::SLstm => apply_one(Recurrent(sizes, SLstm), &[wu, u]),
    }
}

const OP: &str = "recurrent";

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    len: usize,
    /// Width of the output, d.
    width: usize,
}

impl Sizes {
    fn check(wu: &Tensor, u: &Tensor, cell: &RecurrentCell) -> Result<Self> {
        let [batch, len, _] = shape::dims(OP, ("wu", wu))?;
        let [_, width] = shape::dims(OP, ("u", u))?;
        let all = cell.gates() * width;
        shape::parameter(OP, ("u", u), ("wu", wu), &[all, width])?;
        shape::expect(OP, ("wu", wu), ("wu", wu), &[batch, len, all])?;
        if let RecurrentCell::Gru { bias } = cell {
            shape::parameter(OP, ("bias", bias), ("wu", wu), &[width])?;
        }
        Ok(Self { batch, len, width })
    }
}

struct Recurrent<R>(Sizes, R);

impl<R: CellRule> Op for Recurrent<R> {
    const NAME: &'static str = OP;

    fn out_shapes(&self) -> Vec<Shape> {
        let Sizes { batch, len, width } = self.0;
        vec![(batch, len, width).into()]
    }
}

#[cfg(test)]
mod tests;
