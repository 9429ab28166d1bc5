//! The time mixing of RWKV-5, Eagle, and RWKV-6, Finch (Peng et al. 2024): gated linear attention with a weight of its own for the
//! present token, read through a norm of each head and a gate. Each map reads a blend of a token and the one before it. Eagle's
//! decays and blends are constants of each channel; Finch's are made of the input, through bottlenecks.

use super::delta_state::zero_state;
use super::matrix_state::{head_norm, work, Sizes};
use super::token_shift::{blend, later_from_nothing};
use super::{Entry, Family, Growth, Mixer, MixerOption, MixerSpec, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor, D};

/// RWKV-5.
pub(super) const EAGLE: Entry = Entry {
    name: "rwkv5",
    equation: "S_i = diag(w) S_{i-1} + k_i v_iᵀ, o_i = (S_{i-1} + diag(b) k_i v_iᵀ)ᵀ r_i",
    cite: "Peng et al. 2024",
    dsf: "no (blends neighbouring tokens)",
    heads: true,
    expands: true,
    growth: Growth::Exact {
        zeroed: &["wr"],
        scaled: &[],
    },
    stem: "rwkv5",
    own_init: &[
        "bnorm", "bonus", "bw", "mu_g", "mu_k", "mu_r", "mu_v", "norm",
    ],
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
        help: "width of the bottlenecks in front of decays and blends: `16`, up to 4096",
        default: |_| "16",
        accepts: |v| {
            v.parse::<usize>()
                .is_ok_and(|rank| (1..=4096).contains(&rank))
        },
        ..MixerOption::DEFAULT
    }],
    stem: "rwkv6",
    own_init: &[
        "bnorm", "bonus", "bw", "mu_g", "mu_k", "mu_r", "mu_v", "mu_w", "mu_x", "norm",
    ],
    depth_init: &[
        "bonus", "bw", "mu_g", "mu_k", "mu_r", "mu_v", "mu_w", "mu_x",
    ],
    work: |spec| {
        let (d, n, rank) = (spec.d_model, spec.d_state, rank(spec));
        let mut work = work(spec, 2);
        work.projections += rank * (BLENDS * 2 * d + d + n);
        Some(work)
    },
    build: |spec, params| Ok(Box::new(Rwkv5::new(spec, params, Some(rank(spec)))?)),
    ..EAGLE
};

/// Width of Finch's bottlenecks.
fn rank(spec: &MixerSpec) -> usize {
    let given = spec.option("lora_rank").and_then(|rank| rank.parse().ok());
    given.unwrap_or(16)
}

/// Added to the variance in the norm of a head.
const EPS: f64 = 64e-5;

/// What a blend of two tokens is read for. Only Finch reads one for decays.
#[derive(Clone, Copy)]
enum Of {
    Receptance,
    Key,
    Value,
    Gate,
    Decay,
}

/// Blends of Finch.
const BLENDS: usize = 5;

struct Rwkv5 {
    /// Share of the token before in each blend, `(d)`.
    mu: Vec<Tensor>,
    wr: Tensor,
    wk: Tensor,
    wv: Tensor,
    wg: Tensor,
    wout: Tensor,
    /// ln of minus the logarithm of decays, `(n)`: of Finch what the input adds to.
    bw: Tensor,
    /// Weight of the present, `(n)`.
    bonus: Tensor,
    /// Of the norm over each head, `(d)`.
    norm: Tensor,
    bnorm: Tensor,
    finch: Option<Finch>,
    sizes: Sizes,
}

/// What makes blends and decays of the input.
struct Finch {
    /// Share of the token before in what the bottlenecks of the blends read, `(d)`.
    mu: Tensor,
    /// Into the bottlenecks of all blends, `(5 rank, d)`, and out of each, `(d, rank)`.
    into: Tensor,
    out: [Tensor; BLENDS],
    /// Into and out of that of the decays.
    decay: [Tensor; 2],
}

