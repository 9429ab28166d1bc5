//! The LSTM (5) to (7). Its gates read y_{i-1}, so Λ_i is no function of the input and no finite
//! system of the form (11) exists; it is here as the yardstick.

use super::{Entry, Family, Growth, Mixer, MixerSpec, Recurrent, ReleasedBlock, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "lstm",
    equation: "x_i = f x_{i-1} + i tanh(W u_i + U y_{i-1}), y_i = o tanh(x_i)",
    cite: "(5)-(7)",
    variants: &["paper"],
    dsf: "no (gates read y_{i-1})",
    heads: false,
    expands: false,
    widens: false,
    rotary: false,
    family: Family::Recurrent,
    released: ReleasedBlock::RNN,
    options: &[],
    growth: Growth::No("its state has the width d: there is no n to grow"),
    stem: "lstm",
    // Each step waits for the output of the step before it: no rate of the machine bounds that.
    work: |_| None,
    build: |spec, params| Ok(Box::new(Lstm::new(spec, params)?)),
};

/// Gates in the order (input candidate, forget, input, output).
const GATES: [&str; 4] = ["u", "f", "i", "o"];

struct Lstm {
    /// Input weights, `(d, d)` each.
    w: [Tensor; 4],
    /// Recurrent weights, `(d, d)` each.
    u: [Tensor; 4],
    /// `(d)` each.
    b: [Tensor; 4],
    d: usize,
}

/// The gates' weights side by side, so that one product serves all four.
struct Stacked {
    w: Tensor,
    u: Tensor,
    b: Tensor,
    d: usize,
}

impl Lstm {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        let edge = (d as f64).powf(-0.5);
        let weight = |name: String| params.get(&name, (d, d), Init::Uniform(-edge, edge));
        // A forget bias of 1 lets the state live from the start (Jozefowicz et al. 2015).
        let bias = |gate: &str| match gate {
            "f" => params.get("bf", d, Init::Constant(1.0)),
            _ => params.bias(&format!("b{gate}"), d, d),
        };
        let [u, f, i, o] = GATES;
        let four = |kind: &str| -> Result<[Tensor; 4]> {
            let gate = |g: &str| weight(format!("{kind}{g}"));
            Ok([gate(u)?, gate(f)?, gate(i)?, gate(o)?])
        };
        Ok(Self {
            w: four("w")?,
            u: four("u")?,
            b: [bias(u)?, bias(f)?, bias(i)?, bias(o)?],
            d,
        })
    }

    fn stacked(&self) -> Result<Stacked> {
        Ok(Stacked {
            w: Tensor::cat(&self.w, 0)?,
            u: Tensor::cat(&self.u, 0)?,
            b: Tensor::cat(&self.b, 0)?,
            d: self.d,
        })
    }
}

impl Stacked {
    /// The input's contribution to the gates, `(.., 4d)`.
    fn drive(&self, u: &Tensor) -> Result<Tensor> {
        linear(u, &self.w, Some(&self.b))
    }

    /// One step from the input's contribution `(batch, 4d)`; gives (x, y).
    fn advance(&self, drive: &Tensor, x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
        let z = (drive + linear(y, &self.u, None)?)?;
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
        let gates = self.stacked()?;
        let mut x = Tensor::zeros((batch, self.d), u.dtype(), u.device())?;
        let mut y = x.clone();
        let mut ys = Vec::with_capacity(seq_len);
        for drive in ops::time_steps(&gates.drive(u)?)? {
            (x, y) = gates.advance(&drive, &x, &y)?;
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

    fn without_system(&self) -> &'static str {
        "its gates see past outputs, so that Λ_i is no function of the input alone"
    }
}

impl Recurrent for Lstm {
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.b[0];
        let zero = Tensor::zeros((batch, self.d), like.dtype(), like.device())?;
        Ok(State(vec![zero.clone(), zero]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let gates = self.stacked()?;
        let (x, y) = gates.advance(&gates.drive(x_t)?, &state.0[0], &state.0[1])?;
        *state = State(vec![x, y.clone()]);
        Ok(y)
    }
}
