//! The layer of xLSTM 7B (Beck et al. 2025): mLSTM with values of width V, soft-capped gates, a norm of each head and
//! an output gate,
//!
//! y = W (σ(W_o u) ⊙ norm(C_tᵀ q_t / (max(|n_t·q_t|, e^-m_t) + ε))),  q = W_Q u / √(n/s)
//!
//! i = e^g(w_i·u + b_i),  f = σ(g(w_f·u + b_f)),  g(x) = cap tanh(x / cap)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | C, n | memory and normaliser, divided by e^m, one state of e + 1 columns, e = V/s | `(batch, heads, m, e + 1)` |
//! | m | stabiliser max(ln f_t + m_{t-1}, ln i_t), m_{-1} = 0; ε keeps it in y | `(batch, seq_len, heads)` |
//!
//! The norm subtracts the mean of each head. With biases it has one as well, as in the public code.

use super::matrix_state::{head_rms_scale, value_width, HeadSizes, VALUE_WIDTH};
use super::mlstm_cell::{forget_bias, log_gates, normaliser, CellInputs};
use super::running_max::running_max_with_gradient;
use super::{Core, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State, FALSE_OR_TRUE, NORM_EPS};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx, Init, Map, Params};
use crate::ops;
use candle_core::{Result, Tensor, D};

/// Name of this variant of mLSTM.
pub(super) const VARIANT: &str = "large";

/// Soft cap of the gates.
const GATE_CAP: MixerOption = MixerOption {
    name: "gate_cap",
    help: "bound that a tanh keeps the pre-activations of both gates within: `15`, another positive number, or `none`",
    default: |_| "15",
    accepts: |v| v == "none" || v.parse().is_ok_and(|cap: f64| cap > 0.0 && cap.is_finite()),
    variants: &[VARIANT],
    implied: true,
    ..MixerOption::DEFAULT
};

/// ε of the normaliser.
const DENOMINATOR_EPS: MixerOption = MixerOption {
    name: "denominator_eps",
    help: "number that is added to the normaliser: `1e-6`, or any between 0 and 1",
    default: |_| EPS_TEXT,
    variants: &[VARIANT],
    ..NORM_EPS
};

/// Default of both ε.
const EPS: f64 = 1e-6;
const EPS_TEXT: &str = "1e-6";

/// Options of this variant.
pub(super) const OPTIONS: [MixerOption; 5] = [
    MixerOption { variants: &[VARIANT], ..VALUE_WIDTH },
    GATE_CAP,
    DENOMINATOR_EPS,
    MixerOption {
        help: "ε of the norm of each head: `1e-6`, or a number between 0 and 1",
        default: |_| EPS_TEXT,
        variants: &[VARIANT],
        ..NORM_EPS
    },
    MixerOption {
        name: "bias",
        help: "whether the maps and the norm of each head have biases besides those of the gates: `false` or `true`",
        variants: &[VARIANT],
        ..FALSE_OR_TRUE
    },
];

pub(super) fn work(spec: &MixerSpec) -> MixerWork {
    let (d, n, width) = (spec.d_model, spec.d_state, value_width(spec));
    MixerWork::new(Core::MatrixScan, [width, n], d * (2 * n + 3 * width + 2 * spec.n_heads))
}

/// Weight of a map and its bias.
struct Biased(Tensor, Option<Tensor>);

impl Biased {
    fn map(&self) -> Map<'_> {
        (&self.0, self.1.as_ref())
    }
}

pub(super) struct MLstmLarge {
    q: Biased,
    k: Biased,
    v: Biased,
    /// Projection to the output gate, `(V, d)`.
    o: Biased,
    /// Projections to the input gates and the forget gates, `(heads, d)`, and their biases.
    i: [Tensor; 2],
    f: [Tensor; 2],
    /// Weights and biases of the norm, `(V)`.
    norm: Biased,
    out: Biased,
    sizes: HeadSizes,
    gate_cap: Option<f64>,
    denominator_eps: f64,
    norm_eps: f64,
}

/// Inputs of the recurrence and of the readout.
struct LayerInputs {
    cell: CellInputs,
    /// Output gate σ(W_o u), `(batch, rows, V)`.
    o: Tensor,
    /// Stabilisers m, `(batch, seq_len, heads)`.
    m: Tensor,
}

