//! Matrix-valued states of linear attention: one matrix S per head, updated at every token,
//!
//! S_t = (diag(e^{g_t}) + a_t b_tᵀ) S_{t-1} + k_t v_tᵀ,  o_t = S_tᵀ q_t.
//!
//! [`ScanInputs`] runs it as a scan over the sequence, as one step, and as a system (11). Gated linear attention has no
//! rank-one term a bᵀ; the delta rule has one. [`MatrixState`] is a mixer of the first kind with
//! y_t = W (scale(o_t) ⊙ o_t) + b.
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | S | state, m = n/s features by e = d/s values | `(batch, heads, m, e)` |
//! | q, k, v | queries, keys, values | `(batch, seq_len, heads, m or e)` |
//! | g | log decay, at most 0, per feature or per head | `(batch, seq_len, heads, m or 1)` |

use super::rotary::RotaryPositions;
use super::state_norm::{self, rms_scale, rms_scale_of, StateNorm};
use super::{in_range, Core, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State, FALSE_OR_TRUE, NORM_EPS};
use crate::ltv::{Inner, Ltv, OffDiagonal};
use crate::nn::{linear, Cx, Map, Params};
use crate::ops::{self, Expression};
use candle_core::shape::Dim;
use candle_core::{Result, Tensor, D};

/// Width of the values of all heads.
pub(super) const VALUE_WIDTH: MixerOption = MixerOption {
    name: "value_width",
    help: "width of the values and of the output gate: `auto` (--d) or a number that --heads divides",
    default: |_| "auto",
    accepts: |v| v == "auto" || in_range(v, 1..=1 << 20),
    implied: true,
    ..MixerOption::DEFAULT
};

/// Whether a layer has an output gate.
pub(super) const OUTPUT_GATE: MixerOption = MixerOption {
    name: "output_gate",
    help: "whether a gate silu(W_g u) multiplies the normed output of each head: `true` or `false`",
    default: |_| "true",
    ..FALSE_OR_TRUE
};

/// Whether a layer has an output gate, where `gated` is the default.
pub(super) fn has_output_gate(spec: &MixerSpec, gated: bool) -> bool {
    spec.option(OUTPUT_GATE.name).map_or(gated, |value| value == "true")
}

/// Whether queries are divided by √m. A norm of each head follows, so that this changes its ε alone.
pub(super) const SCALED_QUERIES: MixerOption = MixerOption {
    name: "scaled_queries",
    help: "whether queries are divided by √(n/heads), as in flash-linear-attention: `false` or `true`",
    ..FALSE_OR_TRUE
};

/// Value of [`VALUE_WIDTH`] with its name, where it is set.
pub(super) fn values(spec: &MixerSpec) -> Option<(&'static str, usize)> {
    spec.parsed(VALUE_WIDTH.name).map(|width| (VALUE_WIDTH.name, width))
}

/// Width of the values of all heads, d unless [`VALUE_WIDTH`] sets it.
pub(super) fn value_width(spec: &MixerSpec) -> usize {
    values(spec).map_or(spec.d_model, |(_, width)| width)
}

/// Factor of queries: 1/√m with [`SCALED_QUERIES`], else 1.
pub(super) fn query_scale(spec: &MixerSpec) -> f64 {
    match spec.has(SCALED_QUERIES.name) {
        true => ((spec.d_state / spec.n_heads) as f64).powf(-0.5),
        false => 1.0,
    }
}

/// ε of a layer's norm, `default` unless [`NORM_EPS`] sets it.
pub(super) fn norm_eps(spec: &MixerSpec, default: f64) -> f64 {
    spec.parsed(NORM_EPS.name).unwrap_or(default)
}

/// Inputs of the recurrence.
pub(super) struct ScanInputs {
    /// Queries `(batch, rows, heads, m)`.
    pub q: Tensor,
    /// Keys `(batch, seq_len, heads, m)`.
    pub k: Tensor,
    /// Values `(batch, seq_len, heads, columns)`.
    pub v: Tensor,
    /// Log decays, at most 0: one per row of the state, `(batch, seq_len, heads, m)`, or one per head, `(.., 1)`.
    pub g: Tensor,
    /// The term a bᵀ of the transition; `None` where it is diagonal.
    pub rank_one: Option<RankOne>,
}

/// Factors of the rank-one term a bᵀ of the transition, `(batch, seq_len, heads, m)` each: b reads the state, a writes
/// to it. In fla's DPLR kernels, whose state is the transpose of this one, the letters are swapped: a reads and b
/// writes.
pub(super) struct RankOne {
    pub a: Tensor,
    pub b: Tensor,
}

