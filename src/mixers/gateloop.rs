//! GateLoop (Katsch 2023): a complex linear recurrence with one state per channel and a data-dependent transition,
//! which is constant in the LRU and S5,
//!
//! h_i = a_i ⊙ h_{i-1} + k_i ⊙ v_i,  y_i = W (silu(g_i) ⊙ q_i ⊙ Re h_i),  a_i = σ(α_i) e^(iθ_i)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | q, k, v, g | query, key, value, output gate | `(batch, seq_len, d)` |
//! | a | transition, of modulus σ(α) and phase θ, complex | `(batch, seq_len, d)` |

use super::complex::Complex;
use super::{Core, Entry, Family, Mixer, MixerSpec, MixerWork, Recurrent, State};
use crate::ltv::{Ltv, OffDiagonal};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops::rng::Rng;
use crate::ops::{self, Expression};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "gateloop",
    equation: "h_i = σ(α_i) e^(iθ_i) h_{i-1} + k_i v_i, y_i = W (silu(g_i) q_i Re(h_i))",
    cite: "Katsch 2023",
    dsf: "N = 2d",
    stem: "gateloop",
    own_init: &["ba"],
    work: |spec| {
        let d = spec.d_model;
        Some(MixerWork::new(Core::GatedScan, [2 * d, 1], 7 * d * d))
    },
    build: |spec, params| Ok(Box::new(GateLoop::new(spec, params)?)),
    ..Entry::of(Family::Recurrent)
};

/// Initial bias of α: σ(α) is uniform on [0.9, 0.999].
fn initial_alpha(_index: usize, rng: &mut Rng) -> f64 {
    let decay = 0.9 + 0.099 * rng.uniform();
    (decay / (1.0 - decay)).ln()
}

struct GateLoop {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wg: Tensor,
    wout: Tensor,
    /// Projection to α.
    wa: Tensor,
    ba: Tensor,
    /// Projection to θ.
    wt: Tensor,
    bt: Tensor,
}

/// Inputs of the recurrence and of the readout.
struct GateLoopInputs {
    /// Transition `(batch, seq_len, d)`, in the parameters' dtype: bf16 rounds a decay near 1 to 1.
    a: Complex,
    /// Key `(batch, seq_len, d)`.
    k: Tensor,
    /// Value `(batch, seq_len, d)`.
    v: Tensor,
    /// q ⊙ silu(g) at the queried positions, `(batch, rows, d)`.
    gated_q: Tensor,
}

impl GateLoop {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        let weight = |name, std| params.weight(name, (d, d), std);
        Ok(Self {
            wq: weight("wq", spec.input_std)?,
            wk: weight("wk", spec.input_std)?,
            wv: weight("wv", spec.input_std)?,
            wg: weight("wg", spec.input_std)?,
            wout: weight("wout", spec.output_std)?,
            wa: weight("wa", spec.input_std)?,
            ba: params.get("ba", d, Init::Each(&initial_alpha))?,
            wt: weight("wt", spec.input_std)?,
            bt: params.bias("bt", d, d)?,
        })
    }

    /// x in the parameters' dtype.
    fn to_param_dtype(&self, x: &Tensor) -> Result<Tensor> {
        x.to_dtype(self.ba.dtype())
    }

    /// Projections of u `(batch, seq_len, d)`.
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<GateLoopInputs> {
        let without_bias = |w| (w, None);
        let (all, queried) = ([&self.wk, &self.wv], [&self.wq, &self.wg]);
        let maps = project(u, &all.map(without_bias), &queried.map(without_bias), cx)?;
        let transition = [(&self.wa, Some(&self.ba)), (&self.wt, Some(&self.bt))];
        let transition = project(u, &transition, &[], cx)?.all;
        let alpha = self.to_param_dtype(&transition[0])?;
        let theta = self.to_param_dtype(&transition[1])?;
        let (modulus, theta) = (Expression::of(&alpha).sigmoid(), Expression::of(&theta));
        let [re, im] = ops::tensors([&(&modulus * &theta.cos()), &(modulus * theta.sin())])?;
        Ok(GateLoopInputs {
            a: Complex { re, im },
            k: maps.all[0].clone(),
            v: maps.all[1].clone(),
            gated_q: ops::silu_gate(&maps.queried[0], &maps.queried[1])?,
        })
    }
}

impl Mixer for GateLoop {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let GateLoopInputs { a, k, v, gated_q } = self.project(u, cx)?;
        let kv = self.to_param_dtype(&(Expression::of(&k) * Expression::of(&v)).tensor()?)?;
        let (batch, seq_len, d) = kv.dims3()?;
        let pair = |re: &Tensor, im: &Tensor| -> Result<Tensor> {
            let [re, im] = [re, im].map(|part| ops::reshape(part, (batch, seq_len, 1, d)));
            ops::join(&[re?, im?], 2) // (batch, seq_len, 2, d)
        };
        let h = ops::complex_scan(&pair(&a.re, &a.im)?, &pair(&kv, &kv.zeros_like()?)?)?;
        let h = ops::reshape(&ops::split(&h, 2, &[1, 1])?[0], (batch, seq_len, d))?; // Re h
        let h = cx.select(&h)?.to_dtype(u.dtype())?;
        linear(&(Expression::of(&gated_q) * Expression::of(&h)).tensor()?, &self.wout, None)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        2 * self.ba.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    /// System of 2d channels: d real parts, which alone have an input and an output, then d imaginary parts.
    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let GateLoopInputs { a, k, gated_q, .. } = self.project(&u.unsqueeze(0)?, &Cx::eval())?;
        let [re, im, k, gated_q] = [a.re, a.im, k, gated_q].map(|x| x.squeeze(0));
        let (re, im, k, gated_q) = (re?, im?, k?, gated_q?);
        let pair = |re: &Tensor, im: &Tensor| Tensor::cat(&[re, im], 1)?.unsqueeze(2);
        let zero = k.zeros_like()?;
        Ok(Some(Ltv {
            off_diagonal: OffDiagonal::Complex(im.unsqueeze(2)?),
            value: Some(Tensor::cat(&[&self.wv, &self.wv], 0)?),
            output: Some(Tensor::cat(&[&self.wout, &self.wout], 1)?),
            ..Ltv::new(pair(&re, &re)?, pair(&k, &zero)?, pair(&gated_q, &zero)?)
        }))
    }
}

impl Recurrent for GateLoop {
    /// h, real and imaginary part, `(batch, 2, d)`.
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.ba;
        let shape = (batch, 2, like.elem_count());
        let zeros = Tensor::zeros(shape, like.dtype(), like.device())?;
        Ok(State::new(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let GateLoopInputs { a, k, v, gated_q } = self.project(&x_t.unsqueeze(1)?, &Cx::eval())?;
        let kv = self.to_param_dtype(&(k * v)?)?; // (batch, 1, d)
        let part = |i| state.0[0].narrow(1, i, 1);
        let h = Complex { re: part(0)?, im: part(1)? };
        let a_h = h.times(&a)?;
        let re = (a_h.re + kv)?;
        let y = linear(&(gated_q * re.to_dtype(x_t.dtype())?)?, &self.wout, None)?;
        *state = State::new(vec![Tensor::cat(&[re, a_h.im], 1)?]);
        y.squeeze(1)
    }
}
