//! mLSTM as the block of xLSTM (Beck et al. 2024, figure 11): the cell of [`mlstm`](super::mlstm) at an expanded width
//! E, after a short convolution, with a norm of each head, a skip around it and a SiLU gate,
//!
//! y = W_out ((norm(mLSTM(q, k, v)) + s ⊙ a) ⊙ silu(z)),  a = silu(conv(x)),  q, k = W a,  v = W_V x,  x, z = W u
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | W_Q, W_K, W_V | block-diagonal maps | `(n, E)`, `(n, E)`, `(E, E)` |
//! | f, i | forget gate σ(·) and input gate e^(·) of a linear map of q, k and v | `(batch, seq_len, heads)` |
//! | s | weights of the skip, 1 at the start | `(E)` |
//!
//! It differs from the public code in two places: queries and keys have the width n, which is E there, and nothing is
//! added to the normaliser, where the code adds 1e-6.

use super::blockwise::{blocks, dense};
use super::gated_block::GatedInput;
use super::matrix_state::{head_rms_scale, HeadSizes};
use super::mlstm_cell::{forget_bias, log_gates, normaliser, CellInputs};
use super::rotary::RotaryPositions;
use super::{Core, Entry, Family, Growth, Mixer, MixerSpec, MixerWork, Recurrent, State, StateNormPlace};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, Cx, Init, Params, Scheme};
use crate::ops;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "mlstm-block",
    equation: "y = W ((norm(mLSTM(q, k, v)) + s a) ⊙ silu(z)), q, k = W a, a = silu(conv(x))",
    cite: "Beck et al. 2024",
    variants: &["block"],
    dsf: "N = n E/s, after its convolution",
    heads: true,
    multi_head: true,
    expands: true,
    widens: true,
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::No("the blocks of its maps to queries and keys depend on n"),
    stem: "mlstm_block",
    authors_init: Some(Scheme::Small),
    own_init: &["bf", "bi", "conv_b", "conv_w", "norm", "skip", "wf", "wi"],
    depth_init: &["wout"],
    uncounted: &["conv_w"],
    work: |spec| {
        let (d, width, n, heads) = (spec.d_model, spec.inner_width(), spec.d_state, spec.n_heads);
        let to_state = 2 * n * width / blocks(width, n) + width * width / blocks(width, width);
        let projections = 3 * width * d + to_state + 2 * heads * (2 * n + width);
        Some(MixerWork::new(Core::MatrixScan, [width, n], projections))
    },
    build: |spec, params| Ok(Box::new(MLstmBlock::new(spec, params)?)),
    ..Entry::of(Family::Recurrent)
};

/// ε of the layer norm over each head.
const EPS: f64 = 1e-5;

struct MLstmBlock {
    /// Projections to x and z, and the convolution.
    input: GatedInput,
    /// Rows of the blocks of the maps to queries, keys and values.
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    /// Projection of q, k and v to the input gates, `(heads, 2n + E)`, and its bias.
    i: [Tensor; 2],
    /// The same to the forget gates.
    f: [Tensor; 2],
    /// Weights of the norm, `(E)`.
    norm: Tensor,
    skip: Tensor,
    wout: Tensor,
    sizes: HeadSizes,
}

/// Inputs of the recurrence and of the readout.
struct BlockInputs {
    cell: CellInputs,
    /// a and silu(z) at the queried positions, `(batch, rows, E)` each.
    a: Tensor,
    z: Tensor,
}

