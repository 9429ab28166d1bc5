//! DeltaNet (Schlag et al. 2021, Yang et al. 2024) and Gated DeltaNet (Yang et al. 2025): linear attention that replaces what its
//! state holds under a key instead of adding to it. The transition is no diagonal: a step past the paper's framework.

use super::delta_state::{normalised, zero_state, DeltaDrive};
use super::matrix_state::{head_rms_factor, work, Sizes};
use super::short_conv::ShortConv;
use super::state_space::mamba_step_bias;
use super::{Entry, Family, Growth, Mixer, MixerSpec, Recurrent, State};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "delta-net",
    equation: "S_i = (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ, |k_i| = 1, β_i = σ(w·u_i)",
    cite: "Yang et al. 2024",
    dsf: "N = n d/s, behind its convolution",
    heads: true,
    expands: true,
    // A key of zeros in its new rows has the length that it had.
    growth: Growth::Stacked {
        zeroed: &["win", "conv_b"],
        parts: |name, spec| {
            let (n, d) = (spec.d_state, spec.d_model);
            ["win", "conv_w", "conv_b"]
                .contains(&name)
                .then(|| vec![n, n, d])
        },
    },
    stem: "delta_net",
    own_init: &["conv_b", "conv_w", "norm"],
    uncounted: &["conv_w"],
    // Short keys turn far when they are normalised.
    difference_step: 1e-6,
    work: |spec| {
        let mut work = work(spec, 1);
        work.projections += spec.n_heads * spec.d_model;
        Some(work)
    },
    build: |spec, params| Ok(Box::new(DeltaNet::new(spec, params, None)?)),
    ..Entry::of(Family::GatedLinear)
};

pub(super) const GATED: Entry = Entry {
    name: "gated-delta-net",
    equation: "S_i = α_i (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ, α = e^(-a softplus(w·u+b))",
    cite: "Yang et al. 2025",
    stem: "gated_delta_net",
    own_init: &["a_log", "bdt", "conv_b", "conv_w", "norm"],
    work: |spec| {
        let mut work = work(spec, 2);
        work.projections += 2 * spec.n_heads * spec.d_model;
        Some(work)
    },
    build: |spec, params| {
        let gates = Gates::new(spec, params)?;
        Ok(Box::new(DeltaNet::new(spec, params, Some(gates))?))
    },
    ..ENTRY
};

/// Added to the mean square in the norm of a head.
const EPS: f64 = 1e-5;

/// What Gated DeltaNet has beside the delta rule.
struct Gates {
    /// To the steps that decays are made of, one a head.
    wa: Tensor,
    bdt: Tensor,
    a_log: Tensor,
    /// To the gate behind the norm.
    wg: Tensor,
}

impl Gates {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, heads) = (spec.d_model, spec.n_heads);
        let a_log = |_: usize, rng: &mut Rng| (1.0 + 15.0 * rng.uniform()).ln();
        Ok(Self {
            wa: params.weight("wa", (heads, d), spec.input_std)?,
            bdt: params.get("bdt", heads, Init::Each(&mamba_step_bias))?,
            a_log: params.get("a_log", heads, Init::Each(&a_log))?,
            wg: params.weight("wg", (d, d), spec.input_std)?,
        })
    }

    /// ln α of every head, for its steps before their bias.
    fn log_decays(&self, steps: &Tensor) -> Result<Tensor> {
        let rate = self.a_log.exp()?.neg()?.to_dtype(steps.dtype())?;
        ops::softplus_biased(steps, &self.bdt)?.broadcast_mul(&rate)
    }
}

struct DeltaNet {
    /// Rows for q, k and v, which pass the convolution together.
    win: Tensor,
    conv: ShortConv,
    /// To β, one a head.
    wb: Tensor,
    gates: Option<Gates>,
    /// Of the norm, `(e)`: all heads have the same.
    norm: Tensor,
    wout: Tensor,
    sizes: Sizes,
    d_state: usize,
}

