//! Recurrent block of Griffin as in RecurrentGemma (De et al. 2024; Botev et al. 2024): an RG-LRU of width E after a
//! short convolution, with block-diagonal gates, times a gate,
//!
//! y = W_out (gelu(W_y u + b_y) ⊙ RG-LRU(x)) + b_out,  x = conv(W_x u + b_x)
//!
//! h_i = a_i ⊙ h_{i-1} + √(1 - a_i²) ⊙ g_i ⊙ x_i,  log a_i = -8 softplus(λ) ⊙ r_i,  h_0 = g_0 ⊙ x_0
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | a | decay | `(batch, seq_len, E)` |
//! | r, g | recurrence and input gate, σ of a block-diagonal map of x each | `(batch, seq_len, E)` |
//! | λ | learnt decay parameter | `(E)` |
//!
//! The first token has no past, so that its factor is 1 instead of √(1 - a²). Initial λ are those of the paper, where a
//! is uniform on [0.9, 0.999] at r = 1; RecurrentGemma's code draws a^(1/8) from there.

use super::blockwise;
use super::short_conv::ShortConv;
use super::{in_range, Core, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State};
use crate::error::{self, refuse};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx, Init, Map, Params};
use crate::ops::rng::Rng;
use crate::ops::{self, Gates};
use candle_core::{Result, Tensor, D};

/// Name of this variant of RG-LRU.
pub(super) const VARIANT: &str = "griffin";

/// Width of the recurrence.
pub(super) const WIDTH: MixerOption = MixerOption {
    name: "width",
    help: "width of the recurrence: `auto` (--d) or a number",
    default: |_| "auto",
    accepts: |v| v == "auto" || in_range(v, 1..=1 << 20),
    variants: &[VARIANT],
    implied: true,
    ..MixerOption::DEFAULT
};

/// Blocks of the gates' maps.
pub(super) const BLOCKS: MixerOption = MixerOption {
    name: "blocks",
    help:
        "blocks of the gates' maps: `1`, or a number that divides the width; RecurrentGemma has one for each head of \
           its attention",
    default: |_| "1",
    accepts: |v| in_range(v, 1..=4096),
    variants: &[VARIANT],
    implied: true,
    ..MixerOption::DEFAULT
};

fn width(spec: &MixerSpec) -> usize {
    spec.parsed(WIDTH.name).unwrap_or(spec.d_model)
}

fn blocks(spec: &MixerSpec) -> usize {
    spec.parsed(BLOCKS.name).unwrap_or(1)
}

/// Error where the blocks cannot share the width.
pub(super) fn check(spec: &MixerSpec) -> error::Result<()> {
    let (width, blocks) = (width(spec), blocks(spec));
    if spec.variant == VARIANT && !width.is_multiple_of(blocks) {
        refuse!(flag "--option" = format!("blocks={blocks}"), "does not divide the width {width}: each block takes an equal share");
    }
    Ok(())
}

pub(super) fn work(spec: &MixerSpec) -> MixerWork {
    let width = width(spec);
    let projections = width * (3 * spec.d_model + 2 * (width / blocks(spec)));
    MixerWork::new(Core::GatedScan, [width, 1], projections)
}

pub(super) struct Griffin {
    /// Projection to the input of the recurrence, `(E, d)`, and its biases.
    x: [Tensor; 2],
    /// Projection to the gate, `(E, d)`, and its biases.
    y: [Tensor; 2],
    conv: ShortConv,
    /// Rows of the blocks of the maps to the recurrence gate, then of those to the input gate: `(2E, E / blocks)`.
    wgates: Tensor,
    bgates: Tensor,
    /// λ `(E)`.
    lambda: Tensor,
    /// Output projection `(d, E)` and its biases.
    out: [Tensor; 2],
}

/// Initial λ of Griffin: the decay at r = 1 is uniform on [0.9, 0.999].
pub(super) fn griffin_lambda(_index: usize, rng: &mut Rng) -> f64 {
    let a = 0.9 + 0.099 * rng.uniform();
    (-a.ln() / 8.0).exp_m1().ln()
}

fn map([w, b]: &[Tensor; 2]) -> Map<'_> {
    (w, Some(b))
}

