//! Time mixing of RWKV-5 (Eagle) and RWKV-6 (Finch), Peng et al. 2024: gated linear attention after a token shift,
//! with a separate weight for the current token, a norm of each head and an output gate,
//!
//! S_t = diag(w_t) S_{t-1} + k_t v_tᵀ,  o_t = (S_{t-1} + diag(u) k_t v_tᵀ)ᵀ r_t
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | r, k, v | receptance (the query), key, value | `(batch, seq_len, n)`; v `(.., d)` |
//! | w | decay e^(-e^z), constant in Eagle, data-dependent in Finch | `(n)`, `(batch, seq_len, n)` |
//! | u (`bonus`) | weight of the current token, b in the row's equation | `(n)` |
//! | μ | weight of the previous token, data-dependent in Finch | `(d)`, `(batch, seq_len, d)` |

use super::matrix_state::{flat_heads, head_norm, work, HeadSizes};
use super::token_shift::lerp;
use super::{in_range, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, Recurrent, State, StateNormPlace};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops::{self, Expression};
use candle_core::{Result, Tensor};

/// RWKV-5.
pub(super) const EAGLE: Entry = Entry {
    name: "rwkv5",
    equation: "S_i = diag(w) S_{i-1} + k_i v_iᵀ, o_i = (S_{i-1} + diag(b) k_i v_iᵀ)ᵀ r_i",
    cite: "Peng et al. 2024",
    dsf: "no (token shift)",
    heads: true,
    multi_head: true,
    expands: true,
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Exact { zeroed: &["wr"], scaled: &[] },
    stem: "rwkv5",
    own_init: &["bnorm", "bonus", "bw", "mu_g", "mu_k", "mu_r", "mu_v", "norm"],
    depth_init: &["bonus", "bw", "mu_g", "mu_k", "mu_r", "mu_v"],
    work: |spec| Some(work(spec, 2)),
    build: |spec, params| Ok(Box::new(Rwkv5::new(spec, params, None)?)),
    ..Entry::of(Family::GatedLinear)
};

/// RWKV-6.
pub(super) const FINCH: Entry = Entry {
    name: "rwkv6",
    equation: "S_i = diag(w_i) S_{i-1} + k_i v_iᵀ, o_i = (S_{i-1} + diag(b) k_i v_iᵀ)ᵀ r_i",
    options: &[MixerOption {
        name: "lora_rank",
        help: "rank of the low-rank projections (LoRA) to decays and interpolations: `16`, up to 4096",
        default: |_| "16",
        accepts: |v| in_range(v, 1..=4096),
        ..MixerOption::DEFAULT
    }],
    stem: "rwkv6",
    own_init: &["bnorm", "bonus", "bw", "mu_g", "mu_k", "mu_r", "mu_v", "mu_w", "mu_x", "norm"],
    depth_init: &["bonus", "bw", "mu_g", "mu_k", "mu_r", "mu_v", "mu_w", "mu_x"],
    work: |spec| {
        let (d, n, rank) = (spec.d_model, spec.d_state, rank(spec));
        let mut work = work(spec, 2);
        work.projections += rank * (MIXES * 2 * d + d + n);
        Some(work)
    },
    build: |spec, params| Ok(Box::new(Rwkv5::new(spec, params, Some(rank(spec)))?)),
    ..EAGLE
};

/// Rank of Finch's low-rank projections.
fn rank(spec: &MixerSpec) -> usize {
    spec.parsed("lora_rank").unwrap_or(16)
}

/// ε of the group norm.
const EPS: f64 = 64e-5;

/// Index of an interpolated input by the projection that reads it. Only Finch has one for its decay.
#[derive(Clone, Copy)]
enum MixIndex {
    R,
    K,
    V,
    G,
    W,
}

/// Interpolations of Finch.
const MIXES: usize = 5;

struct Rwkv5 {
    /// Weights of the previous token in the interpolations, in the order of [`MixIndex`], `(d)` each.
    mu: Vec<Tensor>,
    wr: Tensor,
    wk: Tensor,
    wv: Tensor,
    wg: Tensor,
    wout: Tensor,
    /// ln(-ln w), `(n)`; in Finch the bias of its projection.
    bw: Tensor,
    /// Weight of the current token, u in the papers, `(n)`.
    bonus: Tensor,
    /// Weight and bias of the group norm, `(d)`.
    norm: Tensor,
    bnorm: Tensor,
    finch: Option<Finch>,
    sizes: HeadSizes,
}

