//! The time mixing of RWKV-7 (Peng et al. 2025): a delta rule that removes along one key, writes along another, and lets every
//! feature fade by a decay of its own, all of them made of blends of a token and the one before it. The published network also
//! mixes the values of its first layer into those of later ones, which a mixer by itself cannot see: that is left out.

use super::delta_state::{normalised, zero_state, DeltaDrive};
use super::matrix_state::{head_norm, work, Sizes};
use super::token_shift::{blend, later_from_nothing};
use super::{Entry, Family, Growth, Mixer, MixerOption, MixerSpec, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "rwkv7",
    equation: "S_i = (diag(w_i) - (a_i ⊙ κ_i) κ_iᵀ) S_{i-1} + k_i v_iᵀ, |κ_i| = 1",
    cite: "Peng et al. 2025",
    dsf: "no (blends neighbouring tokens)",
    heads: true,
    expands: true,
    options: &[MixerOption {
        name: "lora_rank",
        help: "width of the bottlenecks in front of decays, removal and gate: `16`, up to 4096",
        default: |_| "16",
        accepts: |v| {
            v.parse::<usize>()
                .is_ok_and(|rank| (1..=4096).contains(&rank))
        },
        ..MixerOption::DEFAULT
    }],
    // A key of zeros in its new rows has the length that it had, and writes nothing there.
    growth: Growth::Exact {
        zeroed: &["wk"],
        scaled: &[],
    },
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
    // Short keys turn far when they are normalised.
    difference_step: 1e-6,
    work: |spec| {
        let (d, n, rank) = (spec.d_model, spec.d_state, rank(spec));
        let mut work = work(spec, 1);
        work.projections += rank * (4 * d + 2 * n);
        Some(work)
    },
    build: |spec, params| Ok(Box::new(Rwkv7::new(spec, params)?)),
    ..Entry::of(Family::GatedLinear)
};

/// Width of the bottlenecks.
fn rank(spec: &MixerSpec) -> usize {
    let given = spec.option("lora_rank").and_then(|rank| rank.parse().ok());
    given.unwrap_or(16)
}

/// Added to the variance in the norm of a head.
const EPS: f64 = 64e-5;

/// What a blend of two tokens is read for.
#[derive(Clone, Copy)]
enum Of {
    Receptance,
    Decay,
    Key,
    Value,
    Removal,
    Gate,
}

const BLENDS: [&str; 6] = ["mu_r", "mu_w", "mu_k", "mu_v", "mu_a", "mu_g"];

struct Rwkv7 {
    /// Share of the token before in each blend.
    mu: [Tensor; 6],
    wr: Tensor,
    wk: Tensor,
    wv: Tensor,
    wout: Tensor,
    /// Into and out of the bottlenecks of decays, removal and gate.
    decay: [Tensor; 2],
    removal: [Tensor; 2],
    gate: [Tensor; 2],
    /// Biases of decays and of removal, `(n)`.
    bw: Tensor,
    ba: Tensor,
    /// Of the key that is removed along, of how far removal weakens what is written, and of the present, `(n)`.
    key_scale: Tensor,
    key_share: Tensor,
    bonus: Tensor,
    /// Of the norm over each head, `(d)`.
    norm: Tensor,
    bnorm: Tensor,
    sizes: Sizes,
}

/// The inputs of the state, and what the read-out needs beside it.
struct Driven {
    drive: DeltaDrive,
    /// At the queried positions: what the present adds to o, and the gate, both `(batch, rows, d)`.
    present: Tensor,
    gate: Tensor,
}

