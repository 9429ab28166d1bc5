//! Legendre memory unit with its recurrent path (Voelker et al. 2019, equations (6) and (7)): what enters the memory
//! depends on the last output and on the memory itself,
//!
//! x_i = E_x u_i + E_h y_{i-1} + E_m m_{i-1},  m_i = Ā m_{i-1} + B̄ x_i,  y_i = tanh(U_x u_i + U_h y_{i-1} + U_m m_i)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | m | memory, n coefficients of each input signal | `(batch, inputs · n)` |
//! | Ā, B̄ | zero-order hold of the delay system, for each signal apart | [`DelaySystem`] |
//! | E_x, E_h, E_m | encoders of token, output and memory, e in the paper | `(inputs, d)`, the same, `(inputs, inputs · n)` |
//! | U_x, U_h, U_m | kernels of token, output and memory, W in the paper | `(d, d)`, the same, `(d, inputs · n)` |

use super::delay_system::{inputs, theta, DelaySystem};
use super::{Mixer, MixerSpec, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor, D};

pub(super) struct LmuCell {
    ex: Tensor,
    eh: Tensor,
    em: Tensor,
    ux: Tensor,
    uh: Tensor,
    um: Tensor,
    delay: DelaySystem,
}

/// Step along a whole sequence in terms of the joint state s = (y, m): y_i is the tanh of the first d rows of
/// `state` s_{i-1} + `input` u_i, and m_i is the rest.
struct JointStep {
    /// `(d + inputs · n, d)`.
    input: Tensor,
    /// `(d + inputs · n, d + inputs · n)`.
    state: Tensor,
}

impl LmuCell {
    /// Starts as the authors' code does: E_x and E_h by LeCun's uniform values, E_m at zero, and the kernels by Glorot's
    /// normal values.
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, inputs, n) = (spec.d_model, inputs(spec), spec.d_state);
        let encoder = |name, width: usize| {
            let edge = (3.0 / width as f64).sqrt();
            params.map(name, (inputs, width), Init::Uniform(-edge, edge))
        };
        let kernel = |name, width: usize| {
            let std = (2.0 / (width + d) as f64).sqrt();
            params.map(name, (d, width), Init::Normal(std))
        };
        Ok(Self {
            ex: encoder("ex", d)?,
            eh: encoder("eh", d)?,
            em: params.map("em", (inputs, inputs * n), Init::Constant(0.0))?,
            ux: kernel("ux", d)?,
            uh: kernel("uh", d)?,
            um: kernel("um", inputs * n)?,
            delay: DelaySystem::new(n, theta(spec), params),
        })
    }

    /// Width of the output, d.
    fn width(&self) -> usize {
        self.ux.dims()[0]
    }

    fn memory(&self) -> usize {
        self.um.dims()[1]
    }

    /// Substitutes x_i in m_i, and m_i in y_i, so that a step is one product with s_{i-1}.
    fn joint_step(&self) -> Result<JointStep> {
        let inputs = self.ex.dim(0)?;
        let [a, b] = self.delay.discrete_like(&self.ex)?;
        // Ā and B̄ of each signal on the diagonal of a matrix over all signals.
        let blocks = |of_one: &Tensor| -> Result<Tensor> {
            let (rows, columns) = of_one.dims2()?;
            let eye = Tensor::eye(inputs, of_one.dtype(), of_one.device())?.reshape((inputs, 1, inputs, 1))?;
            let all = eye.broadcast_mul(&of_one.reshape((1, rows, 1, columns))?)?;
            all.reshape((inputs * rows, inputs * columns))
        };
        let (a, b) = (blocks(a)?, blocks(b)?);
        // Rows of m_i from u_i, y_{i-1} and m_{i-1}, and rows of y_i from the same.
        let memory_from = [b.matmul(&self.ex)?, b.matmul(&self.eh)?, (a + b.matmul(&self.em)?)?];
        let [from_u, from_y, from_m] = memory_from.each_ref().map(|from| self.um.matmul(from));
        let of_output = [(&self.ux + from_u?)?, (&self.uh + from_y?)?, from_m?];
        let columns = |i: usize| Tensor::cat(&[&of_output[i], &memory_from[i]], 0);
        Ok(JointStep { input: columns(0)?, state: Tensor::cat(&[columns(1)?, columns(2)?], 1)? })
    }
}

impl Mixer for LmuCell {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let joint = self.joint_step()?;
        let along = linear(u, &joint.input, None)?;
        let (d, memory) = (self.width(), self.memory());
        let step = |from_input: &Tensor, from_state: &Tensor, _: &[Tensor]| {
            let s = (from_input + from_state)?;
            Ok(vec![Tensor::cat(&[ops::tanh(&s.narrow(1, 0, d)?.contiguous()?)?, s.narrow(1, d, memory)?], 1)?])
        };
        let states = unroll(&along, &joint.state, self.init(u.dim(0)?)?, step)?;
        cx.select(&states)?.narrow(D::Minus1, 0, d)?.contiguous()
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.width() + self.memory()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its memory reads past outputs, which a tanh makes nonlinear in the state"
    }
}

impl Recurrent for LmuCell {
    /// y and m side by side, `(batch, d + inputs · n)`.
    fn init(&self, batch: usize) -> Result<State> {
        let shape = (batch, self.width() + self.memory());
        Ok(State::new(vec![Tensor::zeros(shape, self.ux.dtype(), self.ux.device())?]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (d, memory) = (self.width(), self.memory());
        let (y, m) = (state.0[0].narrow(1, 0, d)?.contiguous()?, state.0[0].narrow(1, d, memory)?.contiguous()?);
        let from = |[of_token, of_output, of_memory]: [&Tensor; 3], m: &Tensor| -> Result<Tensor> {
            (linear(x_t, of_token, None)? + linear(&y, of_output, None)?)? + linear(m, of_memory, None)?
        };
        let x = from([&self.ex, &self.eh, &self.em], &m)?;
        let (batch, inputs) = x.dims2()?;
        let m = self.delay.advance(&m.reshape((batch, inputs, self.delay.order))?, &x)?.flatten_from(1)?;
        let y = ops::tanh(&from([&self.ux, &self.uh, &self.um], &m)?)?;
        *state = State::new(vec![Tensor::cat(&[&y, &m], 1)?]);
        Ok(y)
    }
}

/// Outputs `(batch, seq_len, d)` of steps along `wu` = W u + b `(batch, seq_len, gates · d)`. A step maps W u_t + b,
/// U y_{t-1} and the state, whose first tensor is y_{t-1}, to the next state.
fn unroll(
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