/// Low-rank projections of Finch.
struct Finch {
    /// Weight of the previous token in the input of the interpolations' projections, `(d)`.
    mu_x: Tensor,
    /// Down projections of all interpolations, stacked, `(5 rank, d)`.
    mix_down: Tensor,
    /// Up projections in the order of [`MixIndex`], `(d, rank)` each.
    mix_up: [Tensor; MIXES],
    /// Down `(rank, d)` and up `(n, rank)` projections of the decay.
    w_lora: [Tensor; 2],
}

/// Inputs of the recurrence and of the readout.
struct Rwkv5Inputs {
    /// Receptance at the queried positions, `(batch, rows, heads, m)`.
    r: Tensor,
    /// Key `(batch, seq_len, heads, m)`.
    k: Tensor,
    /// Value `(batch, seq_len, heads, e)`.
    v: Tensor,
    /// Log decay `(batch, seq_len, heads, m)`.
    log_w: Tensor,
    /// Contribution of the current token to o, `(batch, rows, heads, e)`.
    current: Tensor,
    /// Output gate before its activation, `(batch, rows, d)`.
    gate: Tensor,
}

impl Rwkv5 {
    fn new(spec: &MixerSpec, params: &Params, rank: Option<usize>) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        // Initial values of the authors' code: deeper layers interpolate less, and later features decay more slowly.
        let ratio_0_to_1 = spec.layer as f64 / spec.n_layers.saturating_sub(1).max(1) as f64;
        let ratio_1_to_0 = 1.0 - spec.layer as f64 / spec.n_layers.max(1) as f64;
        let position = move |i: usize| i as f64 / (n - 1).max(1) as f64;
        let mix = move |i: usize, power: f64| 1.0 - (i as f64 / d as f64).powf(power * ratio_1_to_0);
        let mix_k = move |i: usize, _: &mut _| mix(i, 1.0);
        let mix_r = move |i: usize, _: &mut _| mix(i, 0.5);
        let mix_v = move |i: usize, _: &mut _| mix(i, 1.0) - 0.3 * ratio_0_to_1;
        let mu_of = |name, init| params.get(name, d, Init::Each(init));
        let mut mu =
            vec![mu_of("mu_r", &mix_r)?, mu_of("mu_k", &mix_k)?, mu_of("mu_v", &mix_v)?, mu_of("mu_g", &mix_r)?];
        let weight = |name, shape| params.weight(name, shape, spec.input_std);
        let finch = match rank {
            None => None,
            Some(rank) => {
                mu.push(mu_of("mu_w", &mix_k)?);
                let up = |name| weight(name, (d, rank));
                Some(Finch {
                    mu_x: mu_of("mu_x", &mix_k)?,
                    mix_down: weight("blend", (MIXES * rank, d))?,
                    mix_up: [up("blend_r")?, up("blend_k")?, up("blend_v")?, up("blend_g")?, up("blend_w")?],
                    w_lora: [weight("ww1", (rank, d))?, weight("ww2", (n, rank))?],
                })
            }
        };
        let decay_speed = move |i: usize, _: &mut _| -6.0 + 5.0 * position(i).powf(0.7 + 1.3 * ratio_0_to_1);
        let bonus = move |i: usize, _: &mut _| ratio_0_to_1 * (1.0 - position(i)) + 0.1 * (((i + 1) % 3) as f64 - 1.0);
        let constant = |name, value| params.get(name, d, Init::Constant(value));
        Ok(Self {
            mu,
            wr: weight("wr", (n, d))?,
            wk: weight("wk", (n, d))?,
            wv: weight("wv", (d, d))?,
            wg: weight("wg", (d, d))?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
            bw: params.get("bw", n, Init::Each(&decay_speed))?,
            bonus: params.get("bonus", n, Init::Each(&bonus))?,
            norm: constant("norm", 1.0)?,
            bnorm: constant("bnorm", 0.0)?,
            finch,
            sizes: HeadSizes::new(spec),
        })
    }

    /// Projections of x `(batch, seq_len, d)`, where `x_prev` is x shifted by one token.
    fn project(&self, x: &Tensor, x_prev: &Tensor, cx: &Cx) -> Result<Rwkv5Inputs> {
        // Hidden layer of all interpolations, `(batch, seq_len, 5 rank)`.
        let hidden = match &self.finch {
            Some(finch) => {
                let x_mix = lerp(x, x_prev, &finch.mu_x)?;
                Some(Expression::of(&linear(&x_mix, &finch.mix_down, None)?).tanh().tensor()?)
            }
            None => None,
        };
        let mixed = |mix: MixIndex| match (&self.finch, &hidden) {
            (Some(finch), Some(hidden)) => {
                let (up, mu) = (&finch.mix_up[mix as usize], &self.mu[mix as usize]);
                let rank = up.dim(1)?;
                let hidden = hidden.narrow(2, mix as usize * rank, rank)?.contiguous()?;
                lerp(x, x_prev, &linear(&hidden, up, Some(mu))?)
            }
            _ => lerp(x, x_prev, &self.mu[mix as usize]),
        };
        let split = |x: &Tensor| self.sizes.split(x); // (batch, seq_len, heads, m or e)
        let r = linear(&cx.select(&mixed(MixIndex::R)?)?, &self.wr, None)?; // (batch, rows, n)
        let k = linear(&mixed(MixIndex::K)?, &self.wk, None)?; // (batch, seq_len, n)
        let v = linear(&mixed(MixIndex::V)?, &self.wv, None)?; // (batch, seq_len, d)
        let gate = linear(&cx.select(&mixed(MixIndex::G)?)?, &self.wg, None)?; // (batch, rows, d)
        let w = match &self.finch {
            Some(finch) => {
                let [down, up] = &finch.w_lora;
                let hidden = Expression::of(&linear(&mixed(MixIndex::W)?, down, None)?).tanh().tensor()?;
                linear(&hidden, up, Some(&self.bw))?
            }
            None => self.bw.to_dtype(x.dtype())?.broadcast_as(k.shape())?,
        };
        // (Σ r ⊙ u ⊙ k) v per head
        let bonus = Expression::parameter_as(&self.bonus, (self.sizes.heads, self.sizes.features));
        let rk = Expression::of(&split(&r)?) * Expression::of(&split(&cx.select(&k)?)?) * bonus;
        let rk = rk.row_sum().tensor()?; // (batch, rows, heads, 1)
        Ok(Rwkv5Inputs {
            r: split(&r)?,
            k: split(&k)?,
            log_w: (-Expression::of(&split(&w.contiguous()?)?).exp()).tensor()?,
            current: (Expression::of(&split(&cx.select(&v)?)?) * Expression::of(&rk)).tensor()?,
            v: split(&v)?,
            gate,
        })
    }

    /// y `(batch, rows, d)` for o of the tokens before, `(batch, rows, heads, e)`.
    fn readout(&self, o: &Tensor, current: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let (heads, values) = (self.sizes.heads, self.sizes.values);
        let sum = Expression::of(o) + Expression::of(current);
        let normed = head_norm(&sum, [heads, values], &self.norm, Some(&self.bnorm), EPS);
        let gated = normed * Expression::of(&self.sizes.split(gate)?).silu();
        linear(&flat_heads(&gated.tensor()?)?, &self.wout, None)
    }
}

