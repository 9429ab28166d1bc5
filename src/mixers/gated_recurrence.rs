//! Recurrences whose gates read the input alone, h_i = f_i ⊙ h_{i-1} + s_i ⊙ x_i, as a pass over the sequence, as one
//! step and as matrices: bare, and inside the wrapping that the released code gives its RNNs.

use super::gated_block::GatedBlock;
use super::{Mixer, MixerOption, MixerSpec, Recurrent, State};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx};
use crate::ops::{self, Gates};
use candle_core::{Result, Tensor, D};

/// The gates f and s as functions of their pre-activations.
pub(super) enum Rule {
    /// Both are sigmoids.
    Sigmoid,
    /// f = σ(-z)^α = e^{-α softplus(z)} (23), the power taken in the exponent.
    Reversed {
        /// α `(1)`.
        alpha: Tensor,
        /// Whether α acts as max(α, 0), as in the released code.
        clipped: bool,
    },
    /// Those of RG-LRU (9), (10).
    RgLru {
        /// λ `(N)`.
        lambda: Tensor,
        /// Added under the root.
        eps: f64,
    },
}

impl Rule {
    fn gates(&self) -> Result<Gates> {
        Ok(match self {
            Self::Sigmoid => Gates::Sigmoid,
            Self::Reversed { alpha, clipped } => Gates::Reversed {
                alpha: match clipped {
                    true => alpha.relu()?,
                    false => alpha.clone(),
                },
            },
            Self::RgLru { lambda, eps } => Gates::RgLru {
                lambda: lambda.clone(),
                eps: *eps,
            },
        })
    }

    /// h of one step from z, x and the h before it.
    fn advance(&self, z: &Tensor, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        let (forget, input) = self.gates()?.values(z)?;
        (h * forget)? + (input * x)?
    }
}

/// How many states a channel has where the width of the state is not that of the input (section 4.3).
pub(super) const STATES: MixerOption = MixerOption {
    name: "states",
    help: "states a channel n, whose read-outs are summed: `1` as in the paper, up to 4096",
    default: |_| "1",
    accepts: |v| v.parse::<usize>().is_ok_and(|n| (1..=4096).contains(&n)),
    implied: true,
    ..MixerOption::DEFAULT
};

/// [`STATES`], resolved.
pub(super) fn states(spec: &MixerSpec) -> usize {
    let given = spec.option(STATES.name).and_then(|n| n.parse().ok());
    given.unwrap_or(1)
}

/// y_i = σ(W_o u_i) ⊙ h_i with x_i = W u_i; with a tanh around both x and h, or without W_o or W. A channel may have n
/// states, each with gates, value and read-out of its own, and y is their sum.
pub(super) struct Bare {
    /// Weights of the pre-activations of f and s.
    pub gates: [Tensor; 2],
    /// W.
    pub value: Option<Tensor>,
    /// W_o.
    pub output: Option<Tensor>,
    /// Whether there is a tanh.
    pub squash: bool,
    /// States a channel, n: maps have n d rows, those of one channel side by side.
    pub states: usize,
    pub rule: Rule,
}

impl Bare {
    fn tanh(&self, x: Tensor) -> Result<Tensor> {
        match self.squash {
            true => ops::tanh(&x),
            false => Ok(x),
        }
    }

    /// Pre-activations of both gates, `(.., 2 n d)`, and x `(.., n d)`.
    fn drive(&self, u: &Tensor) -> Result<(Tensor, Tensor)> {
        let z = linear(u, &Tensor::cat(&self.gates, 0)?, None)?;
        let x = match &self.value {
            Some(w) => linear(u, w, None)?,
            None => self.repeated(u)?,
        };
        Ok((z, self.tanh(x)?))
    }

    /// Each channel of u `(.., d)` once for every state of it, `(.., n d)`.
    fn repeated(&self, u: &Tensor) -> Result<Tensor> {
        if self.states == 1 {
            return Ok(u.clone());
        }
        let mut shape = u.dims().to_vec();
        shape.push(self.states);
        let wide = u.unsqueeze(D::Minus1)?.broadcast_as(shape.as_slice())?;
        wide.contiguous()?.flatten_from(u.rank() - 1)
    }

    /// The sum over the states of each channel, `(.., n d)` to `(.., d)`.
    fn summed(&self, y: Tensor) -> Result<Tensor> {
        if self.states == 1 {
            return Ok(y);
        }
        let mut shape = y.dims().to_vec();
        let width = shape.pop().unwrap_or(1);
        shape.extend([width / self.states, self.states]);
        y.reshape(shape)?.sum(D::Minus1)
    }

    /// y for h at the positions that `cx` selects of u.
    fn finish(&self, h: &Tensor, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let h = self.tanh(h.clone())?;
        self.summed(match &self.output {
            Some(w) => (ops::sigmoid(&linear(&cx.select(u)?, w, None)?)? * h)?,
            None => h,
        })
    }
}

impl Bare {
    /// [`Self::summed`] as a matrix, `(d, n d)`.
    fn sum_map(&self, like: &Tensor) -> Result<Tensor> {
        let channels = self.state_size(1) / self.states;
        self.repeated(&Tensor::eye(channels, like.dtype(), like.device())?)
    }
}