impl ScanInputs {
    /// o `(batch, rows, heads, columns)` at the positions that `cx` selects.
    pub fn scan(&self, cx: &Cx) -> Result<Tensor> {
        let Self { q, k, v, g, rank_one } = self;
        let at = cx.rows().map(|rows| &rows.positions);
        match rank_one {
            None => ops::gla(q, k, v, g, at),
            Some(RankOne { a, b }) => ops::delta_rule(q, k, v, a, b, g, at),
        }
    }

    /// o `(batch, seq_len, heads, columns)` at every token, and the state S `(batch, heads, m, columns)` after the last.
    /// It is read by m further tokens that change nothing, with unit vectors as queries.
    pub fn scan_to_the_end(&self) -> Result<(Tensor, Tensor)> {
        let (batch, seq_len, heads, m) = self.k.dims4()?;
        let longer = |x: &Tensor| {
            let (_, _, width, last) = x.dims4()?;
            let nothing = Tensor::zeros((batch, m, width, last), x.dtype(), x.device())?;
            Tensor::cat(&[x, &nothing], 1)
        };
        let units = Tensor::eye(m, self.q.dtype(), self.q.device())?.reshape((1, m, 1, m))?;
        let units = units.broadcast_as((batch, m, heads, m))?.contiguous()?;
        let rank_one = |RankOne { a, b }: &RankOne| -> Result<RankOne> { Ok(RankOne { a: longer(a)?, b: longer(b)? }) };
        let inputs = Self {
            q: Tensor::cat(&[&self.q, &units], 1)?,
            k: longer(&self.k)?,
            v: longer(&self.v)?,
            g: longer(&self.g)?,
            rank_one: self.rank_one.as_ref().map(rank_one).transpose()?,
        };
        let o = inputs.scan(&Cx::eval())?;
        let state = o.narrow(1, seq_len, m)?.transpose(1, 2)?.contiguous()?;
        Ok((o.narrow(1, 0, seq_len)?.contiguous()?, state))
    }

    /// o `(batch, 1, heads, columns)` of one token; advances S, the first tensor of the state.
    pub fn step(&self, state: &mut State) -> Result<Tensor> {
        let column = |x: &Tensor| x.squeeze(1)?.unsqueeze(3); // (batch, heads, m, 1)
        let row = |x: &Tensor| x.squeeze(1)?.unsqueeze(2); // (batch, heads, 1, columns)
        let s = &state.0[0]; // (batch, heads, m, columns)
        let mut transported = s.broadcast_mul(&column(&self.g.exp()?)?)?;
        if let Some(RankOne { a, b }) = &self.rank_one {
            let b_s = s.broadcast_mul(&column(b)?)?.sum_keepdim(2)?; // (batch, heads, 1, columns)
            transported = (transported + column(a)?.broadcast_mul(&b_s)?)?;
        }
        let kv = column(&self.k)?.broadcast_mul(&row(&self.v)?)?;
        let s = (transported + kv)?;
        let o = s.broadcast_mul(&column(&self.q)?)?.sum(2)?.unsqueeze(1)?;
        state.0[0] = s;
        Ok(o)
    }

    /// The system (11) from v to o along one sequence: state c·m + k is row k of the column of channel c.
    pub fn system(&self, sizes: HeadSizes) -> Result<Ltv> {
        let write = sizes.per_channel(&self.k)?;
        let decay = sizes.per_channel(&self.g.exp()?)?;
        let decay = decay.broadcast_as(write.shape())?.contiguous()?;
        Ok(Ltv {
            off_diagonal: match &self.rank_one {
                None => OffDiagonal::Zero,
                Some(RankOne { a, b }) => OffDiagonal::RankOne { a: sizes.per_channel(a)?, b: sizes.per_channel(b)? },
            },
            ..Ltv::new(decay, write, sizes.per_channel(&self.q)?)
        })
    }
}

/// Sizes of a layer's heads.
#[derive(Clone, Copy)]
pub(super) struct HeadSizes {
    /// Number of heads, s.
    pub heads: usize,
    /// Rows of a head's state, m = n/s.
    pub features: usize,
    /// Values of a head, e = d/s unless their width is set.
    pub values: usize,
    /// Columns of a head's state: the values, and one more where a column of ones accumulates the normaliser.
    pub columns: usize,
}

