//! RG-LRU (9), (10), (21), appendix F.1; De et al. 2024:
//! x_i = a_i x_{i-1} + √(1 - a_i²) g_i u_i with log a_i = -8 softplus(λ) r_i.

use super::gated_block::{self, GatedBlock};
use super::{
    Core, Entry, Family, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State,
};
use crate::ltv::{Channels, Ltv};
use crate::nn::{linear, Cx, Init, Params};
use crate::ops::rng::Stream;
use crate::ops::{self, Gates};
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "rg-lru",
    equation: "x_i = a_i x_{i-1} + √(1-a_i²) g_i u_i, a_i = e^(-8 softplus(λ) r_i)",
    cite: "(9), (10), (21)",
    variants: &["hawk", "paper"],
    dsf: "N = d (variant paper)",
    heads: false,
    expands: false,
    widens: true,
    rotary: false,
    family: Family::Recurrent,
    released: ReleasedBlock::RNN,
    options: &[MixerOption {
        name: "lambda_init",
        help:
            "initial λ from -9 to -4.323: `exp` (evenly) or `uniform` (as log(e^t - 1), t evenly)",
        default: |_| "exp",
        accepts: |v| v == "exp" || v == "uniform",
        variants: &["hawk"],
        implied: true,
    }],
    stem: "rg_lru",
    work: |spec| {
        let d = spec.d_model;
        Some(match spec.variant {
            "paper" => MixerWork::new(Core::GatedScan, [d, 1], 2 * d * d),
            _ => gated_block::work(spec, 2),
        })
    },
    build: |spec, params| {
        Ok(match spec.variant {
            "paper" => Box::new(Plain::new(spec, params)?),
            _ => Box::new(Hawk::new(spec, params)?),
        })
    },
};

/// λ such that the decay at r = 1 is uniform on [0.9, 0.999] (Griffin).
fn griffin(_index: usize, stream: &mut Stream) -> f64 {
    let a = 0.9 + 0.099 * stream.uniform();
    (-a.ln() / 8.0).exp_m1().ln()
}

/// Lowest initial λ of the released code, and how far the highest, -4.323, lies above it.
const LOWEST: f64 = -9.0;
const HIGHEST_ABOVE: f64 = 9.0 - 4.323;

/// log(e^t - 1) for t from 0.001 to 0.1 as `fraction` goes from 0 to 1, rescaled to 0 to 1.
fn log_curve(fraction: f64) -> f64 {
    let curve = |fraction: f64| (0.001 + 0.099 * fraction).exp_m1().ln();
    (curve(fraction) - curve(0.0)) / (curve(1.0) - curve(0.0))
}

/// Variant `paper`.
struct Plain {
    wa: Tensor,
    wu: Tensor,
    lam: Tensor,
}

impl Plain {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        Ok(Self {
            wa: params.weight("wa", (d, d), spec.input_std)?,
            wu: params.weight("wu", (d, d), spec.input_std)?,
            lam: params.get("lam", d, Init::Each(&griffin))?,
        })
    }

    /// Pre-activations of both gates, `(.., 2d)`.
    fn drive(&self, u: &Tensor) -> Result<Tensor> {
        linear(u, &Tensor::cat(&[&self.wa, &self.wu], 0)?, None)
    }

    fn gates(&self) -> Gates {
        Gates::RgLru {
            lambda: self.lam.clone(),
            eps: 0.0,
        }
    }
}

impl Mixer for Plain {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        ops::gated_scan(
            &self.drive(u)?,
            u,
            &self.gates(),
            cx.rows().map(|rows| &rows.positions),
        )
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.lam.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let (a, g) = self.gates().values(&self.drive(u)?)?;
        let system = Channels {
            lambda: a.unsqueeze(2)?,
            read: g.ones_like()?.unsqueeze(2)?,
            write: g.unsqueeze(2)?,
            value: None,
            skip: None,
            output: None,
        };
        system.system().map(Some)
    }
}

impl Recurrent for Plain {
    fn init(&self, batch: usize) -> Result<State> {
        let shape = (batch, self.lam.dim(0)?);
        Ok(State(vec![Tensor::zeros(
            shape,
            self.lam.dtype(),
            self.lam.device(),
        )?]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let (a, g) = self.gates().values(&self.drive(x_t)?)?;
        let h = ((&state.0[0] * a)? + (g * x_t)?)?;
        *state = State(vec![h.clone()]);
        Ok(h)
    }
}

/// Variant `hawk`: the recurrence inside the gated block of the released LRA code, which adds
/// 1e-6 under the root.
struct Hawk {
    block: GatedBlock,
    wgates: Tensor,
    bgates: Tensor,
    lam: Tensor,
}

impl Hawk {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let block = GatedBlock::new(spec, params)?;
        let e = block.width;
        let uniform = spec.option("lambda_init") == Some("uniform");
        let initial_lambda = |i: usize, _: &mut Stream| {
            let (at, last) = (i as f64, (e - 1).max(1) as f64);
            if uniform {
                LOWEST + HIGHEST_ABOVE * log_curve(at / last)
            } else {
                LOWEST + HIGHEST_ABOVE * at / last
            }
        };
        Ok(Self {
            wgates: params.weight("wgates", (2 * e, e), spec.input_std)?,
            bgates: params.bias("bgates", 2 * e, e)?,
            lam: params.get("lam", e, Init::Each(&initial_lambda))?,
            block,
        })
    }

    /// Pre-activations of both gates for the convolved x `(.., E)`: `(.., 2E)`.
    fn drive(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, &self.wgates, Some(&self.bgates))
    }

    fn gates(&self) -> Gates {
        Gates::RgLru {
            lambda: self.lam.clone(),
            eps: 1e-6,
        }
    }
}

impl Mixer for Hawk {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, gate) = self.block.drive(u, cx)?;
        let h = ops::gated_scan(
            &self.drive(&x)?,
            &x,
            &self.gates(),
            cx.rows().map(|rows| &rows.positions),
        )?;
        self.block.finish(&h, None, &gate)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.block.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }
}

impl Recurrent for Hawk {
    fn init(&self, batch: usize) -> Result<State> {
        self.block.zero_state(batch)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [x, gate, window] = self.block.drive_step(x_t, &state.0[1])?;
        let (a, g) = self.gates().values(&self.drive(&x)?)?;
        let h = ((&state.0[0] * a)? + (g * x)?)?;
        *state = State(vec![h.clone(), window]);
        self.block.finish(&h, None, &gate)
    }
}
