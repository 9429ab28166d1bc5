//! DeltaNet (Schlag et al. 2021, Yang et al. 2024) and Gated DeltaNet (Yang et al. 2025): linear attention that overwrites the
//! value stored under a key instead of adding to it. The transition is not diagonal, which goes beyond the paper's framework:
//!
//! S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ,  o_t = S_tᵀ q_t,  |k_t| = |q_t| = 1
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | S | state, one matrix per head | `(batch, heads, m, e)` |
//! | β | write strength σ(w·u) | `(batch, seq_len, heads)` |
//! | α | forget gate e^(-a softplus(w·u + b)); 1 in DeltaNet | `(batch, seq_len, heads)` |

use super::matrix_state::{head_rms_scale, l2_normalize, work, HeadSizes, RankOne, ScanInputs};
use super::short_conv::ShortConv;
use super::state_space::mamba_dt_bias;
use super::{Entry, Family, Growth, Mixer, MixerSpec, Recurrent, State, StateNormPlace};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "delta-net",
    equation: "S_i = (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ, |k_i| = 1, β_i = σ(w·u_i)",
    cite: "Yang et al. 2024",
    dsf: "N = n d/s, behind its convolution",
    heads: true,
    multi_head: true,
    expands: true,
    // Zero rows leave the length of a key as it is.
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Stacked {
        zeroed: &["win", "conv_b"],
        parts: |name, spec| {
            let (n, d) = (spec.d_state, spec.d_model);
            ["win", "conv_w", "conv_b"].contains(&name).then(|| vec![n, n, d])
        },
    },
    stem: "delta_net",
    own_init: &["conv_b", "conv_w", "norm"],
    uncounted: &["conv_w"],
    // The direction of a short key is sensitive to its elements.
    difference_step: 1e-6,
    work: |spec| {
        let mut work = work(spec, 1);
        work.projections += spec.n_heads * spec.d_model;
        Some(work)
    },
    build: |spec, params| Ok(Box::new(DeltaNet::new(spec, params, None)?)),
    ..Entry::of(Family::GatedLinear)
};

pub(super) const GATED: Entry = Entry {
    name: "gated-delta-net",
    equation: "S_i = α_i (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ, α = e^(-a softplus(w·u+b))",
    cite: "Yang et al. 2025",
    stem: "gated_delta_net",
    own_init: &["a_log", "bdt", "conv_b", "conv_w", "norm"],
    work: |spec| {
        let mut work = work(spec, 2);
        work.projections += 2 * spec.n_heads * spec.d_model;
        Some(work)
    },
    build: |spec, params| {
        let gates = DeltaGates::new(spec, params)?;
        Ok(Box::new(DeltaNet::new(spec, params, Some(gates))?))
    },
    ..ENTRY
};

/// ε of the RMS norm over each head.
const EPS: f64 = 1e-5;

/// Parameters of Gated DeltaNet beyond those of DeltaNet.
struct DeltaGates {
    /// Projection to Δ, the step of the forget gate, `(heads, d)`.
    wa: Tensor,
    bdt: Tensor,
    /// ln a, `(heads)`.
    a_log: Tensor,
    /// Projection to the output gate, `(d, d)`.
    wg: Tensor,
}

impl DeltaGates {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, heads) = (spec.d_model, spec.n_heads);
        let a_log = |_: usize, rng: &mut Rng| (1.0 + 15.0 * rng.uniform()).ln();
        Ok(Self {
            wa: params.weight("wa", (heads, d), spec.input_std)?,
            bdt: params.get("bdt", heads, Init::Each(&mamba_dt_bias))?,
            a_log: params.get("a_log", heads, Init::Each(&a_log))?,
            wg: params.weight("wg", (d, d), spec.input_std)?,
        })
    }

    /// ln α = -a softplus(dt + b) for the projection dt `(batch, seq_len, heads)`.
    fn log_alpha(&self, dt: &Tensor) -> Result<Tensor> {
        let minus_a = self.a_log.exp()?.neg()?.to_dtype(dt.dtype())?;
        ops::softplus_biased(dt, &self.bdt)?.broadcast_mul(&minus_a)
    }
}

struct DeltaNet {
    /// Projections to q, k and v, stacked, `(2n + d, d)`; one convolution runs over all three.
    win: Tensor,
    conv: ShortConv,
    /// Projection to β, `(heads, d)`.
    wb: Tensor,
    gates: Option<DeltaGates>,
    /// Weights of the norm, `(e)`, shared by the heads.
    norm: Tensor,
    wout: Tensor,
    sizes: HeadSizes,
    d_state: usize,
}

