//! DeltaNet (Schlag et al. 2021, Yang et al. 2024) and Gated DeltaNet (Yang et al. 2025): linear attention that
//! overwrites the value stored under a key instead of adding to it. The transition is not diagonal, which goes beyond
//! the paper's framework:
//!
//! S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ,  o_t = S_tᵀ q_t,  |k_t| = |q_t| = 1
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | S | state, one matrix per head | `(batch, heads, m, e)` |
//! | β | write strength σ(w·u), or 2σ(w·u) with negative eigenvalues | `(batch, seq_len, heads)` |
//! | α | forget gate e^(-a softplus(w·u + b)); 1 in DeltaNet | `(batch, seq_len, heads)` |

use super::matrix_state::{
    self, flat_heads, has_output_gate, norm_eps, normed_and_gated, query_scale, unit_rows, value_width, work,
    HeadSizes, RankOne, ScanInputs, L2_EPS, OUTPUT_GATE, SCALED_QUERIES, VALUE_WIDTH,
};
use super::short_conv::{ShortConv, CONV_BIAS, CONV_WIDTH};
use super::state_space::mamba_dt_bias;
use super::{
    in_range, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State, StateNormPlace,
    FALSE_OR_TRUE, NORM_EPS,
};
use crate::error::{self, refuse};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
use crate::ops::Expression;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "delta-net",
    equation: "S_i = (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ, |k_i| = 1, β_i = σ(w·u_i)",
    cite: "Yang et al. 2024",
    dsf: "N = n d/s, after its convolution",
    heads: true,
    multi_head: true,
    expands: true,
    values: matrix_state::values,
    check: check_key_heads,
    options: &options(false),
    state_norm: StateNormPlace::TAKEN,
    // Zero rows leave the length of a key as it is.
    growth: Growth::Stacked {
        zeroed: &["win", "conv_b"],
        parts: |name, spec| {
            let (keys, width) = (key_width(spec), value_width(spec));
            ["win", "conv_w", "conv_b"].contains(&name).then(|| vec![keys, keys, width])
        },
    },
    stem: "delta_net",
    own_init: &["conv_b", "conv_w", "norm"],
    uncounted: &["conv_w"],
    // The direction of a short key is sensitive to its elements.
    difference_step: 1e-6,
    work: |spec| Some(delta_work(spec, false, 1)),
    build: |spec, params| Ok(Box::new(DeltaNet::new(spec, params, [false; 2])?)),
    ..Entry::of(Family::GatedLinear)
};

pub(super) const GATED: Entry = Entry {
    name: "gated-delta-net",
    equation: "S_i = α_i (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ, α = e^(-a softplus(w·u+b))",
    cite: "Yang et al. 2025",
    options: &options(true),
    stem: "gated_delta_net",
    own_init: &["a_log", "bdt", "conv_b", "conv_w", "norm"],
    work: |spec| Some(delta_work(spec, true, 2)),
    build: |spec, params| Ok(Box::new(DeltaNet::new(spec, params, [true; 2])?)),
    ..ENTRY
};

/// Option for a transition with eigenvalues from -1.
const NEGATIVE_EIGENVALUES: &str = "negative_eigenvalues";