impl Rwkv7 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, rank) = (spec.d_model, spec.d_state, rank(spec));
        let shallow = 1.0 - spec.layer as f64 / spec.n_layers.max(1) as f64;
        let share = move |power: f64| {
            move |i: usize, _: &mut _| 1.0 - (i as f64 / d as f64).powf(power * shallow)
        };
        // Of RWKV's own code.
        let powers = [0.2, 0.9, 0.7, 0.7, 0.9, 0.2];
        let mu = |i: usize| params.get(BLENDS[i], d, Init::Each(&share(powers[i])));
        let depth = spec.layer as f64 / spec.n_layers.saturating_sub(1).max(1) as f64;
        let slow = move |i: usize, _: &mut _| {
            let at = i as f64 / (n - 1).max(1) as f64;
            -6.5 + 5.0 * at.powf(0.85 + depth.sqrt())
        };
        let bottleneck = |[into, out]: [&str; 2], width: usize| -> Result<[Tensor; 2]> {
            Ok([
                params.weight(into, (rank, d), spec.input_std)?,
                params.weight(out, (width, rank), spec.input_std)?,
            ])
        };
        let constant = |name, size: usize, value| params.get(name, size, Init::Constant(value));
        Ok(Self {
            mu: [mu(0)?, mu(1)?, mu(2)?, mu(3)?, mu(4)?, mu(5)?],
            wr: params.weight("wr", (n, d), spec.input_std)?,
            wk: params.weight("wk", (n, d), spec.input_std)?,
            wv: params.weight("wv", (d, d), spec.input_std)?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
            decay: bottleneck(["ww1", "ww2"], n)?,
            removal: bottleneck(["wa1", "wa2"], n)?,
            gate: bottleneck(["wg1", "wg2"], d)?,
            bw: params.get("bw", n, Init::Each(&slow))?,
            ba: constant("ba", n, 0.0)?,
            key_scale: constant("key_scale", n, 0.85)?,
            key_share: constant("key_share", n, 1.0)?,
            bonus: constant("bonus", n, 0.0)?,
            norm: constant("norm", d, 1.0)?,
            bnorm: constant("bnorm", d, 0.0)?,
            sizes: Sizes::of(spec),
        })
    }

    /// For u and the tokens before, both `(batch, seq_len, d)`.
    fn driven(&self, u: &Tensor, before: &Tensor, cx: &Cx) -> Result<Driven> {
        let like = |x: &Tensor| x.to_dtype(u.dtype());
        let blended = |of: Of| blend(u, before, &self.mu[of as usize]);
        let read = |of| cx.select(&blended(of)?);
        let split = |x: &Tensor| self.sizes.split(x);
        let r = linear(&read(Of::Receptance)?, &self.wr, None)?;
        let k = linear(&blended(Of::Key)?, &self.wk, None)?;
        let v = linear(&blended(Of::Value)?, &self.wv, None)?;
        let narrow = linear(&blended(Of::Decay)?, &self.decay[0], None)?.tanh()?;
        let fade = linear(&narrow, &self.decay[1], Some(&self.bw))?;
        let narrow = linear(&blended(Of::Removal)?, &self.removal[0], None)?;
        let removal = ops::sigmoid(&linear(&narrow, &self.removal[1], Some(&self.ba))?)?;
        let narrow = ops::sigmoid(&linear(&read(Of::Gate)?, &self.gate[0], None)?)?;
        let gate = linear(&narrow, &self.gate[1], None)?;
        let along = normalised(&split(&k.broadcast_mul(&like(&self.key_scale)?)?)?)?;
        // k (1 + (a - 1) share)
        let weakened = ((&removal - 1.0)?.broadcast_mul(&like(&self.key_share)?)? + 1.0)?;
        let k = (k * weakened)?;
        let met = (&r * cx.select(&k)?)?.broadcast_mul(&like(&self.bonus)?)?;
        let met = split(&met)?.sum_keepdim(D::Minus1)?;
        let present = split(&cx.select(&v)?)?.broadcast_mul(&met)?;
        Ok(Driven {
            drive: DeltaDrive {
                q: split(&r)?,
                k: split(&k)?,
                v: split(&v)?,
                a: (&along * split(&removal)?)?.neg()?,
                b: along,
                // w = e^(-e^(-1/2) σ(z)) is never below 0.54.
                g: (split(&ops::sigmoid(&fade)?)? * -(-0.5f64).exp())?,
            },
            present: present.flatten_from(2)?,
            gate,
        })
    }

    /// y for o `(batch, rows, heads, e)`.
    fn finish(&self, o: &Tensor, present: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let normed = head_norm(o, &self.norm, &self.bnorm, EPS)?;
        linear(&((normed + present)? * gate)?, &self.wout, None)
    }
}

impl Mixer for Rwkv7 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let Driven {
            drive,
            present,
            gate,
        } = self.driven(u, &later_from_nothing(u)?, cx)?;
        self.finish(&drive.scan(cx)?, &present, &gate)
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
        "its Λ_i is a diagonal and a matrix of rank one, behind a blend of each token and the one before it; the norm of a head and \
         a weight of the present stand behind it"
    }
}

impl Recurrent for Rwkv7 {
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
            drive,
            present,
            gate,
        } = self.driven(&x_t.unsqueeze(1)?, &before, &Cx::eval())?;
        let o = drive.step(state)?;
        state.0[1] = x_t.clone();
        self.finish(&o, &present, &gate)?.squeeze(1)
    }
}