impl HeadSizes {
    /// Sizes for `spec`, without a column of ones.
    pub fn new(spec: &MixerSpec) -> Self {
        let (heads, values) = (spec.n_heads, value_width(spec) / spec.n_heads);
        Self { heads, features: spec.d_state / heads, values, columns: values }
    }

    /// `(batch, rows, heads · width)` to `(batch, rows, heads, width)`.
    pub fn split(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, rows, width) = x.dims3()?;
        ops::reshape(x, (batch, rows, self.heads, width / self.heads))
    }

    /// x `(1, seq_len, heads, m)`, repeated for each channel of its head: `(seq_len, d, m)`.
    pub fn per_channel(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.squeeze(0)?.unsqueeze(2)?; // (seq_len, heads, 1, m)
        let (seq_len, heads, _, width) = x.dims4()?;
        let wide = (seq_len, heads, self.values, width);
        let wide = x.broadcast_as(wide)?.contiguous()?;
        wide.reshape((seq_len, heads * self.values, width))
    }

    /// Constant log decays, one per head, for keys `(batch, seq_len, heads, m)`: `(batch, seq_len, heads, 1)`.
    pub fn constant_decays(&self, log_decays: &[f64], k: &Tensor) -> Result<Tensor> {
        let (batch, seq_len, ..) = k.dims4()?;
        let decays = Tensor::new(log_decays, k.device())?.to_dtype(k.dtype())?;
        let decays = decays.reshape((1, 1, self.heads, 1))?;
        decays.broadcast_as((batch, seq_len, self.heads, 1))?.contiguous()
    }

    /// Initial state of zeros, `(batch, heads, m, columns)`, of the dtype and on the device of `like`.
    pub fn zero_state(&self, batch: usize, like: &Tensor) -> Result<Tensor> {
        let shape = (batch, self.heads, self.features, self.columns);
        Tensor::zeros(shape, like.dtype(), like.device())
    }

    /// Elements of the state per sequence.
    pub fn state_size(&self) -> usize {
        self.heads * self.features * self.columns
    }
}

/// Arithmetic of such a layer with `more` maps between residual stream and values besides the projections to queries,
/// keys and values.
pub(super) fn work(spec: &MixerSpec, more: usize) -> MixerWork {
    let (d, n, width) = (spec.d_model, spec.d_state, value_width(spec));
    MixerWork::new(Core::MatrixScan, [width, n], d * (2 * n + width + more * width))
}

/// A mixer with a matrix-valued state whose transition is diagonal.
pub(super) trait MatrixState {
    /// Inputs of the output gate or normaliser, apart from o.
    type Gate;

    /// Reason why the mixer itself is not a system (11), with what surrounds the system inside it; `None` where it is
    /// one.
    const AROUND: Option<&'static str>;

    /// Whether a sequence has the same state as its tokens one by one: not where it is divided by a stabiliser.
    const SAME_STATE: bool = true;

    fn sizes(&self) -> HeadSizes;

    /// Inputs of the recurrence along u `(batch, seq_len, d)`, and those of the output gate at the queried positions.
    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, Self::Gate)>;

    /// Whether the mean over a head is subtracted from its values, and with it from its outputs: the part of a group norm
    /// that is linear in them.
    fn is_centred(&self) -> bool {
        false
    }

    /// Factor of the keys that the decays depend on too, `(batch, seq_len, heads)`, for analysis; `None` where there is
    /// none.
    fn gate(&self, _u: &Tensor) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// Normaliser of o `(batch, rows, heads, columns)`, as a factor `(batch, rows, d)`; `None` stands for 1.
    fn normaliser(&self, _o: &Tensor, _gate: &Self::Gate) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// Factor of the normalised o `(batch, rows, heads, columns)`, which broadcasts to `(batch, rows, heads, e)`; `None`
    /// stands for 1.
    fn output_scale(&self, o: &Tensor, gate: &Self::Gate) -> Result<Option<Expression>>;

    /// Value projection `(d, d)` and its bias.
    fn value(&self) -> Map<'_>;

    /// Output projection and its bias; `None` is the identity.
    fn output(&self) -> Option<Map<'_>>;
}

/// A [`MatrixState`] as a mixer.
pub(super) struct MatrixMixer<M> {
    core: M,
    /// RMS norm between normaliser and output gate.
    norm: Option<StateNorm>,
}

impl<M: MatrixState> MatrixMixer<M> {
    pub fn new(core: M, spec: &MixerSpec, params: &Params) -> Result<Self> {
        Ok(Self { core, norm: StateNorm::new(spec, value_width(spec), params)? })
    }