/// The inputs of the state, each `(batch, seq_len, heads, m)` or, of values, `(.., e)`, and what the read-out needs beside them.
struct Driven {
    /// At the queried positions, as are the two last.
    q: Tensor,
    k: Tensor,
    v: Tensor,
    /// Logarithms of decays.
    g: Tensor,
    /// What the present adds to o, `(batch, rows, heads, e)`.
    present: Tensor,
    /// `(batch, rows, d)`.
    gate: Tensor,
}

impl Rwkv5 {
    fn new(spec: &MixerSpec, params: &Params, rank: Option<usize>) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        // Of RWKV's own code: deeper layers blend less, and later channels and features fade more slowly.
        let depth = spec.layer as f64 / spec.n_layers.saturating_sub(1).max(1) as f64;
        let shallow = 1.0 - spec.layer as f64 / spec.n_layers.max(1) as f64;
        let at = move |i: usize| i as f64 / (n - 1).max(1) as f64;
        let share = move |i: usize, power: f64| 1.0 - (i as f64 / d as f64).powf(power * shallow);
        let whole = move |i: usize, _: &mut _| share(i, 1.0);
        let half = move |i: usize, _: &mut _| share(i, 0.5);
        let value = move |i: usize, _: &mut _| share(i, 1.0) - 0.3 * depth;
        let blended = |name, init| params.get(name, d, Init::Each(init));
        let mut mu = vec![
            blended("mu_r", &half)?,
            blended("mu_k", &whole)?,
            blended("mu_v", &value)?,
            blended("mu_g", &half)?,
        ];
        let weight = |name, shape| params.weight(name, shape, spec.input_std);
        let finch = match rank {
            None => None,
            Some(rank) => {
                mu.push(blended("mu_w", &whole)?);
                let out = |name| weight(name, (d, rank));
                Some(Finch {
                    mu: blended("mu_x", &whole)?,
                    into: weight("blend", (BLENDS * rank, d))?,
                    out: [
                        out("blend_r")?,
                        out("blend_k")?,
                        out("blend_v")?,
                        out("blend_g")?,
                        out("blend_w")?,
                    ],
                    decay: [weight("ww1", (rank, d))?, weight("ww2", (n, rank))?],
                })
            }
        };
        let fade = move |i: usize, _: &mut _| -6.0 + 5.0 * at(i).powf(0.7 + 1.3 * depth);
        let bonus =
            move |i: usize, _: &mut _| depth * (1.0 - at(i)) + 0.1 * (((i + 1) % 3) as f64 - 1.0);
        let constant = |name, value| params.get(name, d, Init::Constant(value));
        Ok(Self {
            mu,
            wr: weight("wr", (n, d))?,
            wk: weight("wk", (n, d))?,
            wv: weight("wv", (d, d))?,
            wg: weight("wg", (d, d))?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
            bw: params.get("bw", n, Init::Each(&fade))?,
            bonus: params.get("bonus", n, Init::Each(&bonus))?,
            norm: constant("norm", 1.0)?,
            bnorm: constant("bnorm", 0.0)?,
            finch,
            sizes: Sizes::of(spec),
        })
    }

    /// For u and the tokens before, both `(batch, seq_len, d)`.
    fn driven(&self, u: &Tensor, before: &Tensor, cx: &Cx) -> Result<Driven> {
        let narrow = match &self.finch {
            Some(finch) => {
                let both = blend(u, before, &finch.mu)?;
                Some(linear(&both, &finch.into, None)?.tanh()?)
            }
            None => None,
        };
        let blended = |of: Of| match (&self.finch, &narrow) {
            (Some(finch), Some(narrow)) => {
                let (out, mu) = (&finch.out[of as usize], &self.mu[of as usize]);
                let rank = out.dim(1)?;
                let own = narrow.narrow(2, of as usize * rank, rank)?.contiguous()?;
                blend(u, before, &linear(&own, out, Some(mu))?)
            }
            _ => blend(u, before, &self.mu[of as usize]),
        };
        let split = |x: &Tensor| self.sizes.split(x);
        let r = linear(&cx.select(&blended(Of::Receptance)?)?, &self.wr, None)?;
        let k = linear(&blended(Of::Key)?, &self.wk, None)?;
        let v = linear(&blended(Of::Value)?, &self.wv, None)?;
        let gate = linear(&cx.select(&blended(Of::Gate)?)?, &self.wg, None)?;
        let fade = match &self.finch {
            Some(finch) => {
                let narrow = linear(&blended(Of::Decay)?, &finch.decay[0], None)?.tanh()?;
                linear(&narrow, &finch.decay[1], Some(&self.bw))?
            }
            None => self.bw.to_dtype(u.dtype())?.broadcast_as(k.shape())?,
        };
        let bonus = self.bonus.to_dtype(u.dtype())?;
        let met = (&r * cx.select(&k)?)?.broadcast_mul(&bonus)?;
        let met = split(&met)?.sum_keepdim(D::Minus1)?;
        Ok(Driven {
            q: split(&r)?,
            k: split(&k)?,
            g: split(&fade.contiguous()?.exp()?.neg()?)?,
            present: split(&cx.select(&v)?)?.broadcast_mul(&met)?,
            v: split(&v)?,
            gate,
        })
    }

    /// y for o of the tokens before, `(batch, rows, heads, e)`.
    fn finish(&self, o: &Tensor, present: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let normed = head_norm(&(o + present)?, &self.norm, &self.bnorm, EPS)?;
        linear(&(normed * ops::silu(gate)?)?, &self.wout, None)
    }
}