impl Griffin {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        const GATES_VARIANCE: f64 = 0.01;
        let (d, width) = (spec.d_model, width(spec));
        let block = width / blocks(spec);
        let input = |[weight, bias]: [&str; 2]| -> Result<[Tensor; 2]> {
            let init = Init::Normal((d as f64).powf(-0.5));
            Ok([params.map(weight, (width, d), init)?, params.bias(bias, width, d)?])
        };
        let output_std = (2.0 / (spec.n_layers * width) as f64).sqrt();
        Ok(Self {
            x: input(["wx", "bx"])?,
            y: input(["wy", "by"])?,
            conv: ShortConv::with_variance(GATES_VARIANCE, spec, width, params)?,
            wgates: params.weight("wgates", (2 * width, block), (GATES_VARIANCE / block as f64).sqrt())?,
            bgates: params.bias("bgates", 2 * width, block)?,
            lambda: params.get("lam", width, Init::Each(&griffin_lambda))?,
            out: [params.weight("wout", (d, width), output_std)?, params.bias("bout", d, width)?],
        })
    }

    /// Pre-activations of the recurrence gate and the input gate, `(.., 2E)`, for x `(.., E)`.
    fn gates(&self, x: &Tensor) -> Result<Tensor> {
        blockwise::maps(x, &self.wgates, &self.bgates)
    }

    fn rule(&self) -> Gates {
        Gates::RgLru { lambda: self.lambda.clone(), eps: 0.0 }
    }

    /// Decay and factor of the input of every token `(batch, seq_len, E)` for z `(batch, seq_len, 2E)`. Those of the
    /// first token are 0 and the input gate.
    fn factors(&self, z: &Tensor) -> Result<[Tensor; 2]> {
        let (decay, factor) = self.rule().values(z)?;
        let first = ops::sigmoid(&self.input_gate(z, 0)?)?;
        let followed = |first: Tensor, all: &Tensor| Tensor::cat(&[&first, &all.narrow(1, 1, all.dim(1)? - 1)?], 1);
        Ok([followed(first.zeros_like()?, &decay)?, followed(first, &factor)?])
    }

    /// Pre-activation of the input gate of token `at`, `(batch, 1, E)`, for z `(batch, seq_len, 2E)`.
    fn input_gate(&self, z: &Tensor, at: usize) -> Result<Tensor> {
        let width = self.lambda.elem_count();
        z.narrow(1, at, 1)?.narrow(2, width, width)?.contiguous()
    }

    /// z `(batch, seq_len, 2E)` and x `(batch, seq_len, E)` of a scan that multiplies the first token by its input gate
    /// alone: with r_0 = 1/2, since a_0 multiplies a state of 0, and x_0 divided by the √(1 - a_0²) that this makes.
    fn neutral_at_first(&self, z: &Tensor, x: &Tensor) -> Result<[Tensor; 2]> {
        let width = self.lambda.elem_count();
        let half = z.narrow(1, 0, 1)?.narrow(2, 0, width)?.zeros_like()?;
        let neutral = Tensor::zeros((1, 1, 2 * width), self.lambda.dtype(), self.lambda.device())?;
        let (_, factor) = self.rule().values(&neutral)?; // √(1 - a_0²) times an input gate of 1/2
        let x_0 = x.narrow(1, 0, 1)?.broadcast_div(&(factor * 2.0)?.to_dtype(x.dtype())?)?;
        let z_0 = Tensor::cat(&[&half, &self.input_gate(z, 0)?], 2)?;
        let followed = |first: &Tensor, all: &Tensor| Tensor::cat(&[first, &all.narrow(1, 1, all.dim(1)? - 1)?], 1);
        Ok([followed(&z_0, z)?, followed(&x_0, x)?])
    }

    /// y `(.., d)` for the state h and the gate before its activation, `(.., E)` each.
    fn readout(&self, h: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let [w, b] = &self.out;
        linear(&(h * ops::gelu_tanh(gate)?)?, w, Some(b))
    }
}

impl Mixer for Griffin {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let mut maps = project(u, &[map(&self.x)], &[map(&self.y)], cx)?;
        let x = self.conv.forward(&maps.all.remove(0))?; // (batch, seq_len, E)
        let z = self.gates(&x)?;
        let [z, x] = self.neutral_at_first(&z, &x)?;
        let at = cx.rows().map(|rows| &rows.positions);
        let h = ops::gated_scan(&z, &x, &self.rule(), at)?;
        self.readout(&h, &maps.queried[0])
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.lambda.elem_count() + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let maps = project(&u.unsqueeze(0)?, &[map(&self.x)], &[map(&self.y)], &Cx::eval())?;
        let x = self.conv.forward(&maps.all[0])?;
        let [decay, factor] = self.factors(&self.gates(&x)?)?;
        let read = ops::gelu_tanh(&maps.queried[0])?;
        let each = |t: &Tensor| t.squeeze(0)?.unsqueeze(2);
        let system = Ltv {
            gate: Some(factor.squeeze(0)?),
            output: Some(self.out[0].clone()),
            ..Ltv::new(each(&decay)?, each(&factor)?, each(&read)?)
        };
        Ok(Some(Inner {
            system: system.with_offset(Some(&self.out[1]))?,
            input: x.squeeze(0)?,
            around:
                "driven by x = conv(W_x u + b_x), a shift register of past tokens before it; C_i holds the gate after \
                     it, gelu(W_y u + b_y), and the output projection",
        }))
    }
}

impl Recurrent for Griffin {
    /// h `(batch, E)` and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let like = &self.lambda;
        let h = Tensor::zeros((batch, like.elem_count()), like.dtype(), like.device())?;
        Ok(State::new(vec![h, self.conv.window(batch)?]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let [x, gate] = [&self.x, &self.y].map(|[w, b]| linear(x_t, w, Some(b)));
        let (x, window) = self.conv.step(&x?, &state.0[1])?;
        let z = self.gates(&x)?;
        let h = match at {
            0 => (ops::sigmoid(&z.narrow(D::Minus1, x.dim(1)?, x.dim(1)?)?.contiguous()?)? * x)?,
            _ => {
                let (decay, factor) = self.rule().values(&z)?;
                ((&state.0[0] * decay)? + (factor * x)?)?
            }
        };
        *state = State::new(vec![h.clone(), window]);
        self.readout(&h, &gate?)
    }

    fn read(&self, u: &Tensor) -> Result<(Tensor, State)> {
        let maps = project(u, &[map(&self.x)], &[map(&self.y)], &Cx::eval())?;
        let window = self.conv.window_after(&maps.all[0])?;
        let x = self.conv.forward(&maps.all[0])?;
        let [z, x] = self.neutral_at_first(&self.gates(&x)?, &x)?;
        let h = ops::gated_scan(&z, &x, &self.rule(), None)?;
        let last = h.narrow(1, h.dim(1)? - 1, 1)?.squeeze(1)?.contiguous()?.to_dtype(window.dtype())?;
        Ok((self.readout(&h, &maps.queried[0])?, State::new(vec![last, window])))
    }
}