impl DeltaNet {
    fn new(spec: &MixerSpec, params: &Params, gates: Option<DeltaGates>) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let sizes = HeadSizes::new(spec);
        Ok(Self {
            win: params.weight("win", (2 * n + d, d), spec.input_std)?,
            conv: ShortConv::new(2 * n + d, params)?,
            wb: params.weight("wb", (spec.n_heads, d), spec.input_std)?,
            gates,
            norm: params.get("norm", sizes.values, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
            sizes,
            d_state: n,
        })
    }

    /// Inputs of the recurrence for the convolved q, k, v `(batch, seq_len, 2n + d)` and the projections to β and dt
    /// `(batch, seq_len, heads)`.
    fn scan_inputs(&self, qkv: &Tensor, beta: &Tensor, dt: Option<&Tensor>, cx: &Cx) -> Result<ScanInputs> {
        let n = self.d_state;
        let qkv = ops::silu(qkv)?;
        let slice = |start, count| {
            let slice = qkv.narrow(D::Minus1, start, count)?.contiguous()?;
            self.sizes.split(&slice)
        };
        let k = l2_normalize(&slice(n, n)?)?; // (batch, seq_len, heads, m)
        let v = slice(2 * n, qkv.dim(D::Minus1)? - 2 * n)?; // (batch, seq_len, heads, e)
        let beta_k = k.broadcast_mul(&ops::sigmoid(beta)?.unsqueeze(3)?)?;
        // α (I - β k kᵀ) = diag(e^g) + a bᵀ with g = ln α, a = -α β k and b = k; β k vᵀ writes with β k as the key.
        let (g, a) = match self.gates.as_ref().zip(dt) {
            Some((gates, dt)) => {
                let g = gates.log_alpha(dt)?.unsqueeze(3)?; // (batch, seq_len, heads, 1)
                let a = beta_k.broadcast_mul(&g.exp()?)?.neg()?;
                (g, a)
            }
            None => (beta.zeros_like()?.unsqueeze(3)?, beta_k.neg()?),
        };
        Ok(ScanInputs {
            q: l2_normalize(&cx.select(&slice(0, n)?.flatten_from(2)?).and_then(|q| self.sizes.split(&q))?)?,
            k: beta_k,
            v,
            g,
            rank_one: Some(RankOne { a, b: k }),
        })
    }

    /// Inputs of the recurrence along u `(batch, seq_len, d)`, and the output gate before its activation, `(batch, rows, d)`.
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<(ScanInputs, Option<Tensor>)> {
        let all = [&[&self.win][..], &self.head_projections()].concat();
        let all: Vec<_> = all.into_iter().map(|w| (w, None)).collect();
        let gate = self.gates.as_ref().map(|gates| (&gates.wg, None));
        let mut maps = project(u, &all, gate.as_slice(), cx)?;
        let qkv = self.conv.forward(&maps.all[0])?;
        let inputs = self.scan_inputs(&qkv, &maps.all[1], maps.all.get(2), cx)?;
        Ok((inputs, maps.queried.pop()))
    }

    /// Factor of o `(batch, rows, heads, e)`: the RMS norm of each head times the output gate, `(batch, rows, d)`.
    fn output_scale(&self, o: &Tensor, gate: Option<&Tensor>) -> Result<Tensor> {
        let weights = Tensor::cat(&vec![&self.norm; self.sizes.heads], 0)?;
        let scale = head_rms_scale(o, EPS)?.broadcast_mul(&weights.to_dtype(o.dtype())?)?;
        match gate {
            Some(gate) => ops::silu_gate(&scale, gate),
            None => Ok(scale),
        }
    }

    /// y `(batch, rows, d)` for o `(batch, rows, heads, e)`.
    fn readout(&self, o: &Tensor, gate: Option<&Tensor>) -> Result<Tensor> {
        let y = (o.flatten_from(2)? * self.output_scale(o, gate)?)?;
        linear(&y, &self.wout, None)
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
        let scale = self.output_scale(&inputs.scan(&cx)?, gate.as_ref())?;
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
        Ok(State(vec![s, self.conv.window(batch)?]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let map = |w: &Tensor| linear(x_t, w, None)?.unsqueeze(1); // (batch, 1, out)
        let (qkv, window) = self.conv.step(&linear(x_t, &self.win, None)?, &state.0[1])?;
        let per_head = self.head_projections().into_iter().map(map);
        let per_head: Vec<Tensor> = per_head.collect::<Result<_>>()?;
        let gate = self.gates.as_ref().map(|gates| map(&gates.wg)).transpose()?;
        let qkv = qkv.unsqueeze(1)?;
        let inputs = self.scan_inputs(&qkv, &per_head[0], per_head.get(1), &Cx::eval())?;
        let o = inputs.step(state)?;
        state.0[1] = window;
        self.readout(&o, gate.as_ref())?.squeeze(1)
    }
}
