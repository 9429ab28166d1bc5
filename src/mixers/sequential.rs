//! Recurrent networks whose gates read the previous output y_{t-1}, run step by step: RNN, GRU, LSTM and sLSTM. Their
//! Λ_i is not a function of the input, so that no finite system (11) exists; they serve as baselines.

use super::{Mixer, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops::{self, RecurrentCell};
use candle_core::{Result, Tensor};

/// Parameters of the gates, whose pre-activations are W u_t + U y_{t-1} + b.
pub(super) struct RecurrentGates {
    /// W of each gate, `(d, d)`.
    w: Vec<Tensor>,
    /// U of each gate, `(d, d)`.
    u: Vec<Tensor>,
    /// b of each gate, `(d)`.
    b: Vec<Tensor>,
}

impl RecurrentGates {
    /// Gates called `names`, with parameters `wNAME`, `uNAME` and `bNAME`. Biases start at 0, or at the values that
    /// `biases` gives.
    pub fn new(d: usize, names: &[&str], biases: &[(&str, f64)], params: &Params) -> Result<Self> {
        let edge = (d as f64).powf(-0.5);
        let weights = |kind: &str| {
            let weight = |name: &&str| params.map(&format!("{kind}{name}"), (d, d), Init::Uniform(-edge, edge));
            names.iter().map(weight).collect::<Result<Vec<_>>>()
        };
        let bias = |name: &&str| {
            let given = biases.iter().find(|(gate, _)| gate == name);
            match given {
                Some((_, value)) => params.get(&format!("b{name}"), d, Init::Constant(*value)),
                None => params.bias(&format!("b{name}"), d, d),
            }
        };
        Ok(Self { w: weights("w")?, u: weights("u")?, b: names.iter().map(bias).collect::<Result<_>>()? })
    }
}

/// A recurrent network as a mixer.
pub(super) struct Sequential {
    pub gates: RecurrentGates,
    pub cell: RecurrentCell,
}

impl Sequential {
    fn width(&self) -> usize {
        self.gates.b[0].elem_count()
    }

    /// W u + b of all gates, `(.., gates · d)`, for u `(.., d)`.
    fn project(&self, u: &Tensor) -> Result<Tensor> {
        let (w, b) = (ops::join(&self.gates.w, 0)?, ops::join(&self.gates.b, 0)?);
        linear(u, &w, Some(&b))
    }

    /// U of all gates, `(gates · d, d)`.
    fn recurrent_map(&self) -> Result<Tensor> {
        ops::join(&self.gates.u, 0)
    }
}

impl Mixer for Sequential {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        cx.select(&ops::recurrent(&self.project(u)?, &self.recurrent_map()?, &self.cell)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.cell.states() * self.width()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its gates read past outputs, so that Λ_i is not a function of the input alone"
    }
}

impl Recurrent for Sequential {
    fn init(&self, batch: usize) -> Result<State> {
        Ok(State::new(self.cell.init((batch, self.width()), &self.gates.b[0])?))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let uy = linear(&state.0[0], &self.recurrent_map()?, None)?;
        state.0 = self.cell.step(&self.project(x_t)?, &uy, &state.0)?;
        Ok(state.0[0].clone())
    }
}