impl Mixer for Rwkv5 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let Driven {
            q,
            k,
            v,
            g,
            present,
            gate,
        } = self.driven(u, &later_from_nothing(u)?, cx)?;
        // The state that a token reads is the one before it: what drives the state comes one token later.
        let [k, v, g] = [
            later_from_nothing(&k)?,
            later_from_nothing(&v)?,
            later_from_nothing(&g)?,
        ];
        let o = ops::gla(&q, &k, &v, &g, cx.rows().map(|rows| &rows.positions))?;
        self.finish(&o, &present, &gate)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        let Sizes {
            heads,
            features,
            values,
            ..
        } = self.sizes;
        heads * values * (features + 1)
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its maps read a blend of each token and the one before it; behind that blend and before its norm it is one, with N = n d/s, \
         whose D_i holds the weight of the present"
    }
}

impl Recurrent for Rwkv5 {
    /// The state `(batch, heads, m, e)` and the token before `(batch, d)`.
    fn init(&self, batch: usize) -> Result<State> {
        let state = zero_state(self.sizes, batch, &self.wr)?;
        let shape = (batch, self.norm.elem_count());
        let before = Tensor::zeros(shape, self.wr.dtype(), self.wr.device())?;
        Ok(State(vec![state, before]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let before = state.0[1].unsqueeze(1)?;
        let Driven {
            q,
            k,
            v,
            g,
            present,
            gate,
        } = self.driven(&x_t.unsqueeze(1)?, &before, &Cx::eval())?;
        let column = |x: &Tensor| x.squeeze(1)?.unsqueeze(3); // (batch, heads, m, 1)
        let row = |x: &Tensor| x.squeeze(1)?.unsqueeze(2); // (batch, heads, 1, e)
        let s = &state.0[0];
        let o = s.broadcast_mul(&column(&q)?)?.sum(2)?.unsqueeze(1)?;
        let written = column(&k)?.broadcast_mul(&row(&v)?)?;
        let s = (s.broadcast_mul(&column(&g.exp()?)?)? + written)?;
        *state = State(vec![s, x_t.clone()]);
        self.finish(&o, &present, &gate)?.squeeze(1)
    }
}