    /// [`MatrixState::project`] with centred values where the mixer centres them.
    fn project(&self, u: &Tensor, at: &RotaryPositions) -> Result<(ScanInputs, M::Gate)> {
        let (mut inputs, gate) = self.core.project(u, at)?;
        if self.core.is_centred() {
            inputs.v = centred(&inputs.v, D::Minus1)?;
        }
        Ok((inputs, gate))
    }

    /// Factor of the values of o `(batch, rows, heads, columns)`, which broadcasts to `(batch, rows, heads, e)`; `None`
    /// stands for 1.
    fn scale(&self, o: &Tensor, gate: &M::Gate) -> Result<Option<Expression>> {
        let product = |a: Option<Tensor>, b: Option<Tensor>| match (a, b) {
            (Some(a), Some(b)) => (a * b).map(Some),
            (a, b) => Ok(a.or(b)),
        };
        let mut scale = self.core.normaliser(o, gate)?;
        if let Some(norm) = &self.norm {
            let values = flat_heads(&self.values(o)?)?;
            let normalised = match &scale {
                Some(scale) => (values * scale)?,
                None => values,
            };
            scale = product(Some(norm.scale(&normalised)?), scale)?;
        }
        let scale = scale.map(|scale| Ok::<_, candle_core::Error>(Expression::of(&self.core.sizes().split(&scale)?)));
        Ok(match (self.core.output_scale(o, gate)?, scale.transpose()?) {
            (Some(a), Some(b)) => Some(a * b),
            (a, b) => a.or(b),
        })
    }

    /// y `(batch, rows, d)` for o `(batch, rows, heads, columns)`.
    fn readout(&self, o: &Tensor, gate: &M::Gate) -> Result<Tensor> {
        let values = self.values(o)?;
        let scaled = match self.scale(o, gate)? {
            Some(scale) => (Expression::of(&values) * scale).tensor()?,
            None => values,
        };
        let scaled = flat_heads(&scaled)?;
        match self.core.output() {
            Some((w, b)) => linear(&scaled, w, b),
            None => Ok(scaled),
        }
    }

    /// The columns of o that hold values, `(batch, rows, heads, e)`.
    fn values(&self, o: &Tensor) -> Result<Tensor> {
        let values = self.core.sizes().values;
        o.narrow(D::Minus1, 0, values)?.contiguous()
    }

    /// The system along u `(seq_len, d)`.
    fn system(&self, u: &Tensor) -> Result<Ltv> {
        let (sizes, cx) = (self.core.sizes(), Cx::eval());
        let (inputs, gate) = self.project(&u.unsqueeze(0)?, &RotaryPositions::Sequence(&cx))?;
        let o = inputs.scan(&cx)?;
        let mut system = inputs.system(sizes)?;
        if let Some(scale) = self.scale(&o, &gate)? {
            let scale = scale.tensor()?.broadcast_as(self.values(&o)?.shape())?.contiguous()?;
            let scale = flat_heads(&scale)?.squeeze(0)?.unsqueeze(2)?; // (seq_len, d, 1)
            system.read = system.read.broadcast_mul(&scale)?;
        }
        let (value, bias) = self.core.value();
        let output = self.core.output();
        let gate = self.core.gate(&u.unsqueeze(0)?)?;
        let gate = gate.map(|gate| sizes.per_channel(&gate.unsqueeze(3)?)?.squeeze(2));
        let value = match bias {
            Some(b) => Tensor::cat(&[value, &b.unsqueeze(1)?], 1)?,
            None => value.clone(),
        };
        let value = match self.core.is_centred() {
            true => {
                let (rows, columns) = value.dims2()?;
                centred(&value.reshape((sizes.heads, sizes.values, columns))?, 1)?.reshape((rows, columns))?
            }
            false => value,
        };
        Ok(Ltv {
            gate: gate.transpose()?,
            value: Some(value),
            output: output.map(|(w, _)| w.clone()),
            offset: output.and_then(|(_, b)| b.cloned()),
            ..system
        })
    }
}

impl<M: MatrixState> Mixer for MatrixMixer<M> {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (inputs, gate) = self.project(u, &RotaryPositions::Sequence(cx))?;
        self.readout(&inputs.scan(cx)?, &gate)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.core.sizes().state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        match (M::AROUND, &self.norm) {
            (None, None) => self.system(u).map(Some),
            _ => Ok(None),
        }
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let Some(around) = M::AROUND else {
            let normed = || Ok(Inner { system: self.system(u)?, input: u.clone(), around: state_norm::AROUND });
            return self.norm.as_ref().map(|_| normed()).transpose();
        };
        let mut system = self.system(u)?;
        // The inner system starts after the value projection.
        let value = system.value.take();
        let input = match value {
            Some(value) => linear(u, &value, None)?,
            None => u.clone(),
        };
        Ok(Some(Inner { system, input, around }))
    }
}