impl MLstmLarge {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        /// Initial bias of the input gates, small so that the state fills slowly.
        const INPUT_BIAS: f64 = -10.0;
        let (d, n, heads, width) = (spec.d_model, spec.d_state, spec.n_heads, value_width(spec));
        let biased = spec.has("bias");
        let map = |[weight, bias]: [&str; 2], (rows, fan_in): (usize, usize), std| -> Result<Biased> {
            let w = params.weight(weight, (rows, fan_in), std)?;
            Ok(Biased(w, biased.then(|| params.bias(bias, rows, fan_in)).transpose()?))
        };
        let gate = |[weight, bias]: [&str; 2], init| -> Result<[Tensor; 2]> {
            Ok([params.map(weight, (heads, d), Init::Constant(0.0))?, params.get(bias, heads, init)?])
        };
        let norm_bias = || params.get("bnorm", width, Init::Constant(0.0));
        Ok(Self {
            q: map(["wq", "bq"], (n, d), spec.input_std)?,
            k: map(["wk", "bk"], (n, d), spec.input_std)?,
            v: map(["wv", "bv"], (width, d), spec.input_std)?,
            o: map(["wo", "bo"], (width, d), spec.input_std)?,
            i: gate(["wi", "bi"], Init::Constant(INPUT_BIAS))?,
            f: gate(["wf", "bf"], Init::Each(&forget_bias(heads)))?,
            norm: Biased(params.get("norm", width, Init::Constant(1.0))?, biased.then(norm_bias).transpose()?),
            out: map(["wout", "bout"], (d, width), spec.output_std)?,
            sizes: HeadSizes { heads, features: n / heads, values: width / heads, columns: width / heads + 1 },
            gate_cap: match spec.option(GATE_CAP.name) {
                Some("none") => None,
                _ => Some(spec.parsed(GATE_CAP.name).unwrap_or(15.0)),
            },
            denominator_eps: spec.parsed(DENOMINATOR_EPS.name).unwrap_or(EPS),
            norm_eps: spec.parsed(NORM_EPS.name).unwrap_or(EPS),
        })
    }

    /// ln i and ln f along u, `(batch, seq_len, heads)` each.
    fn log_gates(&self, u: &Tensor) -> Result<[Tensor; 2]> {
        log_gates(u, &self.i, &self.f, self.gate_cap)
    }

    /// Inputs along u `(batch, seq_len, d)`, given the stabilisers `m` and those one token earlier,
    /// `(batch, seq_len, heads)` each.
    fn inputs(
        &self,
        u: &Tensor,
        [log_i, log_f]: [Tensor; 2],
        [m_prev, m]: [&Tensor; 2],
        cx: &Cx,
    ) -> Result<LayerInputs> {
        let sizes = self.sizes;
        let maps = project(u, &[self.k.map(), self.v.map()], &[self.q.map(), self.o.map()], cx)?;
        // Centred values make the state's output centred, so that a layer norm of it is an RMS norm.
        let v = sizes.split(&maps.all[1])?;
        let v = v.broadcast_sub(&v.mean_keepdim(D::Minus1)?)?;
        let q = (sizes.split(&maps.queried[0])? * (sizes.features as f64).powf(-0.5))?;
        let gates = [(log_f + (m_prev - m)?)?, (log_i - m)?, m.clone()];
        let cell = CellInputs::divided(q, &sizes.split(&maps.all[0])?, &v, gates, cx)?;
        Ok(LayerInputs { cell, o: ops::sigmoid(&maps.queried[1])?, m: m.clone() })
    }

    fn project(&self, u: &Tensor, cx: &Cx) -> Result<LayerInputs> {
        let [log_i, log_f] = self.log_gates(u)?;
        let (first, later) = (|x: &Tensor| x.narrow(1, 0, 1), |x: &Tensor| x.narrow(1, 1, x.dim(1)? - 1));
        let start = first(&log_i)?.maximum(&first(&log_f)?)?; // m_0 for m_{-1} = 0
        let m = running_max_with_gradient(&log_f, &Tensor::cat(&[&start, &later(&log_i)?], 1)?)?;
        let m_prev = Tensor::cat(&[&start.zeros_like()?, &m.narrow(1, 0, m.dim(1)? - 1)?], 1)?;
        self.inputs(u, [log_i, log_f], [&m_prev, &m], cx)
    }

    /// Values of o `(batch, rows, heads, columns)` and their factor by normaliser, norm and output gate,
    /// `(batch, rows, V)` each.
    fn values(&self, o: &Tensor, inputs: &LayerInputs) -> Result<[Tensor; 2]> {
        let values = o.narrow(D::Minus1, 0, self.sizes.values)?.contiguous()?.flatten_from(2)?;
        let normaliser = normaliser(o, &inputs.cell.floor, self.denominator_eps, self.sizes)?;
        let scale = head_rms_scale(&self.sizes.split(&(&values * &normaliser)?)?, self.norm_eps)?;
        let scale = (scale * normaliser)?.broadcast_mul(&self.norm.0.to_dtype(o.dtype())?)?;
        Ok([values, (scale * &inputs.o)?])
    }

    /// Part of the input of the output map that bypasses the state, `(batch, rows, V)`; `None` without biases.
    fn bypass(&self, inputs: &LayerInputs) -> Result<Option<Tensor>> {
        let gated = |b: &Tensor| inputs.o.broadcast_mul(&b.to_dtype(inputs.o.dtype())?);
        self.norm.1.as_ref().map(gated).transpose()
    }

    /// y `(batch, rows, d)` for o `(batch, rows, heads, columns)`.
    fn readout(&self, o: &Tensor, inputs: &LayerInputs) -> Result<Tensor> {
        let [values, scale] = self.values(o, inputs)?;
        let gated = (values * scale)?;
        let gated = match self.bypass(inputs)? {
            Some(bypass) => (gated + bypass)?,
            None => gated,
        };
        let (w, b) = self.out.map();
        linear(&gated, w, b)
    }
}