impl Mixer for Rwkv5 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let Rwkv5Inputs { r, k, v, log_w, current, gate } = self.project(u, &ops::shift(u)?, cx)?;
        // o_t reads S_{t-1}, so the inputs of the state are shifted by one token.
        let [k, v, log_w] = [ops::shift(&k)?, ops::shift(&v)?, ops::shift(&log_w)?];
        let o = ops::gla(&r, &k, &v, &log_w, cx.rows().map(|rows| &rows.positions))?;
        self.readout(&o, &current, &gate)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.sizes.state_size() + self.norm.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its token shift reads two tokens at a time; between that shift and its norm it is a system with N = n d/s, whose D_i \
         holds the weight of the current token"
    }
}

impl Recurrent for Rwkv5 {
    /// S `(batch, heads, m, e)` and the previous token `(batch, d)`.
    fn init(&self, batch: usize) -> Result<State> {
        let s = self.sizes.zero_state(batch, &self.wr)?;
        let shape = (batch, self.norm.elem_count());
        let x_prev = Tensor::zeros(shape, self.wr.dtype(), self.wr.device())?;
        Ok(State::new(vec![s, x_prev]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let x_prev = state.0[1].unsqueeze(1)?;
        let Rwkv5Inputs { r, k, v, log_w, current, gate } = self.project(&x_t.unsqueeze(1)?, &x_prev, &Cx::eval())?;
        let column = |x: &Tensor| x.squeeze(1)?.unsqueeze(3); // (batch, heads, m, 1)
        let row = |x: &Tensor| x.squeeze(1)?.unsqueeze(2); // (batch, heads, 1, e)
        let s = &state.0[0];
        let o = s.broadcast_mul(&column(&r)?)?.sum(2)?.unsqueeze(1)?;
        let kv = column(&k)?.broadcast_mul(&row(&v)?)?;
        let s = (s.broadcast_mul(&column(&log_w.exp()?)?)? + kv)?;
        *state = State::new(vec![s, x_t.clone()]);
        self.readout(&o, &current, &gate)?.squeeze(1)
    }
}
