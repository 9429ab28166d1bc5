//! The LSTM (5) to (7). Its gates read y_{i-1}, so Λ_i is no function of the input and no finite
//! system of the form (11) exists; it is here as the yardstick.

use super::{Entry, Home, Mixer, Recurrent, State};
use crate::config::ModelConfig;
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{IndexOp, Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "lstm",
    equation: "x_i = f x_{i-1} + i tanh(W u_i + U y_{i-1}), y_i = o tanh(x_i)",
    cite: "(5)-(7)",
    variants: &["paper"],
    dsf: "no (gates read y_{i-1})",
    heads: false,
    expands: false,
    home: Home::RNN,
    options: &[],
    stem: "lstm",
    build: |model, params| Ok(Box::new(Lstm::new(model, params)?)),
};

/// Gates in the order (input candidate, forget, input, output).
const GATES: [&str; 4] = ["u", "f", "i", "o"];

struct Lstm {
    /// Input weights, `(4d, d)`.
    w: Tensor,
    /// Recurrent weights, `(4d, d)`.
    u: Tensor,
    /// `(4d)`.
    b: Tensor,
    d: usize,
}

impl Lstm {
    fn new(model: &ModelConfig, params: &Params) -> Result<Self> {
        let d = model.d_model;
        let edge = (d as f64).powf(-0.5);
        let stacked = |kind: &str| -> Result<Tensor> {
            let weight = |gate| {
                let name = format!("{kind}{gate}");
                params.get(&name, (d, d), Init::Uniform(-edge, edge))
            };
            Tensor::cat(&GATES.map(weight).into_iter().collect::<Result<Vec<_>>>()?, 0)
        };
        // A forget bias of 1 lets the state live from the start (Jozefowicz et al. 2015).
        let bias = |gate| {
            let init = if gate == "f" { 1.0 } else { 0.0 };
            params.get(&format!("b{gate}"), d, Init::Constant(init))
        };
        Ok(Self {
            w: stacked("w")?,
            u: stacked("u")?,
            b: Tensor::cat(&GATES.map(bias).into_iter().collect::<Result<Vec<_>>>()?, 0)?,
            d,
        })
    }

    /// One step from the input's share of the gates, `(batch, 4d)`; gives (x, y).
    fn advance(&self, wu: &Tensor, x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
        let z = (wu + linear(y, &self.u, None)?)?;
        let gate = |i: usize| z.narrow(1, i * self.d, self.d);
        let kept = (ops::sigmoid(&gate(1)?)? * x)?;
        let x = (kept + (ops::sigmoid(&gate(2)?)? * ops::tanh(&gate(0)?)?)?)?;
        let y = (ops::sigmoid(&gate(3)?)? * ops::tanh(&x)?)?;
        Ok((x, y))
    }
}

impl Mixer for Lstm {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = u.dims3()?;
        let wu = linear(u, &self.w, Some(&self.b))?.transpose(0, 1)?.contiguous()?;
        let mut x = Tensor::zeros((batch, self.d), u.dtype(), u.device())?;
        let mut y = x.clone();
        let mut ys = Vec::with_capacity(seq_len);
        for i in 0..seq_len {
            (x, y) = self.advance(&wu.i(i)?, &x, &y)?;
            ys.push(y.clone());
        }
        cx.select(&Tensor::stack(&ys, 1)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        2 * self.d
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }
}

impl Recurrent for Lstm {
    fn init(&self, batch: usize) -> Result<State> {
        let zero = Tensor::zeros((batch, self.d), self.w.dtype(), self.w.device())?;
        Ok(State(vec![zero.clone(), zero]))
    }

    fn step(&self, x_t: &Tensor, state: &mut State) -> Result<Tensor> {
        let wu = linear(x_t, &self.w, Some(&self.b))?;
        let (x, y) = self.advance(&wu, &state.0[0], &state.0[1])?;
        *state = State(vec![x, y.clone()]);
        Ok(y)
    }
}
