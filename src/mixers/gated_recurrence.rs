//! Gated linear recurrence, whose gates depend on the input alone: qLSTM and RG-LRU, bare and inside the gated block of
//! the released code,
//!
//! h_t = f_t ⊙ h_{t-1} + i_t ⊙ x_t
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | h, x | state and input, N = n d channels, or E in the block | `(batch, seq_len, N)` |
//! | f, i | forget and input gate, functions of z by a [`GateRule`] | `(batch, seq_len, N)` |
//! | z | pre-activations of both gates, f first | `(batch, seq_len, 2N)` |

use super::gated_block::GatedBlock;
use super::{in_range, Mixer, MixerOption, MixerSpec, Recurrent, State};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx};
use crate::ops::{self, Gates};
use candle_core::{Result, Tensor, D};

/// Gates f and i as functions of their pre-activations z.
pub(super) enum GateRule {
    /// f = σ(z_f), i = σ(z_i).
    Sigmoid,
    /// f = σ(-z_f)^α = e^{-α softplus(z_f)} (23), i = σ(z_i).
    Reversed {
        /// α `(1)`.
        alpha: Tensor,
        /// Whether α is replaced by max(α, 0), as in the released code.
        clipped: bool,
    },
    /// Gates of RG-LRU (9), (10).
    RgLru {
        /// λ `(N)`.
        lambda: Tensor,
        /// ε under the square root of the input gate.
        eps: f64,
    },
}

impl GateRule {
    fn gates(&self) -> Result<Gates> {
        Ok(match self {
            Self::Sigmoid => Gates::Sigmoid,
            Self::Reversed { alpha, clipped } => Gates::Reversed {
                alpha: match clipped {
                    true => alpha.relu()?,
                    false => alpha.clone(),
                },
            },
            Self::RgLru { lambda, eps } => Gates::RgLru { lambda: lambda.clone(), eps: *eps },
        })
    }

    /// h_t for z_t, x_t and h_{t-1}.
    fn step(&self, z: &Tensor, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        let (forget, input) = self.gates()?.values(z)?;
        (h * forget)? + (input * x)?
    }
}

/// State expansion of mixers whose published state has the width of the input (section 4.3).
pub(super) const STATES: MixerOption = MixerOption {
    name: "states",
    help: "states per channel n, whose outputs are summed: `1` as in the paper, up to 4096",
    default: |_| "1",
    accepts: |v| in_range(v, 1..=4096),
    implied: true,
    ..MixerOption::DEFAULT
};

/// [`STATES`], resolved.
pub(super) fn states(spec: &MixerSpec) -> usize {
    spec.parsed(STATES.name).unwrap_or(1)
}

/// The recurrence between linear maps, y_t = σ(W_o u_t) ⊙ h_t with x_t = W u_t. With n > 1 states per channel, each has
/// its own gates and input, and y is the sum of their outputs.
pub(super) struct GatedRecurrence {
    /// Projections to the pre-activations of f and i, `(n d, d)` each, the states of a channel side by side.
    pub gates: [Tensor; 2],
    /// Input projection W, `(n d, d)`; `None` is the identity.
    pub value: Option<Tensor>,
    /// Output gate W_o, `(n d, d)`; `None` stands for a gate of 1.
    pub output: Option<Tensor>,
    /// Whether x and h pass a tanh, as in the LSTM.
    pub squash: bool,
    /// States per channel, n.
    pub states: usize,
    pub rule: GateRule,
}

impl GatedRecurrence {
    fn tanh(&self, x: Tensor) -> Result<Tensor> {
        match self.squash {
            true => ops::tanh(&x),
            false => Ok(x),
        }
    }

    /// z `(.., 2 n d)` and x `(.., n d)` for u `(.., d)`.
    fn project(&self, u: &Tensor) -> Result<(Tensor, Tensor)> {
        let z = linear(u, &ops::join(&self.gates, 0)?, None)?;
        let x = match &self.value {
            Some(w) => linear(u, w, None)?,
            None => self.repeat(u)?,
        };
        Ok((z, self.tanh(x)?))
    }

    /// u `(.., d)`, repeated for each state of a channel: `(.., n d)`.
    fn repeat(&self, u: &Tensor) -> Result<Tensor> {
        if self.states == 1 {
            return Ok(u.clone());
        }
        let mut shape = u.dims().to_vec();
        shape.push(self.states);
        let wide = u.unsqueeze(D::Minus1)?.broadcast_as(shape.as_slice())?;
        wide.contiguous()?.flatten_from(u.rank() - 1)
    }

    /// Sum over the states of each channel, `(.., n d)` to `(.., d)`.
    fn sum_states(&self, y: Tensor) -> Result<Tensor> {
        if self.states == 1 {
            return Ok(y);
        }
        let mut shape = y.dims().to_vec();
        let width = shape.pop().unwrap_or(1);
        shape.extend([width / self.states, self.states]);
        y.reshape(shape)?.sum(D::Minus1)
    }