/// Options of both mixers; `gated` says whether there is an output gate by default.
const fn options(gated: bool) -> [MixerOption; 8] {
    [
        VALUE_WIDTH,
        MixerOption {
            name: KEY_HEADS,
            help: "heads of queries and keys, each of which serves several heads of values: `auto` (--heads) or a number that divides --heads",
            default: |_| "auto",
            accepts: |v| v == "auto" || in_range(v, 1..=1 << 20),
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption { default: if gated { |_| "true" } else { |_| "false" }, ..OUTPUT_GATE },
        MixerOption {
            name: NEGATIVE_EIGENVALUES,
            help: "whether β = 2σ(w·u), so that the transition has eigenvalues in [-1, 1] (Grazzi et al. 2025): `false` or `true`",
            ..FALSE_OR_TRUE
        },
        SCALED_QUERIES,
        CONV_WIDTH,
        CONV_BIAS,
        MixerOption {
            help: "ε of the norm of each head: `1e-5`, or a number between 0 and 1",
            default: |_| "1e-5",
            ..NORM_EPS
        },
    ]
}

/// Option for heads of keys that serve several heads of values.
const KEY_HEADS: &str = "key_heads";

/// Heads of queries and keys.
fn key_heads(spec: &MixerSpec) -> usize {
    spec.parsed(KEY_HEADS).unwrap_or(spec.n_heads)
}

/// Width of the keys of all their heads, n unless heads of values share them.
fn key_width(spec: &MixerSpec) -> usize {
    spec.d_state / spec.n_heads * key_heads(spec)
}

fn check_key_heads(spec: &MixerSpec) -> error::Result<()> {
    let (heads, key_heads) = (spec.n_heads, key_heads(spec));
    if heads.is_multiple_of(key_heads) {
        return Ok(());
    }
    refuse!(flag "--option" = format!("{KEY_HEADS}={key_heads}"), "does not divide --heads {heads}: each head of keys serves an equal number of heads of values")
}

/// Arithmetic of both mixers; `gated` says whether there is an output gate by default, `per_head` is the number of
/// projections to one number per head.
fn delta_work(spec: &MixerSpec, gated: bool, per_head: usize) -> MixerWork {
    let mut work = work(spec, 1 + usize::from(has_output_gate(spec, gated)));
    work.projections += per_head * spec.n_heads * spec.d_model;
    work.projections -= 2 * (spec.d_state - key_width(spec)) * spec.d_model;
    work
}

/// ε of the RMS norm over each head.
const EPS: f64 = 1e-5;

/// Parameters of the forget gate of Gated DeltaNet.
struct DeltaGates {
    /// Projection to Δ, the step of the forget gate, `(heads, d)`.
    wa: Tensor,
    bdt: Tensor,
    /// ln a, `(heads)`.
    a_log: Tensor,
}

impl DeltaGates {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, heads) = (spec.d_model, spec.n_heads);
        let a_log = |_: usize, rng: &mut Rng| (1.0 + 15.0 * rng.uniform()).ln();
        Ok(Self {
            wa: params.weight("wa", (heads, d), spec.input_std)?,
            bdt: params.get("bdt", heads, Init::Each(&mamba_dt_bias))?,
            a_log: params.get("a_log", heads, Init::Each(&a_log))?,
        })
    }

    /// ln α = -a softplus(dt + b) for the projection dt `(batch, seq_len, heads)`.
    fn log_alpha(&self, dt: &Tensor) -> Result<Tensor> {
        let minus_a = -Expression::parameter(&self.a_log).exp();
        (Expression::of(&ops::softplus_biased(dt, &self.bdt)?) * minus_a).tensor()
    }
}

struct DeltaNet {
    /// Projections to q, k and v, stacked, `(2K + V, d)` for keys of width K = n, or less where heads share them, and
    /// values of width V; one convolution runs over all three.
    win: Tensor,
    conv: ShortConv,
    /// Projection to β, `(heads, d)`.
    wb: Tensor,
    gates: Option<DeltaGates>,
    /// Projection to the output gate, `(V, d)`.
    wg: Option<Tensor>,
    /// Weights of the norm, `(e)`, shared by the heads.
    norm: Tensor,
    wout: Tensor,
    sizes: HeadSizes,
    key_heads: usize,
    query_scale: f64,
    /// Largest β: 1, or 2 with negative eigenvalues.
    largest_beta: f64,
    eps: f64,
}

