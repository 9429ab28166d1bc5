//! Time mixing of RWKV-7 (Peng et al. 2025): a generalised delta rule with a vector-valued decay, after a token shift,
//!
//! S_t = (diag(w_t) - (a_t ⊙ κ_t) κ_tᵀ) S_{t-1} + k_t v_tᵀ,  o_t = S_tᵀ r_t
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | r, k, v | receptance (the query), key, value | `(batch, seq_len, n)`; v `(.., d)` |
//! | w | decay e^(-e^(-1/2) σ(z)) per feature, at least 0.54 | `(batch, seq_len, n)` |
//! | a | in-context learning rate, between 0 and 1 | `(batch, seq_len, n)` |
//! | κ (`kk`) | removal key k ⊙ k_k, normalised per head | `(batch, seq_len, heads, m)` |
//! | r_k | weight of the current token in o | `(n)` |
//! | v | in layers after the first, with the option: v + σ(W_2 W_1 x_v + b) ⊙ (v_first - v) | `(batch, seq_len, d)` |
//!
//! v_first are the values of the first layer, which the published network has.

use super::matrix_state::{flat_heads, head_norm, norm_eps, unit_rows, work, HeadSizes, RankOne, ScanInputs, L2_EPS};
use super::token_shift::lerps;
use super::{
    in_range, Carried, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, Recurrent, State, StateNormPlace,
    FALSE_OR_TRUE, NORM_EPS,
};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops::{self, Expression};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "rwkv7",
    equation: "S_i = (diag(w_i) - (a_i ⊙ κ_i) κ_iᵀ) S_{i-1} + k_i v_iᵀ, |κ_i| = 1",
    cite: "Peng et al. 2025",
    dsf: "no (token shift)",
    heads: true,
    multi_head: true,
    expands: true,
    options: &[
        MixerOption {
            name: LORA_RANK,
            help: "rank of the low-rank projections (LoRA) to w, a, g and v: `16`, up to 4096",
            default: |_| "16",
            accepts: |v| in_range(v, 1..=4096),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "w_rank",
            help: "rank of the projection to w alone: `auto` (lora_rank), or up to 4096",
            ..RANK
        },
        MixerOption {
            name: "a_rank",
            help: "rank of the projection to a alone: `auto` (lora_rank), or up to 4096",
            ..RANK
        },
        MixerOption {
            name: "g_rank",
            help: "rank of the projection to g alone: `auto` (lora_rank), or up to 4096",
            ..RANK
        },
        MixerOption {
            name: "v_rank",
            help: "rank of the projection to v alone: `auto` (lora_rank), or up to 4096",
            ..RANK
        },
        MixerOption {
            name: VALUE_RESIDUAL,
            help: "whether values are interpolated with those of the first layer, as published: `false` or `true`",
            ..FALSE_OR_TRUE
        },
        MixerOption {
            help: "ε of the norm of each head: `64e-5`, or a number between 0 and 1",
            default: |_| "64e-5",
            ..NORM_EPS
        },
        MixerOption {
            name: KEY_EPS,
            help: "ε of the length of a removal key, √(|k|² + ε): `1e-6`, or a number between 0 and 1",
            default: |_| "1e-6",
            ..NORM_EPS
        },
    ],
    // Zero rows leave the length of a key as it is, and write nothing to the new rows of the state.
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Exact { zeroed: &["wk"], scaled: &[] },
    stem: "rwkv7",
    own_init: &[
        "ba",
        "bnorm",
        "bonus",
        "bw",
        "key_scale",
        "key_share",
        "mu_a",
        "mu_g",
        "mu_k",
        "mu_r",
        "mu_v",
        "mu_w",
        "norm",
    ],
    depth_init: &["bw", "mu_a", "mu_g", "mu_k", "mu_r", "mu_v", "mu_w"],
    // The direction of a short key is sensitive to its elements.
    difference_step: 1e-6,
    work: |spec| {
        let (d, n) = (spec.d_model, spec.d_state);
        let mut work = work(spec, 1);
        work.projections += (rank(spec, "w_rank") + rank(spec, "a_rank")) * (d + n) + rank(spec, "g_rank") * 2 * d;
        if has_value_residual(spec) {
            work.projections += rank(spec, "v_rank") * 2 * d;
        }
        Some(work)
    },
    build: |spec, params| Ok(Box::new(Rwkv7::new(spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// Option for the rank of all low-rank projections.
const LORA_RANK: &str = "lora_rank";

/// Option for the rank of one of them.
const RANK: MixerOption = MixerOption {
    default: |_| "auto",
    accepts: |v| v == "auto" || in_range(v, 1..=4096),
    implied: true,
    ..MixerOption::DEFAULT
};

/// Option for values that are interpolated with those of the first layer.
const VALUE_RESIDUAL: &str = "value_residual";

/// Option for the ε of the length of removal keys.
const KEY_EPS: &str = "key_eps";

/// Rank of the low-rank projection that the option `name` is about.
fn rank(spec: &MixerSpec, name: &str) -> usize {
    spec.parsed(name).or(spec.parsed(LORA_RANK)).unwrap_or(16)
}

/// Whether the values of this layer are interpolated with those of the first.
fn has_value_residual(spec: &MixerSpec) -> bool {
    spec.has(VALUE_RESIDUAL) && spec.layer > 0
}

/// ε of the group norm.
const EPS: f64 = 64e-5;

/// Index of an interpolated input by the projection that reads it.
#[derive(Clone, Copy)]
enum Mix {
    R,
    W,
    K,
    V,
    A,
    G,
}

const MU: [&str; 6] = ["mu_r", "mu_w", "mu_k", "mu_v", "mu_a", "mu_g"];

/// Low-rank projection: `down` `(rank, d)`, then `up` `(out, rank)`.
struct Lora {
    down: Tensor,
    up: Tensor,
}

struct Rwkv7 {
    /// Weights of the previous token in the interpolations, in the order of [`Mix`], `(d)` each.
    mu: [Tensor; 6],
    wr: Tensor,
    wk: Tensor,
    wv: Tensor,
    wout: Tensor,
    w_lora: Lora,
    a_lora: Lora,
    g_lora: Lora,
    /// Whether layers share the values of the first.
    value_residual: bool,
    /// Projection to the weight of the first layer's values, and its bias `(d)`.
    v_lora: Option<(Lora, Tensor)>,
    /// Biases of w and a, `(n)`.
    bw: Tensor,
    ba: Tensor,
    /// Scale of the removal key, `(n)`.
    k_k: Tensor,
    /// Share of a in the key, `(n)`.
    k_a: Tensor,
    /// Weight of the current token, `(n)`.
    r_k: Tensor,
    /// Weight and bias of the group norm, `(d)`.
    norm: Tensor,
    bnorm: Tensor,
    eps: f64,
    key_eps: f64,
    sizes: HeadSizes,
}

/// Inputs of the recurrence and of the readout.
struct Rwkv7Inputs {
    scan: ScanInputs,
    /// Contribution of the current token to o, `(batch, rows, heads, e)`.
    bonus: Tensor,
    /// Output gate, `(batch, rows, d)`.
    g: Tensor,
}

impl Rwkv7 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let ratio_1_to_0 = 1.0 - spec.layer as f64 / spec.n_layers.max(1) as f64;
        let mix = move |power: f64| move |i: usize, _: &mut _| 1.0 - (i as f64 / d as f64).powf(power * ratio_1_to_0);
        // Initial values of the authors' code.
        let powers = [0.2, 0.9, 0.7, 0.7, 0.9, 0.2];
        let mu = |i: usize| params.get(MU[i], d, Init::Each(&mix(powers[i])));
        let ratio_0_to_1 = spec.layer as f64 / spec.n_layers.saturating_sub(1).max(1) as f64;
        let decay_speed = move |i: usize, _: &mut _| {
            let position = i as f64 / (n - 1).max(1) as f64;
            -6.5 + 5.0 * position.powf(0.85 + ratio_0_to_1.sqrt())
        };
        let lora = |[down, up]: [&str; 2], option: &str, out: usize| -> Result<Lora> {
            let rank = rank(spec, option);
            Ok(Lora {
                down: params.weight(down, (rank, d), spec.input_std)?,
                up: params.weight(up, (out, rank), spec.input_std)?,
            })
        };
        let constant = |name, size: usize, value| params.get(name, size, Init::Constant(value));
        let v_lora = || -> Result<_> { Ok((lora(["wv1", "wv2"], "v_rank", d)?, constant("bv", d, 0.0)?)) };
        Ok(Self {
            mu: [mu(0)?, mu(1)?, mu(2)?, mu(3)?, mu(4)?, mu(5)?],
            wr: params.weight("wr", (n, d), spec.input_std)?,
            wk: params.weight("wk", (n, d), spec.input_std)?,
            wv: params.weight("wv", (d, d), spec.input_std)?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
            w_lora: lora(["ww1", "ww2"], "w_rank", n)?,
            a_lora: lora(["wa1", "wa2"], "a_rank", n)?,
            g_lora: lora(["wg1", "wg2"], "g_rank", d)?,
            value_residual: spec.has(VALUE_RESIDUAL),
            v_lora: has_value_residual(spec).then(v_lora).transpose()?,
            bw: params.get("bw", n, Init::Each(&decay_speed))?,
            ba: constant("ba", n, 0.0)?,
            k_k: constant("key_scale", n, 0.85)?,
            k_a: constant("key_share", n, 1.0)?,
            r_k: constant("bonus", n, 0.0)?,
            norm: constant("norm", d, 1.0)?,
            bnorm: constant("bnorm", d, 0.0)?,
            eps: norm_eps(spec, EPS),
            key_eps: spec.parsed(KEY_EPS).unwrap_or(L2_EPS),
            sizes: HeadSizes::new(spec),
        })
    }

    /// Projections of u `(batch, seq_len, d)`, where `u_prev` is u shifted by one token. The layer that finds no
    /// values of the first one in `carried` sets them.
    fn project(&self, u: &Tensor, u_prev: &Tensor, carried: &mut Carried, cx: &Cx) -> Result<Rwkv7Inputs> {
        let [r, w, k, v, a, g] = self.mu.each_ref();
        let [[r, w, k], [v, a, g]] = [lerps(u, u_prev, [r, w, k])?, lerps(u, u_prev, [v, a, g])?];
        let inputs = [r, w, k, v, a, g]; // (batch, seq_len, d)
        let mixed = |mix: Mix| &inputs[mix as usize];
        let split = |x: &Tensor| self.sizes.split(x); // (batch, seq_len, heads, m or e)
        let r = linear(&cx.select(mixed(Mix::R))?, &self.wr, None)?; // (batch, rows, n)
        let k = linear(mixed(Mix::K), &self.wk, None)?; // (batch, seq_len, n)
        let xv = mixed(Mix::V);
        let v = linear(xv, &self.wv, None)?; // (batch, seq_len, d)
        let v = match (&self.v_lora, &carried.first_values) {
            (Some((lora, bias)), Some(first)) => {
                let weight = linear(&linear(xv, &lora.down, None)?, &lora.up, Some(bias))?;
                (&v + (ops::sigmoid(&weight)? * (first - &v)?)?)?
            }
            _ => v,
        };
        if self.value_residual {
            carried.first_values.get_or_insert_with(|| v.clone());
        }
        let hidden = Expression::of(&linear(mixed(Mix::W), &self.w_lora.down, None)?).tanh().tensor()?;
        let w = linear(&hidden, &self.w_lora.up, Some(&self.bw))?; // (batch, seq_len, n)
        let hidden = linear(mixed(Mix::A), &self.a_lora.down, None)?;
        let a = linear(&hidden, &self.a_lora.up, Some(&self.ba))?; // in front of its sigmoid
        let xg = cx.select(mixed(Mix::G))?;
        let hidden = ops::sigmoid(&linear(&xg, &self.g_lora.down, None)?)?;
        let g = linear(&hidden, &self.g_lora.up, None)?; // (batch, rows, d)
        let by_head = |x: &Tensor| Expression::parameter_as(x, (self.sizes.heads, self.sizes.features));
        let (raw, a) = (Expression::of(&split(&k)?), Expression::of(&split(&a)?).sigmoid());
        let kk = unit_rows(&(&raw * &by_head(&self.k_k)), self.key_eps);
        // k (1 + (a - 1) k_a)
        let k = raw * (a.affine(1.0, -1.0) * by_head(&self.k_a) + 1.0);
        let [k, b, a] = ops::tensors([&k, &kk, &-(&kk * &a)])?;
        // (Σ r ⊙ k ⊙ r_k) v per head
        let q = split(&r)?; // (batch, rows, heads, m)
        let k_at = self.sizes.split(&cx.select(&flat_heads(&k)?)?)?;
        let r_k = (Expression::of(&q) * Expression::of(&k_at) * by_head(&self.r_k)).row_sum().tensor()?;
        let bonus = (Expression::of(&split(&cx.select(&v)?)?) * Expression::of(&r_k)).tensor()?;
        Ok(Rwkv7Inputs {
            scan: ScanInputs {
                q,
                k,
                v: split(&v)?,
                g: (Expression::of(&split(&w)?).sigmoid() * -(-0.5f64).exp()).tensor()?,
                rank_one: Some(RankOne { a, b }),
            },
            bonus,
            g,
        })
    }

    /// y `(batch, rows, d)` for o `(batch, rows, heads, e)`.
    fn readout(&self, o: &Tensor, bonus: &Tensor, g: &Tensor) -> Result<Tensor> {
        let (heads, values) = (self.sizes.heads, self.sizes.values);
        let normed = head_norm(&Expression::of(o), [heads, values], &self.norm, Some(&self.bnorm), self.eps);
        let gated = (normed + Expression::of(bonus)) * Expression::of(&self.sizes.split(g)?);
        linear(&flat_heads(&gated.tensor()?)?, &self.wout, None)
    }
}

impl Mixer for Rwkv7 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        self.forward_with(u, &mut Carried::default(), cx)
    }

    fn forward_with(&self, u: &Tensor, carried: &mut Carried, cx: &Cx) -> Result<Tensor> {
        let Rwkv7Inputs { scan, bonus, g } = self.project(u, &ops::shift(u)?, carried, cx)?;
        self.readout(&scan.scan(cx)?, &bonus, &g)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.sizes.state_size() + self.norm.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its token shift reads two tokens at a time, its Λ_i is a diagonal plus a matrix of rank one, and a norm of each head and \
         a weight of the current token follow"
    }
}

