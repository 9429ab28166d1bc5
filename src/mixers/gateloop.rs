//! GateLoop (Katsch 2023): a recurrence of one complex number a channel whose rotation and decay are both made of the input, where
//! the LRU and S5 have them as constants.

use super::complex::Complex;
use super::{Core, Entry, Family, Mixer, MixerSpec, MixerWork, Recurrent, State};
use crate::ltv::{Beside, Ltv};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
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

/// α such that σ(α) is even between 0.9 and 0.999.
fn slow(_index: usize, rng: &mut Rng) -> f64 {
    let decay = 0.9 + 0.099 * rng.uniform();
    (decay / (1.0 - decay)).ln()
}

struct GateLoop {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wg: Tensor,
    wout: Tensor,
    /// To α, whose sigmoid is the decay.
    wa: Tensor,
    ba: Tensor,
    /// To θ, the angle.
    wt: Tensor,
    bt: Tensor,
}

/// What a token does to the state and reads from it.
struct Driven {
    /// The transition, `(.., d)`, in the type of the parameters: of a decay near 1 half precision leaves nothing.
    a: Complex,
    /// k and v, `(.., d)` each, whose product is written.
    written: [Tensor; 2],
    /// q ⊙ silu(g) at the queried positions.
    read: Tensor,
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
            ba: params.get("ba", d, Init::Each(&slow))?,
            wt: weight("wt", spec.input_std)?,
            bt: params.bias("bt", d, d)?,
        })
    }

    /// x in the type of the parameters.
    fn exact(&self, x: &Tensor) -> Result<Tensor> {
        x.to_dtype(self.ba.dtype())
    }

    /// For u `(.., d)`.
    fn driven(&self, u: &Tensor, cx: &Cx) -> Result<Driven> {
        let without = |w| (w, None);
        let (all, queried) = ([&self.wk, &self.wv], [&self.wq, &self.wg]);
        let maps = project(u, &all.map(without), &queried.map(without), cx)?;
        let turns = [(&self.wa, Some(&self.ba)), (&self.wt, Some(&self.bt))];
        let turns = project(u, &turns, &[], cx)?.all;
        let (alpha, angle) = (self.exact(&turns[0])?, self.exact(&turns[1])?);
        let decay = ops::sigmoid(&alpha)?;
        Ok(Driven {
            a: Complex {
                re: (&decay * angle.cos()?)?,
                im: (decay * angle.sin()?)?,
            },
            written: [maps.all[0].clone(), maps.all[1].clone()],
            read: (&maps.queried[0] * ops::silu(&maps.queried[1])?)?,
        })
    }
}

impl Driven {
    /// k ⊙ v.
    fn product(&self) -> Result<Tensor> {
        let [k, v] = &self.written;
        k * v
    }
}

impl Mixer for GateLoop {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let driven = self.driven(u, cx)?;
        let written = self.exact(&driven.product()?)?;
        let Driven { a, read, .. } = driven;
        let a = Tensor::stack(&[&a.re, &a.im], 2)?;
        let x = Tensor::stack(&[&written, &written.zeros_like()?], 2)?;
        let h = ops::complex_scan(&a, &x)?;
        let h = h.narrow(2, 0, 1)?.squeeze(2)?.contiguous()?;
        let h = cx.select(&h)?.to_dtype(u.dtype())?;
        linear(&(read * h)?, &self.wout, None)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        2 * self.ba.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    /// d channels of real parts, which alone are written and read, and d of imaginary ones.
    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let Driven { a, written, read } = self.driven(&u.unsqueeze(0)?, &Cx::eval())?;
        let [k, _] = written;
        let [re, im, k, read] = [a.re, a.im, k, read].map(|x| x.squeeze(0));
        let (re, im, k, read) = (re?, im?, k?, read?);
        let pair = |re: &Tensor, im: &Tensor| Tensor::cat(&[re, im], 1)?.unsqueeze(2);
        let none = k.zeros_like()?;
        Ok(Some(Ltv {
            beside: Beside::Turn(im.unsqueeze(2)?),
            value: Some(Tensor::cat(&[&self.wv, &self.wv], 0)?),
            output: Some(Tensor::cat(&[&self.wout, &self.wout], 1)?),
            ..Ltv::new(pair(&re, &re)?, pair(&k, &none)?, pair(&read, &none)?)
        }))
    }
}

impl Recurrent for GateLoop {
    /// The state `(batch, 2, d)`.
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.ba;
        let shape = (batch, 2, like.elem_count());
        let zeros = Tensor::zeros(shape, like.dtype(), like.device())?;
        Ok(State(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let driven = self.driven(&x_t.unsqueeze(1)?, &Cx::eval())?;
        let written = self.exact(&driven.product()?)?;
        let Driven { a, read, .. } = driven;
        let part = |i| state.0[0].narrow(1, i, 1);
        let before = Complex {
            re: part(0)?,
            im: part(1)?,
        };
        let turned = before.times(&a)?;
        let re = (turned.re + written)?;
        let y = linear(&(read * re.to_dtype(x_t.dtype())?)?, &self.wout, None)?;
        *state = State(vec![Tensor::cat(&[re, turned.im], 1)?]);
        y.squeeze(1)
    }
}