    /// y for h `(batch, rows, n d)`, at the positions that `cx` selects, and u `(batch, seq_len, d)`.
    fn readout(&self, h: &Tensor, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let h = self.tanh(h.clone())?;
        self.sum_states(match &self.output {
            Some(w) => (ops::sigmoid(&linear(&cx.select(u)?, w, None)?)? * h)?,
            None => h,
        })
    }
}

impl GatedRecurrence {
    /// [`Self::sum_states`] as a matrix, `(d, n d)`.
    fn sum_matrix(&self, like: &Tensor) -> Result<Tensor> {
        let channels = self.state_size(1) / self.states;
        self.repeat(&Tensor::eye(channels, like.dtype(), like.device())?)
    }
}

impl Mixer for GatedRecurrence {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (z, x) = self.project(u)?; // (batch, seq_len, 2 n d), (batch, seq_len, n d)
        let at = cx.rows().map(|rows| &rows.positions);
        let h = ops::gated_scan(&z, &x, &self.rule.gates()?, at)?;
        self.readout(&h, u, cx)
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
        let (z, _) = self.project(u)?;
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
                None if self.states > 1 => Some(self.sum_matrix(u)?.t()?.contiguous()?),
                value => value.clone(),
            },
            output: (self.states > 1).then(|| self.sum_matrix(u)).transpose()?,
            ..system
        }))
    }

    fn without_system(&self) -> &'static str {
        "its output is nonlinear through the tanh of its state, and its input through the tanh of a projection; without both, \
         equation (20), it is a system"
    }
}

impl Recurrent for GatedRecurrence {
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.gates[0];
        let zero = Tensor::zeros((batch, like.dim(0)?), like.dtype(), like.device())?;
        Ok(State::new(vec![zero]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (z, x) = self.project(x_t)?;
        let h = self.rule.step(&z, &x, &state.0[0])?;
        let y = self.readout(&h, x_t, &Cx::eval())?;
        *state = State::new(vec![h]);
        Ok(y)
    }
}

/// The recurrence inside the gated block, without a tanh; x is the block's convolved input.
pub(super) struct BlockRecurrence {
    pub block: GatedBlock,
    /// Projections to f, i and, if there is one, the output gate, stacked, `(2E, E)` or `(3E, E)`.
    pub wgates: Tensor,
    pub bgates: Tensor,
    pub rule: GateRule,
}

impl BlockRecurrence {
    /// Weights and biases of the gates f and i, stacked, and of the output gate if there is one.
    fn gates(&self) -> Result<BlockGates> {
        let e = self.block.input.width;
        let output = self.bgates.dim(0)? - 2 * e;
        if output == 0 {
            return Ok(([self.wgates.clone(), self.bgates.clone()], None));
        }
        let parts = |t: &Tensor| ops::split(t, 0, &[2 * e, output]);
        let (w, b) = (parts(&self.wgates)?, parts(&self.bgates)?);
        let of = |i: usize| [w[i].clone(), b[i].clone()];
        Ok((of(0), Some(of(1))))
    }
}

/// Weights and biases of the gates f and i, and those of the output gate.
type BlockGates = ([Tensor; 2], Option<[Tensor; 2]>);

impl Mixer for BlockRecurrence {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, gate) = self.block.input.project(u, cx)?; // (batch, seq_len, E), (batch, rows, E)
        let ([wz, bz], output) = self.gates()?;
        let (z, output) = match output {
            Some([wo, bo]) => {
                let mut maps = project(&x, &[(&wz, Some(&bz))], &[(&wo, Some(&bo))], cx)?;
                (maps.all.remove(0), Some(maps.queried.remove(0)))
            }
            None => (linear(&x, &wz, Some(&bz))?, None),
        };
        let at = cx.rows().map(|rows| &rows.positions);
        let h = ops::gated_scan(&z, &x, &self.rule.gates()?, at)?;
        self.block.readout(&h, output.as_ref(), &gate)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.block.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let (x, gate) = self.block.input.project(&u.unsqueeze(0)?, &Cx::eval())?;
        let ([wz, bz], output) = self.gates()?;
        let (forget, input) = self.rule.gates()?.values(&linear(&x, &wz, Some(&bz))?)?;
        let output = match output {
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
            around: "driven by x = conv4(W_x u), a shift register of three steps before it; C_i holds the gates \
                     after it, gelu(W_g u) and the output gate if there is one, and the output projection",
        }))
    }
}

impl Recurrent for BlockRecurrence {
    fn init(&self, batch: usize) -> Result<State> {
        self.block.zero_state(batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [x, gate, window] = self.block.input.step(x_t, &state.0[1])?;
        let ([wz, bz], output) = self.gates()?;
        let h = self.rule.step(&linear(&x, &wz, Some(&bz))?, &x, &state.0[0])?;
        let output = match output {
            Some([wo, bo]) => Some(linear(&x, &wo, Some(&bo))?),
            None => None,
        };
        *state = State::new(vec![h.clone(), window]);
        self.block.readout(&h, output.as_ref(), &gate)
    }
}