impl<M: MatrixState> Recurrent for MatrixMixer<M> {
    /// S `(batch, heads, m, columns)`.
    fn init(&self, batch: usize) -> Result<State> {
        let (w, _) = self.core.value();
        Ok(State::new(vec![self.core.sizes().zero_state(batch, w)?]))
    }

    fn read(&self, x: &Tensor) -> Result<(Tensor, State)> {
        if !M::SAME_STATE {
            return self.read_by_steps(x);
        }
        let (inputs, gate) = self.project(x, &RotaryPositions::Sequence(&Cx::eval()))?;
        let (o, s) = inputs.scan_to_the_end()?;
        Ok((self.readout(&o, &gate)?, State::new(vec![s])))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let (inputs, gate) = self.project(&x_t.unsqueeze(1)?, &RotaryPositions::Token(at))?;
        let o = inputs.step(state)?;
        self.readout(&o, &gate)?.squeeze(1)
    }
}

/// x without its mean over axis `dim`.
fn centred(x: &Tensor, dim: impl Dim + Copy) -> Result<Tensor> {
    x.broadcast_sub(&x.mean_keepdim(dim)?)
}

/// Factor of o `(batch, rows, heads, e)`: the RMS norm of each head, times weights `(e)` that the heads share, times silu
/// of a gate `(batch, rows, d)`. It broadcasts to o.
pub(super) fn normed_and_gated(
    o: &Tensor,
    weights: Option<&Tensor>,
    gate: Option<&Tensor>,
    eps: f64,
) -> Result<Expression> {
    let (_, _, heads, width) = o.dims4()?;
    let mut scale = rms_scale_of(&Expression::of(o), width, eps);
    if let Some(weights) = weights {
        let weights = Tensor::cat(&vec![weights; heads], 0)?;
        scale = scale * Expression::parameter_as(&weights, (heads, width));
    }
    if let Some(gate) = gate {
        scale = scale.silu_gate(Expression::of(&ops::reshape(gate, o.shape())?));
    }
    Ok(scale)
}

/// [`rms_scale`] of each head of o `(batch, rows, heads, e)`, repeated for its channels: `(batch, rows, d)`.
pub(super) fn head_rms_scale(o: &Tensor, eps: f64) -> Result<Tensor> {
    let scale = rms_scale(o, eps)?; // (batch, rows, heads, 1)
    scale.broadcast_as(o.shape())?.contiguous()?.flatten_from(2)
}

/// Group norm with one group per head, of o `(batch, rows, heads, e)` with weights and biases `(d)`; `[heads, width]` are
/// its last sizes.
pub(super) fn head_norm(
    o: &Expression,
    [heads, width]: [usize; 2],
    weight: &Tensor,
    bias: Option<&Tensor>,
    eps: f64,
) -> Expression {
    let mean = |x: &Expression| x.row_sum() * (1.0 / width as f64);
    let parameter = |x: &Tensor| Expression::parameter_as(x, (heads, width));
    let centred = o - &mean(o);
    let variance = mean(&centred.sqr());
    let mut normed = centred / (variance + eps).sqrt() * parameter(weight);
    if let Some(bias) = bias {
        normed = normed + parameter(bias);
    }
    normed
}

/// `(batch, rows, heads, e)` to `(batch, rows, d)`.
pub(super) fn flat_heads(x: &Tensor) -> Result<Tensor> {
    let (batch, rows, heads, width) = x.dims4()?;
    ops::reshape(x, (batch, rows, heads * width))
}

/// ε of [`l2_normalize`].
pub(super) const L2_EPS: f64 = 1e-6;

/// x / √(|x|² + ε) along the last axis.
pub(super) fn l2_normalize(x: &Tensor) -> Result<Tensor> {
    unit_rows(&Expression::of(x), L2_EPS).tensor()
}

/// x / √(|x|² + ε) along the last axis.
pub(super) fn unit_rows(x: &Expression, eps: f64) -> Expression {
    x / &(x.sqr().row_sum() + eps).sqrt()
}

/// ln σ(x), without overflow.
pub(super) fn log_sigmoid(x: &Tensor) -> Result<Tensor> {
    Expression::of(x).log_sigmoid().tensor()
}