impl DeltaNet {
    /// The mixer with or without a forget gate, and whether it has an output gate by default.
    fn new(spec: &MixerSpec, params: &Params, [forgets, gated]: [bool; 2]) -> Result<Self> {
        let (d, keys, width) = (spec.d_model, key_width(spec), value_width(spec));
        let sizes = HeadSizes::new(spec);
        let wg = || params.weight("wg", (width, d), spec.input_std);
        Ok(Self {
            win: params.weight("win", (2 * keys + width, d), spec.input_std)?,
            conv: ShortConv::of(spec, 2 * keys + width, params)?,
            wb: params.weight("wb", (spec.n_heads, d), spec.input_std)?,
            gates: forgets.then(|| DeltaGates::new(spec, params)).transpose()?,
            wg: has_output_gate(spec, gated).then(wg).transpose()?,
            norm: params.get("norm", sizes.values, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
            sizes,
            key_heads: key_heads(spec),
            query_scale: query_scale(spec),
            largest_beta: if spec.has(NEGATIVE_EIGENVALUES) { 2.0 } else { 1.0 },
            eps: norm_eps(spec, EPS),
        })
    }

    /// Inputs of the recurrence for the convolved q, k, v `(batch, seq_len, 2K + V)` and the projections to β and dt
    /// `(batch, seq_len, heads)`.
    fn scan_inputs(&self, qkv: &Tensor, beta: &Tensor, dt: Option<&Tensor>, cx: &Cx) -> Result<ScanInputs> {
        let keys = self.key_heads * self.sizes.features;
        let qkv = ops::silu(qkv)?;
        let parts = ops::split(&qkv, 2, &[keys, keys, qkv.dim(D::Minus1)? - 2 * keys])?;
        let k = self.unit_keys(&parts[1])?; // (batch, seq_len, heads, m)
        let v = self.sizes.split(&parts[2])?; // (batch, seq_len, heads, e)
        let scaled = |x: Expression, factor: f64| if factor == 1.0 { x } else { x * factor };
        let per_row = |x: &Tensor| {
            let (batch, rows, heads) = x.dims3()?;
            ops::reshape(x, (batch, rows, heads, 1))
        };
        let beta_k = &k * &scaled(Expression::of(&per_row(beta)?).sigmoid(), self.largest_beta);
        // α (I - β k kᵀ) = diag(e^g) + a bᵀ with g = ln α, a = -α β k and b = k; β k vᵀ writes with β k as the key.
        let (g, a) = match self.gates.as_ref().zip(dt) {
            Some((gates, dt)) => {
                let g = per_row(&gates.log_alpha(dt)?)?; // (batch, seq_len, heads, 1)
                let a = -(&beta_k * &Expression::of(&g).exp());
                (g, a)
            }
            None => (beta.zeros_like()?.unsqueeze(3)?, -beta_k.clone()),
        };
        let [b, k, a] = ops::tensors([&k, &beta_k, &a])?;
        let q = scaled(self.unit_keys(&cx.select(&parts[0])?)?, self.query_scale).tensor()?;
        Ok(ScanInputs { q, k, v, g, rank_one: Some(RankOne { a, b }) })
    }

    /// Keys or queries `(batch, rows, K)` at length 1, repeated for the heads of values: `(batch, rows, heads, m)`.
    fn unit_keys(&self, x: &Tensor) -> Result<Expression> {
        let (batch, rows, width) = x.dims3()?;
        let by_head = ops::reshape(x, (batch, rows, self.key_heads, width / self.key_heads))?;
        let unit = unit_rows(&Expression::of(&by_head), L2_EPS);
        if self.key_heads == self.sizes.heads {
            return Ok(unit);
        }
        let wide = (batch, rows, self.key_heads, self.sizes.heads / self.key_heads, self.sizes.features);
        let wide = unit.tensor()?.unsqueeze(3)?.broadcast_as(wide)?.contiguous()?;
        Ok(Expression::of(&wide.reshape((batch, rows, self.sizes.heads, self.sizes.features))?))
    }

    /// Inputs of the recurrence along u `(batch, seq_len, d)`, and the output gate before its activation,
    /// `(batch, rows, V)`.
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<(ScanInputs, Option<Tensor>)> {
        let all = [&[&self.win][..], &self.head_projections()].concat();
        let all: Vec<_> = all.into_iter().map(|w| (w, None)).collect();
        let gate = self.wg.as_ref().map(|w| (w, None));
        let mut maps = project(u, &all, gate.as_slice(), cx)?;
        let qkv = self.conv.forward(&maps.all[0])?;
        let inputs = self.scan_inputs(&qkv, &maps.all[1], maps.all.get(2), cx)?;
        Ok((inputs, maps.queried.pop()))
    }

    /// Factor of o `(batch, rows, heads, e)`: the RMS norm of each head times the output gate.
    fn output_scale(&self, o: &Tensor, gate: Option<&Tensor>) -> Result<Expression> {
        normed_and_gated(o, Some(&self.norm), gate, self.eps)
    }

    /// y `(batch, rows, d)` for o `(batch, rows, heads, e)`.
    fn readout(&self, o: &Tensor, gate: Option<&Tensor>) -> Result<Tensor> {
        let y = (Expression::of(o) * self.output_scale(o, gate)?).tensor()?;
        linear(&flat_heads(&y)?, &self.wout, None)
    }

    /// Projections to one number per head: to β and, with gates, to dt.
    fn head_projections(&self) -> Vec<&Tensor> {
        let dt = self.gates.as_ref().map(|gates| &gates.wa);
        [Some(&self.wb), dt].into_iter().flatten().collect()
    }
}

impl Mixer for DeltaNet {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (inputs, gate) = self.project(u, cx)?;
        self.readout(&inputs.scan(cx)?, gate.as_ref())
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.sizes.state_size() + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let cx = Cx::eval();
        let (inputs, gate) = self.project(&u.unsqueeze(0)?, &cx)?;
        let scale = flat_heads(&self.output_scale(&inputs.scan(&cx)?, gate.as_ref())?.tensor()?)?;
        let system = inputs.system(self.sizes)?;
        Ok(Some(Inner {
            system: Ltv {
                read: system
                    .read
                    .broadcast_mul(&scale.squeeze(0)?.unsqueeze(2)?)?,
                output: Some(self.wout.clone()),
                ..system
            },
            input: inputs.v.squeeze(0)?.flatten_from(1)?,
            around: "driven by its values, v = silu(conv4(W_v u)), a shift register of three steps and a nonlinearity before \
                     it; C_i holds the norm of a head, the gate if there is one, and the output projection",
        }))
    }
}