impl Mixer for Bare {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (z, x) = self.drive(u)?;
        let at = cx.rows().map(|rows| &rows.positions);
        let h = ops::gated_scan(&z, &x, &self.rule.gates()?, at)?;
        self.finish(&h, u, cx)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.gates[0].dims()[0]
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        if self.squash {
            return Ok(None); // see `without_system`
        }
        let (z, _) = self.drive(u)?;
        let (forget, input) = self.rule.gates()?.values(&z)?;
        let read = match &self.output {
            Some(w) => ops::sigmoid(&linear(u, w, None)?)?,
            None => input.ones_like()?,
        };
        let each = |x: &Tensor| x.unsqueeze(2);
        let system = Ltv::new(each(&forget)?, each(&input)?, each(&read)?);
        Ok(Some(Ltv {
            gate: Some(input),
            value: match &self.value {
                None if self.states > 1 => Some(self.sum_map(u)?.t()?.contiguous()?),
                value => value.clone(),
            },
            output: (self.states > 1).then(|| self.sum_map(u)).transpose()?,
            ..system
        }))
    }

    fn without_system(&self) -> &'static str {
        "the tanh around its state is no linear read-out, and the one around its value no linear input; without both, \
         equation (20), it is a system"
    }
}

impl Recurrent for Bare {
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.gates[0];
        let zero = Tensor::zeros((batch, like.dim(0)?), like.dtype(), like.device())?;
        Ok(State(vec![zero]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (z, x) = self.drive(x_t)?;
        let h = self.rule.advance(&z, &x, &state.0[0])?;
        let y = self.finish(&h, x_t, &Cx::eval())?;
        *state = State(vec![h]);
        Ok(y)
    }
}

/// The recurrence inside the gated block, without a tanh, where x is the block's convolved input.
pub(super) struct InBlock {
    pub block: GatedBlock,
    /// Weights of the pre-activations of f and s and, if it has one, of the output gate, `(2E, E)` or `(3E, E)`.
    pub wgates: Tensor,
    /// Their biases.
    pub bgates: Tensor,
    pub rule: Rule,
}

impl InBlock {
    /// Weights and biases of `count` gates from the gate `first` on.
    fn map(&self, first: usize, count: usize) -> Result<[Tensor; 2]> {
        let e = self.block.input.width;
        let rows = |t: &Tensor| t.narrow(0, first * e, count * e);
        Ok([rows(&self.wgates)?, rows(&self.bgates)?])
    }

    fn output_map(&self) -> Result<Option<[Tensor; 2]>> {
        let has_output = self.bgates.dim(0)? == 3 * self.block.input.width;
        has_output.then(|| self.map(2, 1)).transpose()
    }
}

impl Mixer for InBlock {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, gate) = self.block.input.drive(u, cx)?;
        let [wz, bz] = self.map(0, 2)?;
        let (z, output) = match self.output_map()? {
            Some([wo, bo]) => {
                let mut maps = project(&x, &[(&wz, Some(&bz))], &[(&wo, Some(&bo))], cx)?;
                (maps.all.remove(0), Some(maps.queried.remove(0)))
            }
            None => (linear(&x, &wz, Some(&bz))?, None),
        };
        let at = cx.rows().map(|rows| &rows.positions);
        let h = ops::gated_scan(&z, &x, &self.rule.gates()?, at)?;
        self.block.finish(&h, output.as_ref(), &gate)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.block.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let (x, gate) = self.block.input.drive(&u.unsqueeze(0)?, &Cx::eval())?;
        let [wz, bz] = self.map(0, 2)?;
        let (forget, input) = self.rule.gates()?.values(&linear(&x, &wz, Some(&bz))?)?;
        let output = match self.output_map()? {
            Some([wo, bo]) => Some(linear(&x, &wo, Some(&bo))?),
            None => None,
        };
        let read = ops::gated_readout(&x.ones_like()?, &gate, output.as_ref())?;
        let each = |t: &Tensor| t.squeeze(0)?.unsqueeze(2);
        Ok(Some(Inner {
            system: Ltv {
                gate: Some(input.squeeze(0)?),
                output: Some(self.block.wout.clone()),
                ..Ltv::new(each(&forget)?, each(&input)?, each(&read)?)
            },
            input: x.squeeze(0)?,
            around: "driven by x = conv4(W_x u), a shift register of three steps in front of it; C_i holds the gates \
                     behind it, gelu(W_g u) and the output gate if there is one, and the output projection",
        }))
    }
}

impl Recurrent for InBlock {
    fn init(&self, batch: usize) -> Result<State> {
        self.block.zero_state(batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [x, gate, window] = self.block.input.drive_step(x_t, &state.0[1])?;
        let [wz, bz] = self.map(0, 2)?;
        let h = self
            .rule
            .advance(&linear(&x, &wz, Some(&bz))?, &x, &state.0[0])?;
        let output = match self.output_map()? {
            Some([wo, bo]) => Some(linear(&x, &wo, Some(&bo))?),
            None => None,
        };
        *state = State(vec![h.clone(), window]);
        self.block.finish(&h, output.as_ref(), &gate)
    }
}