impl Recurrent for Rwkv7 {
    /// S `(batch, heads, m, e)` and the previous token `(batch, d)`.
    fn init(&self, batch: usize) -> Result<State> {
        let s = self.sizes.zero_state(batch, &self.wr)?;
        let shape = (batch, self.norm.elem_count());
        let u_prev = Tensor::zeros(shape, self.wr.dtype(), self.wr.device())?;
        Ok(State::new(vec![s, u_prev]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        self.step_with(x_t, at, state, &mut Carried::default())
    }

    fn read(&self, x: &Tensor) -> Result<(Tensor, State)> {
        self.read_with(x, &mut Carried::default())
    }

    fn read_with(&self, x: &Tensor, carried: &mut Carried) -> Result<(Tensor, State)> {
        let Rwkv7Inputs { scan, bonus, g } = self.project(x, &ops::shift(x)?, carried, &Cx::eval())?;
        let (o, s) = scan.scan_to_the_end()?;
        let last = x.narrow(1, x.dim(1)? - 1, 1)?.squeeze(1)?.contiguous()?;
        Ok((self.readout(&o, &bonus, &g)?, State::new(vec![s, last])))
    }

    fn step_with(&self, x_t: &Tensor, _at: usize, state: &mut State, carried: &mut Carried) -> Result<Tensor> {
        let u_prev = state.0[1].unsqueeze(1)?;
        let Rwkv7Inputs { scan, bonus, g } = self.project(&x_t.unsqueeze(1)?, &u_prev, carried, &Cx::eval())?;
        let o = scan.step(state)?;
        state.0[1] = x_t.clone();
        self.readout(&o, &bonus, &g)?.squeeze(1)
    }
}