impl Mixer for MLstmLarge {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let inputs = self.project(u, cx)?;
        self.readout(&inputs.cell.scan.scan(cx)?, &inputs)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.sizes.state_size() + self.sizes.heads
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let (cx, sizes) = (Cx::eval(), self.sizes);
        let inputs = self.project(&u.unsqueeze(0)?, &cx)?;
        let [_, scale] = self.values(&inputs.cell.scan.scan(&cx)?, &inputs)?;
        let system = inputs.cell.scan.system(sizes)?;
        let system = Ltv {
            read: system.read.broadcast_mul(&scale.squeeze(0)?.unsqueeze(2)?)?,
            gate: Some(sizes.per_channel(&inputs.cell.gate.unsqueeze(3)?)?.squeeze(2)?),
            output: Some(self.out.0.clone()),
            ..system
        };
        let offset = match self.bypass(&inputs)? {
            Some(bypass) => Some(linear(&bypass.squeeze(0)?, &self.out.0, self.out.1.as_ref())?),
            None => None,
        };
        let values = inputs.cell.scan.v.narrow(3, 0, sizes.values)?.contiguous()?;
        Ok(Some(Inner {
            system: system.with_offset(offset.as_ref())?,
            input: values.flatten_from(2)?.squeeze(0)?,
            around:
                "driven by v = W_V u, centred in each head; C_i holds the normaliser, the scale of each head's norm, \
                     the output gate σ(W_o u) and the output projection",
        }))
    }
}

impl Recurrent for MLstmLarge {
    /// C and n, `(batch, heads, m, e + 1)`, and the stabiliser `(batch, heads)`.
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.out.0;
        let m = Tensor::zeros((batch, self.sizes.heads), like.dtype(), like.device())?;
        Ok(State::new(vec![self.sizes.zero_state(batch, like)?, m]))
    }

    fn read(&self, x: &Tensor) -> Result<(Tensor, State)> {
        let inputs = self.project(x, &Cx::eval())?;
        let (o, s) = inputs.cell.scan.scan_to_the_end()?;
        let last = inputs.m.narrow(1, inputs.m.dim(1)? - 1, 1)?.squeeze(1)?.contiguous()?;
        Ok((self.readout(&o, &inputs)?, State::new(vec![s, last])))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let u = x_t.unsqueeze(1)?;
        let [log_i, log_f] = self.log_gates(&u)?;
        let m_prev = state.0[1].unsqueeze(1)?;
        let m = (&log_f + &m_prev)?.maximum(&log_i)?;
        let inputs = self.inputs(&u, [log_i, log_f], [&m_prev, &m], &Cx::eval())?;
        let o = inputs.cell.scan.step(state)?;
        state.0[1] = m.squeeze(1)?;
        self.readout(&o, &inputs)?.squeeze(1)
    }
}