impl Recurrent for DeltaNet {
    /// S `(batch, heads, m, e)`, and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let s = self.sizes.zero_state(batch, &self.win)?;
        Ok(State::new(vec![s, self.conv.window(batch)?]))
    }

    fn read(&self, x: &Tensor) -> Result<(Tensor, State)> {
        let (inputs, gate) = self.project(x, &Cx::eval())?;
        let (o, s) = inputs.scan_to_the_end()?;
        let window = self.conv.window_after(&linear(x, &self.win, None)?)?;
        Ok((self.readout(&o, gate.as_ref())?, State::new(vec![s, window])))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let map = |w: &Tensor| linear(x_t, w, None)?.unsqueeze(1); // (batch, 1, out)
        let (qkv, window) = self.conv.step(&linear(x_t, &self.win, None)?, &state.0[1])?;
        let per_head = self.head_projections().into_iter().map(map);
        let per_head: Vec<Tensor> = per_head.collect::<Result<_>>()?;
        let gate = self.wg.as_ref().map(map).transpose()?;
        let qkv = qkv.unsqueeze(1)?;
        let inputs = self.scan_inputs(&qkv, &per_head[0], per_head.get(1), &Cx::eval())?;
        let o = inputs.step(state)?;
        state.0[1] = window;
        self.readout(&o, gate.as_ref())?.squeeze(1)
    }
}
