//! Exponential moving average per channel with a learnt decay, the example of the guide on adding a mixer.

use super::{Entry, Family, Mixer, MixerSpec, Recurrent, ReleasedBlock, State};
use crate::ltv::Ltv;
use crate::nn::{linear, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "ema",
    equation: "h_i = λ ⊙ h_{i-1} + (1 - λ) ⊙ W_V u_i, y_i = W_O h_i",
    cite: "an example",
    variants: &["plain"],
    dsf: "N = d",
    released: ReleasedBlock::RNN,
    stem: "ema",
    own_init: &["decay"],
    build: |spec, params| Ok(Box::new(Ema::new(spec, params)?)),
    ..Entry::of(Family::Recurrent)
};

struct Ema {
    /// λ = σ(decay), `(d)`.
    decay: Tensor,
    wv: Tensor,
    wout: Tensor,
}

impl Ema {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        Ok(Self {
            decay: params.get("decay", d, Init::Uniform(0.0, 4.0))?,
            wv: params.weight("wv", (d, d), spec.input_std)?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
        })
    }

    /// λ and (1 - λ) ⊙ W_V u, of the shape and dtype of u: parameters are f32 even where activations are bf16.
    fn project(&self, u: &Tensor) -> Result<[Tensor; 2]> {
        let lambda = ops::sigmoid(&self.decay)?.to_dtype(u.dtype())?;
        let input = linear(u, &self.wv, None)?.broadcast_mul(&lambda.affine(-1.0, 1.0)?)?;
        Ok([lambda.broadcast_as(u.shape())?.contiguous()?, input])
    }
}

impl Mixer for Ema {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let [lambda, input] = self.project(u)?;
        let h = ops::linear_scan(&lambda, &input)?;
        linear(&cx.select(&h)?, &self.wout, None)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.decay.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let [lambda, _] = self.project(u)?;
        let write = lambda.affine(-1.0, 1.0)?;
        let read = lambda.ones_like()?.unsqueeze(2)?;
        Ok(Some(Ltv {
            gate: Some(write.clone()),
            value: Some(self.wv.clone()),
            output: Some(self.wout.clone()),
            ..Ltv::new(lambda.unsqueeze(2)?, write.unsqueeze(2)?, read)
        }))
    }
}

impl Recurrent for Ema {
    fn init(&self, batch: usize) -> Result<State> {
        let zero = Tensor::zeros((batch, self.decay.dim(0)?), self.decay.dtype(), self.decay.device())?;
        Ok(State::new(vec![zero]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [lambda, input] = self.project(x_t)?;
        let h = ((&state.0[0] * lambda)? + input)?;
        let y = linear(&h, &self.wout, None)?;
        *state = State::new(vec![h]);
        Ok(y)
    }
}
