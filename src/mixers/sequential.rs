//! Recurrent networks whose gates see their last output: what they have in common, the walk from step to step. Their Λ_i is no
//! function of the input, so that no finite system of the form (11) exists; they are here as the yardstick.

use super::{Mixer, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

/// The maps of the gates, one after the other, so that one product serves all.
pub(super) struct Gates {
    /// Of the input, `(d, d)` each.
    w: Vec<Tensor>,
    /// Of the last output, `(d, d)` each.
    u: Vec<Tensor>,
    /// `(d)` each.
    b: Vec<Tensor>,
}

impl Gates {
    /// The gates called `names`, with parameters `w`, `u` and `b` before the name. Biases start at 0 but for those that
    /// `biases` names.
    pub fn new(d: usize, names: &[&str], biases: &[(&str, f64)], params: &Params) -> Result<Self> {
        let edge = (d as f64).powf(-0.5);
        let weights = |kind: &str| {
            let weight = |name: &&str| {
                params.get(&format!("{kind}{name}"), (d, d), Init::Uniform(-edge, edge))
            };
            names.iter().map(weight).collect::<Result<Vec<_>>>()
        };
        let bias = |name: &&str| {
            let given = biases.iter().find(|(of, _)| of == name);
            match given {
                Some((_, start)) => params.get(&format!("b{name}"), d, Init::Constant(*start)),
                None => params.bias(&format!("b{name}"), d, d),
            }
        };
        Ok(Self {
            w: weights("w")?,
            u: weights("u")?,
            b: names.iter().map(bias).collect::<Result<_>>()?,
        })
    }
}

/// One step of such a network.
pub(super) trait Cell {
    /// Tensors of state `(batch, d)`, of which the first is the output.
    const STATES: usize;

    fn gates(&self) -> &Gates;

    /// The state behind a step from that before it and what input and last output give the gates, `(batch, gates · d)` each.
    fn advance(&self, input: &Tensor, output: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>>;

    /// What a state holds before the first step.
    fn start(&self, _index: usize) -> f64 {
        0.0
    }
}

/// A [`Cell`] as a mixer.
pub(super) struct Sequential<C>(pub C);

impl<C: Cell> Sequential<C> {
    fn width(&self) -> usize {
        self.0.gates().b[0].elem_count()
    }

    /// What the input gives the gates, `(.., gates · d)`.
    fn drive(&self, u: &Tensor) -> Result<Tensor> {
        let gates = self.0.gates();
        let (w, b) = (Tensor::cat(&gates.w, 0)?, Tensor::cat(&gates.b, 0)?);
        linear(u, &w, Some(&b))
    }
}

impl<C: Cell> Mixer for Sequential<C> {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = u.dims3()?;
        let recurrent = Tensor::cat(&self.0.gates().u, 0)?;
        let state = self.init(batch)?.0.into_iter();
        let mut state: Vec<Tensor> = state
            .map(|x| x.to_dtype(u.dtype()))
            .collect::<Result<_>>()?;
        let mut ys = Vec::with_capacity(seq_len);
        for input in ops::time_steps(&self.drive(u)?)? {
            let output = linear(&state[0], &recurrent, None)?;
            state = self.0.advance(&input, &output, &state)?;
            ys.push(state[0].clone());
        }
        cx.select(&Tensor::stack(&ys, 1)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        C::STATES * self.width()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its gates see past outputs, so that Λ_i is no function of the input alone"
    }
}

impl<C: Cell> Recurrent for Sequential<C> {
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.0.gates().b[0];
        let zeros = Tensor::zeros((batch, self.width()), like.dtype(), like.device())?;
        let states = (0..C::STATES).map(|i| zeros.affine(0.0, self.0.start(i)));
        Ok(State(states.collect::<Result<_>>()?))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let recurrent = Tensor::cat(&self.0.gates().u, 0)?;
        let output = linear(&state.0[0], &recurrent, None)?;
        state.0 = self.0.advance(&self.drive(x_t)?, &output, &state.0)?;
        Ok(state.0[0].clone())
    }
}

/// Gate `index` of `(batch, gates · d)`.
pub(super) fn part(gates: &Tensor, index: usize, state: &Tensor) -> Result<Tensor> {
    let d = state.dim(1)?;
    gates.narrow(1, index * d, d)
}