impl MLstmBlock {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let input = GatedInput::new(spec, params, true)?;
        let (n, heads, width) = (spec.d_state, spec.n_heads, input.width);
        let map = |name, rows: usize| {
            let block = width / blocks(width, rows);
            params.weight(name, (rows, block), spec.input_std)
        };
        let gate = |[weight, bias]: [&str; 2], init| -> Result<[Tensor; 2]> {
            let shape = (heads, 2 * n + width);
            Ok([params.map(weight, shape, Init::Constant(0.0))?, params.get(bias, heads, init)?])
        };
        Ok(Self {
            wq: map("wq", n)?,
            wk: map("wk", n)?,
            wv: map("wv", width)?,
            i: gate(["wi", "bi"], Init::Normal(0.1))?,
            f: gate(["wf", "bf"], Init::Each(&forget_bias(heads)))?,
            norm: params.get("norm", width, Init::Constant(1.0))?,
            skip: params.get("skip", width, Init::Constant(1.0))?,
            wout: params.weight("wout", (spec.d_model, width), spec.output_std)?,
            sizes: HeadSizes { heads, features: n / heads, values: width / heads, columns: width / heads + 1 },
            input,
        })
    }

    /// Inputs for x and its convolution, `(batch, seq_len, E)` each, and z at the queried positions,
    /// `(batch, rows, E)`.
    fn inputs(&self, x: &Tensor, convolved: &Tensor, z: &Tensor, at: &RotaryPositions) -> Result<BlockInputs> {
        let (cx, sizes) = (at.cx(), self.sizes);
        let a = ops::silu(convolved)?;
        let map = |w: &Tensor, x: &Tensor| linear(x, &dense(w, self.input.width)?, None);
        let (q, k, v) = (map(&self.wq, &a)?, map(&self.wk, &a)?, map(&self.wv, x)?);
        let qkv = ops::join(&[&q, &k, &v], q.rank() - 1)?;
        let log_gates = log_gates(&qkv, &self.i, &self.f, None)?;
        // Centred values make the state's output centred, so that a layer norm of it is an RMS norm.
        let v = sizes.split(&v)?;
        let v = v.broadcast_sub(&v.mean_keepdim(D::Minus1)?)?;
        let k = (sizes.split(&k)? * (sizes.features as f64).powf(-0.5))?;
        let cell = CellInputs::new(sizes.split(&cx.select(&q)?)?, &k, &v, log_gates, at)?;
        Ok(BlockInputs { cell, a: cx.select(&a)?, z: ops::silu(z)? })
    }

    fn project(&self, u: &Tensor, cx: &Cx) -> Result<BlockInputs> {
        let (x, z) = self.input.maps(u, cx)?;
        self.inputs(&x, &self.input.conv.forward(&x)?, &z, &RotaryPositions::Sequence(cx))
    }

    /// Values of o `(batch, rows, heads, columns)` and their factor by normaliser and norm, `(batch, rows, E)` each.
    fn values(&self, o: &Tensor, floor: &Tensor) -> Result<[Tensor; 2]> {
        let values = o.narrow(D::Minus1, 0, self.sizes.values)?.contiguous()?;
        let normaliser = normaliser(o, floor, 0.0, self.sizes)?;
        let values = values.flatten_from(2)?;
        let scale = head_rms_scale(&self.sizes.split(&(&values * &normaliser)?)?, EPS)?;
        let norm = self.norm.to_dtype(o.dtype())?;
        Ok([values, (scale * normaliser)?.broadcast_mul(&norm)?])
    }

    /// s ⊙ a ⊙ silu(z), the part of the output that bypasses the state, `(batch, rows, E)`.
    fn bypass(&self, inputs: &BlockInputs) -> Result<Tensor> {
        inputs.a.broadcast_mul(&self.skip.to_dtype(inputs.a.dtype())?)? * &inputs.z
    }

    /// y `(batch, rows, d)` for o `(batch, rows, heads, columns)`.
    fn readout(&self, o: &Tensor, inputs: &BlockInputs) -> Result<Tensor> {
        let [values, scale] = self.values(o, &inputs.cell.floor)?;
        let gated = ((values * scale)? * &inputs.z)?;
        linear(&(gated + self.bypass(inputs)?)?, &self.wout, None)
    }
}

impl Mixer for MLstmBlock {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let inputs = self.project(u, cx)?;
        self.readout(&inputs.cell.scan.scan(cx)?, &inputs)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.sizes.state_size() + self.input.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let (cx, sizes) = (Cx::eval(), self.sizes);
        let inputs = self.project(&u.unsqueeze(0)?, &cx)?;
        let [_, scale] = self.values(&inputs.cell.scan.scan(&cx)?, &inputs.cell.floor)?;
        let scale = (scale * &inputs.z)?.squeeze(0)?.unsqueeze(2)?; // (seq_len, E, 1)
        let system = inputs.cell.scan.system(sizes)?;
        let values = inputs.cell.scan.v.narrow(3, 0, sizes.values)?.contiguous()?;
        let bypass = linear(&self.bypass(&inputs)?.squeeze(0)?, &self.wout, None)?;
        let system = Ltv {
            read: system.read.broadcast_mul(&scale)?,
            gate: Some(sizes.per_channel(&inputs.cell.gate.unsqueeze(3)?)?.squeeze(2)?),
            output: Some(self.wout.clone()),
            ..system
        };
        Ok(Some(Inner {
            system: system.with_offset(Some(&bypass))?,
            input: values.flatten_from(2)?.squeeze(0)?,
            around: "driven by v = W_V W_x u, centred in each head; its keys and queries come from a = silu(conv4(W_x u)), and C_i and \
                     D_i hold the normaliser, the scale of each head's norm, the skip s ⊙ a, the gate silu(W_z u) and the output \
                     projection",
        }))
    }
}

impl Recurrent for MLstmBlock {
    /// C and n, `(batch, heads, m, e + 1)`, and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let s = self.sizes.zero_state(batch, &self.wout)?;
        Ok(State::new(vec![s, self.input.conv.window(batch)?]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let (x, z) = self.input.maps(&x_t.unsqueeze(1)?, &Cx::eval())?;
        let (convolved, window) = self.input.conv.step(&x.squeeze(1)?, &state.0[1])?;
        let inputs = self.inputs(&x, &convolved.unsqueeze(1)?, &z, &RotaryPositions::Token(at))?;
        let o = inputs.cell.scan.step(state)?;
        state.0[1] = window;
        self.readout(&o, &inputs)?.squeeze(1)
    }
}
