//! sLSTM as the layer of xLSTM's block (Beck et al. 2024, figure 10, without its feed-forward half): the cell of
//! [`slstm`](super::slstm) with heads, a short convolution before the gates f and i, and a norm of each head after the
//! output,
//!
//! y_t = norm(h_t),  h_t = o_t c_t / n_t,  gates f, i of silu(conv(u)) and z, o of u, all of h_{t-1} too
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | W, U | maps of each gate from the input and from h_{t-1}, block-diagonal with one block per head | `(d, d)` |
//! | b_f | initially 5 - 12 (j/(e-1))^p in channel j; p rises from 0.3 in the first layer to 1.6 in the last | `(d)` |

use super::blockwise::dense;
use super::matrix_state::{flat_heads, head_norm};
use super::short_conv::ShortConv;
use super::{Entry, Family, Gradient, Mixer, MixerSpec, Recurrent, ReleasedBlock, State, StateNormPlace};
use crate::nn::{linear, Cx, Init, Params, Scheme};
use crate::ops::{self, Expression, RecurrentCell};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "slstm-block",
    equation: "y = norm(sLSTM(z, f, i, o)), f, i of silu(conv(u)) and z, o of u, per head",
    cite: "Beck et al. 2024",
    variants: &["block"],
    dsf: "no (gates read y_{i-1})",
    heads: true,
    multi_head: true,
    released: ReleasedBlock::RNN,
    state_norm: StateNormPlace::TAKEN,
    stem: "slstm_block",
    authors_init: Some(Scheme::Small),
    own_init: &["bf", "conv_b", "conv_w", "norm", "uf", "ui", "uo", "uz"],
    depth_init: &["bf"],
    uncounted: &["conv_w"],
    gradient: &[("bi", Gradient::Cancels)],
    // Sequential, like its cell.
    work: |_| None,
    build: |spec, params| Ok(Box::new(SLstmBlock::new(spec, params)?)),
    ..Entry::of(Family::Recurrent)
};

/// ε of the layer norm over each head.
const EPS: f64 = 1e-5;

/// Gates in the order of the cell.
const GATES: [&str; 4] = ["z", "f", "i", "o"];

const CELL: RecurrentCell = RecurrentCell::SLstm;

struct SLstmBlock {
    conv: ShortConv,
    /// Rows of the blocks of W and U of each gate, `(d, d / heads)`, and biases.
    w: Vec<Tensor>,
    u: Vec<Tensor>,
    b: Vec<Tensor>,
    /// Weights of the norm, `(d)`.
    norm: Tensor,
    heads: usize,
}

impl SLstmBlock {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, width) = (spec.d_model, spec.d_model / spec.n_heads);
        let depth = spec.layer as f64 / spec.n_layers.saturating_sub(1).max(1) as f64;
        let forget_bias = |channel: usize, _: &mut _| {
            let place = (channel % width) as f64 / width.saturating_sub(1).max(1) as f64;
            5.0 - 12.0 * place.powf(0.3 + 1.3 * depth)
        };
        let each = |of: &dyn Fn(&str) -> Result<Tensor>| GATES.into_iter().map(of).collect::<Result<Vec<_>>>();
        Ok(Self {
            conv: ShortConv::new(d, params)?,
            w: each(&|gate| params.weight(&format!("w{gate}"), (d, width), spec.input_std))?,
            u: each(&|gate| params.map(&format!("u{gate}"), (d, width), Init::Constant(0.0)))?,
            b: each(&|gate| match gate {
                "f" => params.get("bf", d, Init::Each(&forget_bias)),
                _ => params.bias(&format!("b{gate}"), d, d),
            })?,
            norm: params.get("norm", d, Init::Constant(1.0))?,
            heads: spec.n_heads,
        })
    }

    fn width(&self) -> usize {
        self.norm.elem_count()
    }

    /// Whole matrices of the given gates' blocks, one above the other.
    fn stacked(&self, blocks: &[&Tensor]) -> Result<Tensor> {
        let all = blocks.iter().map(|w| dense(w, self.width()));
        ops::join(&all.collect::<Result<Vec<_>>>()?, 0)
    }

    /// W u + b of all gates, `(.., 4d)`, for u and its convolution, `(.., d)` each.
    fn pre_activations(&self, u: &Tensor, convolved: &Tensor) -> Result<Tensor> {
        let [z, f, i, o] = [0, 1, 2, 3].map(|gate| &self.w[gate]);
        let of_input = linear(u, &self.stacked(&[z, o])?, None)?;
        let of_shift = linear(&ops::silu(convolved)?, &self.stacked(&[f, i])?, None)?;
        let last = u.rank() - 1;
        let of_input = ops::split(&of_input, last, &[self.width(); 2])?;
        let all = ops::join(&[&of_input[0], &of_shift, &of_input[1]], last)?;
        all.broadcast_add(&ops::join(&self.b, 0)?.to_dtype(all.dtype())?)
    }

    /// y for the output of the cell, `(batch, rows, d)` each.
    fn readout(&self, h: &Tensor) -> Result<Tensor> {
        let (batch, rows, d) = h.dims3()?;
        let by_head = ops::reshape(h, (batch, rows, self.heads, d / self.heads))?;
        let normed = head_norm(&Expression::of(&by_head), [self.heads, d / self.heads], &self.norm, None, EPS);
        flat_heads(&normed.tensor()?)
    }

    /// U of all gates, `(4d, d)`.
    fn recurrent_map(&self) -> Result<Tensor> {
        self.stacked(&self.u.iter().collect::<Vec<_>>())
    }
}

impl Mixer for SLstmBlock {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let wu = self.pre_activations(u, &self.conv.forward(u)?)?;
        let h = ops::recurrent(&wu, &self.recurrent_map()?, &CELL)?;
        self.readout(&cx.select(&h)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        CELL.states() * self.width() + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its gates read past outputs, so that Λ_i is not a function of the input alone"
    }
}

impl Recurrent for SLstmBlock {
    /// State of the cell, then the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = CELL.init((batch, self.width()), &self.norm)?;
        state.push(self.conv.window(batch)?);
        Ok(State::new(state))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (convolved, window) = self.conv.step(x_t, &state.0[CELL.states()])?;
        let wu = self.pre_activations(x_t, &convolved)?;
        let uy = linear(&state.0[0], &self.recurrent_map()?, None)?;
        state.0 = CELL.step(&wu, &uy, &state.0[..CELL.states()])?;
        state.0.push(window);
        self.readout(&state.0[0].unsqueeze(1)?)?.squeeze(1)
    }
}
