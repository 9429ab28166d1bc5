//! Linear recurrent network with a dense real matrix, the first step of the LRU's ablation (Orvieto et al. 2023, section
//! 3.1),
//!
//! h_i = A h_{i-1} + B u_i,  y_i = C h_i + D ⊙ u_i
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | h | state, real | `(batch, N)` |
//! | A | transition, initially normal with the variance 1/N, so that its eigenvalues fill the unit disk | `(N, N)` |
//! | B, C | input and output matrix, initially normal with the variances 1/d and 1/N | `(N, d)`, `(d, N)` |
//! | D | feedthrough | `(d)` |

use super::complex_state::Glu;
use super::{Mixer, MixerSpec, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops::{self, RecurrentCell};
use candle_core::{Result, Tensor};

pub(super) struct LinearRnn {
    a: Tensor,
    b: Tensor,
    c: Tensor,
    dskip: Tensor,
    glu: Option<Glu>,
}

impl LinearRnn {
    /// The network with `states` states.
    pub fn new(states: usize, spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        let normal = |name, shape: (usize, usize)| params.get(name, shape, Init::Normal((shape.1 as f64).powf(-0.5)));
        Ok(Self {
            a: normal("a", (states, states))?,
            b: normal("b", (states, d))?,
            c: normal("c", (d, states))?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
            glu: Glu::of(true, spec, params)?,
        })
    }

    fn states(&self) -> usize {
        self.a.dims()[0]
    }

    /// y `(.., d)` for h `(.., N)` and u `(.., d)`.
    fn readout(&self, h: &Tensor, u: &Tensor) -> Result<Tensor> {
        Glu::after(ops::add_scaled(&linear(h, &self.c, None)?, u, &self.dskip)?, self.glu.as_ref())
    }
}

impl Mixer for LinearRnn {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let bu = linear(u, &self.b, None)?;
        let h = ops::recurrent(&bu, &self.a, &RecurrentCell::Linear)?;
        self.readout(&cx.select(&h)?, &cx.select(u)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.states()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its transition is dense"
    }
}

impl Recurrent for LinearRnn {
    /// h `(batch, N)`.
    fn init(&self, batch: usize) -> Result<State> {
        Ok(State::new(vec![Tensor::zeros((batch, self.states()), self.a.dtype(), self.a.device())?]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let h = (linear(&state.0[0], &self.a, None)? + linear(x_t, &self.b, None)?)?;
        *state = State::new(vec![h.clone()]);
        self.readout(&h, x_t)
    }
}
