//! Recurrent networks whose gates read the previous output y_{t-1}, run step by step: RNN, GRU, LSTM and sLSTM. Their
//! Λ_i is not a function of the input, so that no finite system (11) exists; they serve as baselines.

use super::{Mixer, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
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

/// Recurrent cell: one step of the network.
pub(super) trait RecurrentCell {
    /// Number of state tensors `(batch, d)`, the first of which is the output.
    const STATES: usize;

    fn gates(&self) -> &RecurrentGates;

    /// Next state for the gates' pre-activations `wu` = W u_t + b and `uy` = U y_{t-1}, `(batch, gates · d)` each.
    fn step(&self, wu: &Tensor, uy: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Initial value of state tensor `index`.
    fn initial(&self, _index: usize) -> f64 {
        0.0
    }
}

/// A [`RecurrentCell`] as a mixer.
pub(super) struct Sequential<C>(pub C);

impl<C: RecurrentCell> Sequential<C> {
    fn width(&self) -> usize {
        self.0.gates().b[0].elem_count()
    }

    /// W u + b of all gates, `(.., gates · d)`, for u `(.., d)`.
    fn project(&self, u: &Tensor) -> Result<Tensor> {
        let gates = self.0.gates();
        let (w, b) = (Tensor::cat(&gates.w, 0)?, Tensor::cat(&gates.b, 0)?);
        linear(u, &w, Some(&b))
    }
}

impl<C: RecurrentCell> Mixer for Sequential<C> {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let batch = u.dim(0)?;
        let u_y = Tensor::cat(&self.0.gates().u, 0)?; // (gates · d, d)
        let ys = unroll(&self.project(u)?, &u_y, self.init(batch)?, |wu, uy, state| self.0.step(wu, uy, state))?;
        cx.select(&ys)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        C::STATES * self.width()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its gates read past outputs, so that Λ_i is not a function of the input alone"
    }
}

impl<C: RecurrentCell> Recurrent for Sequential<C> {
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.0.gates().b[0];
        let zeros = Tensor::zeros((batch, self.width()), like.dtype(), like.device())?;
        let states = (0..C::STATES).map(|i| zeros.affine(0.0, self.0.initial(i)));
        Ok(State(states.collect::<Result<_>>()?))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let u_y = Tensor::cat(&self.0.gates().u, 0)?;
        let uy = linear(&state.0[0], &u_y, None)?;
        state.0 = self.0.step(&self.project(x_t)?, &uy, &state.0)?;
        Ok(state.0[0].clone())
    }
}

/// Outputs `(batch, seq_len, d)` of steps along `wu` = W u + b `(batch, seq_len, gates · d)`. A step maps W u_t + b,
/// U y_{t-1} and the state, whose first tensor is y_{t-1}, to the next state.
pub(super) fn unroll(
    wu: &Tensor,
    u_y: &Tensor,
    initial: State,
    step: impl Fn(&Tensor, &Tensor, &[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Tensor> {
    let mut state: Vec<Tensor> = initial.0.iter().map(|x| x.to_dtype(wu.dtype())).collect::<Result<_>>()?;
    let mut ys = Vec::with_capacity(wu.dim(1)?);
    for wu in ops::time_steps(wu)? {
        state = step(&wu, &linear(&state[0], u_y, None)?, &state)?;
        ys.push(state[0].clone());
    }
    Tensor::stack(&ys, 1)
}

/// Pre-activation `(batch, d)` of gate `index` from those of all gates `(batch, gates · d)`.
pub(super) fn gate(gates: &Tensor, index: usize, state: &Tensor) -> Result<Tensor> {
    let d = state.dim(1)?;
    gates.narrow(1, index * d, d)
}