impl DeltaNet {
    fn new(spec: &MixerSpec, params: &Params, gates: Option<Gates>) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let sizes = Sizes::of(spec);
        Ok(Self {
            win: params.weight("win", (2 * n + d, d), spec.input_std)?,
            conv: ShortConv::new(2 * n + d, params)?,
            wb: params.weight("wb", (spec.n_heads, d), spec.input_std)?,
            gates,
            norm: params.get("norm", sizes.values, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, d), spec.output_std)?,
            sizes,
            d_state: n,
        })
    }

    /// The inputs of the state for the convolved maps `(batch, seq_len, 2n + d)`, and for β and the steps of decays before their
    /// nonlinearities, `(batch, seq_len, heads)`.
    fn drive(
        &self,
        convolved: &Tensor,
        beta: &Tensor,
        steps: Option<&Tensor>,
        cx: &Cx,
    ) -> Result<DeltaDrive> {
        let n = self.d_state;
        let mixed = ops::silu(convolved)?;
        let part = |start, count| {
            let part = mixed.narrow(D::Minus1, start, count)?.contiguous()?;
            self.sizes.split(&part)
        };
        let k = normalised(&part(n, n)?)?;
        let v = part(2 * n, mixed.dim(D::Minus1)? - 2 * n)?;
        let written = k.broadcast_mul(&ops::sigmoid(beta)?.unsqueeze(3)?)?;
        let (g, a) = match self.gates.as_ref().zip(steps) {
            Some((gates, steps)) => {
                let g = gates.log_decays(steps)?.unsqueeze(3)?;
                let a = written.broadcast_mul(&g.exp()?)?.neg()?;
                (g, a)
            }
            None => (beta.zeros_like()?.unsqueeze(3)?, written.neg()?),
        };
        Ok(DeltaDrive {
            q: normalised(
                &cx.select(&part(0, n)?.flatten_from(2)?)
                    .and_then(|q| self.sizes.split(&q))?,
            )?,
            k: written,
            v,
            a,
            b: k,
            g,
        })
    }

    /// The same for u `(batch, seq_len, d)`, and the gate before its nonlinearity.
    fn driven(&self, u: &Tensor, cx: &Cx) -> Result<(DeltaDrive, Option<Tensor>)> {
        let all = [&[&self.win][..], &self.narrow_maps()].concat();
        let all: Vec<_> = all.into_iter().map(|w| (w, None)).collect();
        let gate = self.gates.as_ref().map(|gates| (&gates.wg, None));
        let mut maps = project(u, &all, gate.as_slice(), cx)?;
        let convolved = self.conv.forward(&maps.all[0])?;
        let drive = self.drive(&convolved, &maps.all[1], maps.all.get(2), cx)?;
        Ok((drive, maps.queried.pop()))
    }

    /// What the channels of o `(batch, rows, heads, e)` are multiplied with, `(batch, rows, d)`: the norm of a head and the gate.
    fn factor(&self, o: &Tensor, gate: Option<&Tensor>) -> Result<Tensor> {
        let weights = Tensor::cat(&vec![&self.norm; self.sizes.heads], 0)?;
        let scale = head_rms_factor(o, EPS)?.broadcast_mul(&weights.to_dtype(o.dtype())?)?;
        match gate {
            Some(gate) => scale * ops::silu(gate)?,
            None => Ok(scale),
        }
    }

    /// y for o `(batch, rows, heads, e)`, and for the gate before its nonlinearity.
    fn finish(&self, o: &Tensor, gate: Option<&Tensor>) -> Result<Tensor> {
        let y = (o.flatten_from(2)? * self.factor(o, gate)?)?;
        linear(&y, &self.wout, None)
    }

    /// The maps at all positions behind that of the convolution.
    fn narrow_maps(&self) -> Vec<&Tensor> {
        let steps = self.gates.as_ref().map(|gates| &gates.wa);
        [Some(&self.wb), steps].into_iter().flatten().collect()
    }
}

impl Mixer for DeltaNet {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (drive, gate) = self.driven(u, cx)?;
        self.finish(&drive.scan(cx)?, gate.as_ref())
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        let Sizes {
            heads,
            features,
            values,
            ..
        } = self.sizes;
        heads * features * values + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let cx = Cx::eval();
        let (drive, gate) = self.driven(&u.unsqueeze(0)?, &cx)?;
        let factor = self.factor(&drive.scan(&cx)?, gate.as_ref())?;
        let system = drive.system(self.sizes)?;
        Ok(Some(Inner {
            system: Ltv {
                read: system
                    .read
                    .broadcast_mul(&factor.squeeze(0)?.unsqueeze(2)?)?,
                output: Some(self.wout.clone()),
                ..system
            },
            input: drive.v.squeeze(0)?.flatten_from(1)?,
            around: "driven by its values, v = silu(conv4(W_v u)), a shift register of three steps and a nonlinearity in front of \
                     it; C_i holds the norm of a head, the gate where there is one, and the output projection",
        }))
    }
}

impl Recurrent for DeltaNet {
    /// The state `(batch, heads, m, e)` and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let state = zero_state(self.sizes, batch, &self.win)?;
        Ok(State(vec![state, self.conv.window(batch)?]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let map = |w: &Tensor| linear(x_t, w, None)?.unsqueeze(1);
        let (convolved, window) = self
            .conv
            .step(&linear(x_t, &self.win, None)?, &state.0[1])?;
        let narrow = self.narrow_maps().into_iter().map(map);
        let narrow: Vec<Tensor> = narrow.collect::<Result<_>>()?;
        let gate = self
            .gates
            .as_ref()
            .map(|gates| map(&gates.wg))
            .transpose()?;
        let drive = self.drive(
            &convolved.unsqueeze(1)?,
            &narrow[0],
            narrow.get(1),
            &Cx::eval(),
        )?;
        let o = drive.step(state)?;
        state.0[1] = window;
        self.finish(&o, gate.as_ref())?.squeeze(1)
    }
}
