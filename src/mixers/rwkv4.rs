//! The time mixing of RWKV-4 (Peng et al. 2023): per channel a weighted mean of the values before, with weights that fade and
//! with one of its own for the present, behind a gate. Each map reads a blend of a token and the one before it.

use super::running_max::running_max;
use super::token_shift::{blend, later, later_from_nothing};
use super::{Core, Entry, Family, Mixer, MixerSpec, MixerWork, Recurrent, State};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{DType, Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "rwkv4",
    equation: "y_i = W (σ(r_i) ⊙ mean of v_j weighed by e^(k_j-(i-1-j)w), of v_i by e^(b+k_i))",
    cite: "Peng et al. 2023",
    dsf: "no (blends neighbouring tokens)",
    stem: "rwkv4",
    own_init: &["bonus", "decay", "mu_k", "mu_r", "mu_v"],
    depth_init: &["decay", "mu_k", "mu_r", "mu_v"],
    work: |spec| {
        let d = spec.d_model;
        Some(MixerWork::new(Core::GatedScan, [2 * d, 1], 4 * d * d))
    },
    build: |spec, params| Ok(Box::new(Rwkv4::new(spec, params)?)),
    ..Entry::of(Family::Recurrent)
};

struct Rwkv4 {
    /// Share of the token in the blend that keys, values and receptances read.
    mu: [Tensor; 3],
    /// To keys, values and receptances.
    w: [Tensor; 3],
    /// ln w of every channel.
    decay: Tensor,
    bonus: Tensor,
    wout: Tensor,
}

impl Rwkv4 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        let last = spec.n_layers.saturating_sub(1).max(1) as f64;
        // Of RWKV's own code: deeper layers blend less, and later channels more slowly.
        let depth = spec.layer as f64 / last;
        let shallow = 1.0 - spec.layer as f64 / spec.n_layers.max(1) as f64;
        let at = move |i: usize| i as f64 / (d - 1).max(1) as f64;
        let share = move |i: usize| (i as f64 / d as f64).powf(shallow);
        let key = |i: usize, _: &mut _| share(i);
        let value = |i: usize, _: &mut _| share(i) + 0.3 * depth;
        let receptance = |i: usize, _: &mut _| (i as f64 / d as f64).powf(0.5 * shallow);
        let decay = |i: usize, _: &mut _| -5.0 + 8.0 * at(i).powf(0.7 + 1.3 * depth);
        let bonus = |i: usize, _: &mut _| 0.3f64.ln() + 0.5 * ((i + 1) % 3) as f64 - 0.5;
        let weight = |name, std| params.weight(name, (d, d), std);
        Ok(Self {
            mu: [
                params.get("mu_k", d, Init::Each(&key))?,
                params.get("mu_v", d, Init::Each(&value))?,
                params.get("mu_r", d, Init::Each(&receptance))?,
            ],
            w: [
                weight("wk", spec.input_std)?,
                weight("wv", spec.input_std)?,
                weight("wr", spec.input_std)?,
            ],
            decay: params.get("decay", d, Init::Each(&decay))?,
            bonus: params.get("bonus", d, Init::Each(&bonus))?,
            wout: weight("wout", spec.output_std)?,
        })
    }

    /// k, v and r for u and the tokens before, both `(.., d)`, in the type of the parameters: exponents need its digits.
    fn maps(&self, u: &Tensor, before: &Tensor) -> Result<[Tensor; 3]> {
        let map = |i: usize| {
            let blended = blend(before, u, &self.mu[i])?;
            linear(&blended, &self.w[i], None)?.to_dtype(self.decay.dtype())
        };
        Ok([map(0)?, map(1)?, map(2)?])
    }

    /// w of every channel, as a negative number.
    fn log_decay(&self) -> Result<Tensor> {
        self.decay.exp()?.neg()
    }

    /// y in the type `dtype` for the sums before, divided by e^m, and k, v, r of the present, all `(.., d)`.
    fn finish(
        &self,
        [above, below]: [&Tensor; 2],
        m: &Tensor,
        [k, v, r]: [&Tensor; 3],
        dtype: DType,
    ) -> Result<Tensor> {
        let present = k.broadcast_add(&self.bonus)?;
        let top = m.detach().maximum(&present.detach())?;
        let (past, present) = ((m - &top)?.exp()?, (present - top)?.exp()?);
        let above = ((above * &past)? + (&present * v)?)?;
        let below = ((below * past)? + present)?;
        let y = (ops::sigmoid(r)? * (above / below)?)?;
        linear(&y.to_dtype(dtype)?, &self.wout, None)
    }
}

/// What stands for the logarithm of nothing.
const NOTHING: f64 = -1e30;

impl Mixer for Rwkv4 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, d) = u.dims3()?;
        let [k, v, r] = self.maps(u, &later_from_nothing(u)?)?;
        let w = self.log_decay()?.broadcast_as((batch, seq_len, d))?;
        // Sums are held divided by e^m, m being their largest exponent.
        let m = running_max(&w, &k)?;
        let moved = (w + (later(&m, &m.narrow(1, 0, 1)?)? - &m)?)?.exp()?;
        let weight = (&k - &m)?.exp()?;
        let a = Tensor::cat(&[&moved, &moved], 2)?;
        let x = Tensor::cat(&[&(&weight * &v)?, &weight], 2)?;
        let sums = ops::linear_scan(&a.contiguous()?, &x)?;
        // The present is not among the sums that it meets.
        let sums = cx.select(&later_from_nothing(&sums)?)?;
        let nothing = m.narrow(1, 0, 1)?.affine(0.0, NOTHING)?;
        let m = cx.select(&later(&m, &nothing)?)?;
        let [k, v, r] = [cx.select(&k)?, cx.select(&v)?, cx.select(&r)?];
        let half = |i| sums.narrow(2, i * d, d);
        self.finish([&half(0)?, &half(1)?], &m, [&k, &v, &r], u.dtype())
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        4 * self.decay.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its maps read a blend of each token and the one before it; behind that blend it is one, with N = d, whose D_i holds \
         the weight of the present"
    }
}

impl Recurrent for Rwkv4 {
    /// The token before, both sums, and the exponent that they are divided by, `(batch, d)` each.
    fn init(&self, batch: usize) -> Result<State> {
        let (d, like) = (self.decay.elem_count(), &self.decay);
        let zeros = Tensor::zeros((batch, d), like.dtype(), like.device())?;
        let nothing = zeros.affine(0.0, NOTHING)?;
        Ok(State(vec![zeros.clone(), zeros.clone(), zeros, nothing]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [before, above, below, m] = &state.0[..] else {
            unreachable!("the state holds four tensors");
        };
        let [k, v, r] = self.maps(x_t, before)?;
        let y = self.finish([above, below], m, [&k, &v, &r], x_t.dtype())?;
        let faded = m.broadcast_add(&self.log_decay()?)?;
        let top = faded.maximum(&k)?;
        let (past, present) = ((faded - &top)?.exp()?, (&k - &top)?.exp()?);
        let above = ((above * &past)? + (&present * v)?)?;
        let below = ((below * past)? + present)?;
        *state = State(vec![x_t.clone(), above, below, top]);
        Ok(y)
    }
}
