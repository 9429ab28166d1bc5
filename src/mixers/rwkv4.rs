//! Time mixing of RWKV-4 (Peng et al. 2023): per channel an exponentially weighted mean of past values ("WKV"), with a
//! separate weight for the current token, after a token shift and a sigmoid gate,
//!
//! wkv_t = (Σ_{j<t} e^{k_j - (t-1-j) w} v_j + e^{u + k_t} v_t) / (Σ_{j<t} e^{k_j - (t-1-j) w} + e^{u + k_t})
//!
//! y_t = W (σ(r_t) ⊙ wkv_t)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | r, k, v | receptance, key, value; E = d unless an option sets it | `(batch, seq_len, E)` |
//! | w, u | decay and weight of the current token (`bonus`; b in the row's equation) | `(E)` |
//! | num, den | numerator and denominator of the past tokens, divided by e^m | `(batch, E)` |
//! | m | largest exponent so far, against overflow | `(batch, E)` |

use super::running_max::running_max;
use super::token_shift::{lerp, shift};
use super::{in_range, Core, Entry, Family, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{DType, Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "rwkv4",
    equation: "y_i = W (σ(r_i) ⊙ mean of v_j weighted by e^(k_j-(i-1-j)w), v_i by e^(b+k_i))",
    cite: "Peng et al. 2023",
    dsf: "no (token shift)",
    options: &[MixerOption {
        name: "width",
        help: "width of the receptance, keys and values: `auto` (--d) or a number",
        default: |_| "auto",
        accepts: |v| v == "auto" || in_range(v, 1..=1 << 20),
        implied: true,
        ..MixerOption::DEFAULT
    }],
    stem: "rwkv4",
    own_init: &["bonus", "decay", "mu_k", "mu_r", "mu_v"],
    depth_init: &["decay", "mu_k", "mu_r", "mu_v"],
    work: |spec| {
        let width = width(spec);
        Some(MixerWork::new(Core::GatedScan, [2 * width, 1], 4 * spec.d_model * width))
    },
    build: |spec, params| Ok(Box::new(Rwkv4::new(spec, params)?)),
    ..Entry::of(Family::Recurrent)
};

/// Width of r, k and v, E.
fn width(spec: &MixerSpec) -> usize {
    spec.parsed("width").unwrap_or(spec.d_model)
}

struct Rwkv4 {
    /// Weights of the current token in the interpolations that k, v and r read, `(d)` each.
    mu: [Tensor; 3],
    /// Projections to k, v and r, `(E, d)` each.
    wkvr: [Tensor; 3],
    /// ln w, `(E)`.
    log_w: Tensor,
    /// Weight of the current token, u in the paper, `(E)`.
    bonus: Tensor,
    wout: Tensor,
}

impl Rwkv4 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, width) = (spec.d_model, width(spec));
        let last = spec.n_layers.saturating_sub(1).max(1) as f64;
        // Initial values of the authors' code: deeper layers interpolate less, and later channels decay more slowly.
        let ratio_0_to_1 = spec.layer as f64 / last;
        let ratio_1_to_0 = 1.0 - spec.layer as f64 / spec.n_layers.max(1) as f64;
        let position = move |i: usize| i as f64 / (width - 1).max(1) as f64;
        let mix = move |i: usize| (i as f64 / d as f64).powf(ratio_1_to_0);
        let mix_k = |i: usize, _: &mut _| mix(i);
        let mix_v = |i: usize, _: &mut _| mix(i) + 0.3 * ratio_0_to_1;
        let mix_r = |i: usize, _: &mut _| (i as f64 / d as f64).powf(0.5 * ratio_1_to_0);
        let decay_speed = |i: usize, _: &mut _| -5.0 + 8.0 * position(i).powf(0.7 + 1.3 * ratio_0_to_1);
        let bonus = |i: usize, _: &mut _| 0.3f64.ln() + 0.5 * ((i + 1) % 3) as f64 - 0.5;
        let weight = |name| params.weight(name, (width, d), spec.input_std);
        Ok(Self {
            mu: [
                params.get("mu_k", d, Init::Each(&mix_k))?,
                params.get("mu_v", d, Init::Each(&mix_v))?,
                params.get("mu_r", d, Init::Each(&mix_r))?,
            ],
            wkvr: [weight("wk")?, weight("wv")?, weight("wr")?],
            log_w: params.get("decay", width, Init::Each(&decay_speed))?,
            bonus: params.get("bonus", width, Init::Each(&bonus))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
        })
    }

    /// k, v and r `(.., E)` of x and the previous tokens `x_prev`, in the parameters' dtype: exponents need its digits.
    fn project(&self, x: &Tensor, x_prev: &Tensor) -> Result<[Tensor; 3]> {
        let map = |i: usize| {
            let mixed = lerp(x_prev, x, &self.mu[i])?;
            linear(&mixed, &self.wkvr[i], None)?.to_dtype(self.log_w.dtype())
        };
        Ok([map(0)?, map(1)?, map(2)?])
    }

    /// Log decay -w, `(E)`.
    fn log_decay(&self) -> Result<Tensor> {
        self.log_w.exp()?.neg()
    }

    /// y `(.., d)` in `dtype` from num and den of the past, divided by e^m, and k, v, r of the current token.
    fn readout(&self, [num, den]: [&Tensor; 2], m: &Tensor, [k, v, r]: [&Tensor; 3], dtype: DType) -> Result<Tensor> {
        let uk = k.broadcast_add(&self.bonus)?;
        let max = m.detach().maximum(&uk.detach())?;
        let (past, current) = ((m - &max)?.exp()?, (uk - max)?.exp()?);
        let num = ((num * &past)? + (&current * v)?)?;
        let den = ((den * past)? + current)?;
        let y = (ops::sigmoid(r)? * (num / den)?)?;
        linear(&y.to_dtype(dtype)?, &self.wout, None)
    }
}

/// Finite stand-in for ln 0.
const LOG_ZERO: f64 = -1e30;

/// Numerators and denominators after every token, and the inputs that they are read with.
struct Wkv {
    /// num and den, `(batch, seq_len, 2E)`.
    sums: Tensor,
    /// m, `(batch, seq_len, E)`.
    m: Tensor,
    /// k, v and r, `(batch, seq_len, E)` each.
    kvr: [Tensor; 3],
}

impl Rwkv4 {
    fn sums(&self, u: &Tensor) -> Result<Wkv> {
        let [k, v, r] = self.project(u, &ops::shift(u)?)?; // (batch, seq_len, E)
        let log_decay = self.log_decay()?.broadcast_as(k.shape())?;
        let m = running_max(&log_decay, &k)?;
        let m_prev = shift(&m, &m.narrow(1, 0, 1)?)?;
        let decay = (log_decay + (m_prev - &m)?)?.exp()?;
        let e_k = (&k - &m)?.exp()?;
        let a = ops::join(&[&decay, &decay], 2)?; // for num and den
        let x = ops::join(&[&(&e_k * &v)?, &e_k], 2)?;
        Ok(Wkv { sums: ops::linear_scan(&a.contiguous()?, &x)?, m, kvr: [k, v, r] })
    }

    /// y `(batch, rows, d)` at the positions that `cx` selects.
    fn output(&self, Wkv { sums, m, kvr }: &Wkv, cx: &Cx, dtype: DType) -> Result<Tensor> {
        // The current token has its own weight, so that it reads the sums before it.
        let sums = cx.select(&ops::shift(sums)?)?; // (batch, rows, 2E)
        let log_zero = m.narrow(1, 0, 1)?.affine(0.0, LOG_ZERO)?;
        let m = cx.select(&shift(m, &log_zero)?)?;
        let [k, v, r] = [cx.select(&kvr[0])?, cx.select(&kvr[1])?, cx.select(&kvr[2])?];
        let [num, den] = halves(&sums)?;
        self.readout([&num, &den], &m, [&k, &v, &r], dtype)
    }
}

/// Both halves of the last axis.
fn halves(sums: &Tensor) -> Result<[Tensor; 2]> {
    let width = sums.dim(2)? / 2;
    Ok([sums.narrow(2, 0, width)?, sums.narrow(2, width, width)?])
}

impl Mixer for Rwkv4 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        self.output(&self.sums(u)?, cx, u.dtype())
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.mu[0].elem_count() + 3 * self.log_w.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its token shift reads two tokens at a time; after that shift it is a system with N = E, the width of r, k and \
         v, whose D_i holds the weight of the current token"
    }
}

impl Recurrent for Rwkv4 {
    /// The previous token `(batch, d)`, and num, den and m, `(batch, E)` each.
    fn init(&self, batch: usize) -> Result<State> {
        let zeros = |like: &Tensor| Tensor::zeros((batch, like.elem_count()), like.dtype(), like.device());
        let (token, zeros) = (zeros(&self.mu[0])?, zeros(&self.log_w)?);
        let log_zero = zeros.affine(0.0, LOG_ZERO)?;
        Ok(State::new(vec![token, zeros.clone(), zeros, log_zero]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [x_prev, num, den, m] = &state.0[..] else {
            unreachable!("the state holds four tensors");
        };
        let [k, v, r] = self.project(x_t, x_prev)?;
        let y = self.readout([num, den], m, [&k, &v, &r], x_t.dtype())?;
        let decayed = m.broadcast_add(&self.log_decay()?)?;
        let m = decayed.maximum(&k)?;
        let (past, current) = ((decayed - &m)?.exp()?, (&k - &m)?.exp()?);
        let num = ((num * &past)? + (&current * v)?)?;
        let den = ((den * past)? + current)?;
        *state = State::new(vec![x_t.clone(), num, den, m]);
        Ok(y)
    }

    fn read(&self, u: &Tensor) -> Result<(Tensor, State)> {
        let wkv = self.sums(u)?;
        let last = |t: &Tensor| t.narrow(1, t.dim(1)? - 1, 1)?.squeeze(1)?.contiguous();
        let [num, den] = halves(&wkv.sums)?;
        let state = State::new(vec![last(u)?, last(&num)?, last(&den)?, last(&wkv.m)?]);
        Ok((self.output(&wkv, &Cx::eval(), u.dtype())?, state))
    }
}
