//! Mamba-2 (Dao & Gu 2024): SSD at an expanded width E with one decay per head, a short convolution and SiLU over x, B and C
//! together, and a SiLU gate before an RMS norm,
//!
//! y = W_out norm((SSD(x) + D x) ⊙ silu(z)),  x, B, C = silu(conv(W u)),  z = W_z u

use super::short_conv::ShortConv;
use super::state_norm::rms_scale;
use super::state_space::{mamba_dt_bias, zero_state_like, SsmInputs};
use super::{
    Core, Entry, Family, Growth, Mixer, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State, StateNormPlace,
};
use crate::ltv::Inner;
use crate::nn::{linear, project, Cx, Init, Params, Scheme};
use crate::ops;
use crate::ops::rng::Rng;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "mamba2",
    equation: "y = W norm((SSD(x) + D x) ⊙ silu(z)), x, b, c = silu(conv(W u)), z = W_z u",
    cite: "Dao & Gu 2024",
    variants: &["block"],
    dsf: "N = n E, behind its convolution",
    heads: true,
    multi_head: true,
    expands: true,
    widens: true,
    released: ReleasedBlock::STATE_SPACE,
    state_norm: StateNormPlace::TAKEN,
    growth: Growth::Stacked {
        zeroed: &["win", "conv_b"],
        parts: |name, spec| {
            let (width, n) = (spec.inner_width(), spec.d_state);
            match name {
                "win" => Some(vec![2 * width, n, n, spec.n_heads]),
                "conv_w" | "conv_b" => Some(vec![width, n, n]),
                _ => None,
            }
        },
    },
    stem: "mamba2",
    authors_init: Some(Scheme::Mamba),
    own_init: &["a_log", "bdt", "conv_b", "conv_w", "dskip", "norm"],
    uncounted: &["conv_w"],
    work: |spec| {
        let (d, width, n) = (spec.d_model, spec.inner_width(), spec.d_state);
        let projections = d * (3 * width + 2 * n + spec.n_heads);
        Some(MixerWork::new(Core::ChunkedScan, [width, n], projections))
    },
    build: |spec, params| Ok(Box::new(Mamba2::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

/// ε of the RMS norm.
const EPS: f64 = 1e-5;

struct Mamba2 {
    /// Projections to z, x, B, C and Δ, stacked, `(2E + 2n + heads, d)`.
    win: Tensor,
    conv: ShortConv,
    bdt: Tensor,
    /// ln(-A), `(heads)`.
    a_log: Tensor,
    /// D, `(heads)`.
    dskip: Tensor,
    /// Weights of the norm, `(E)`.
    norm: Tensor,
    wout: Tensor,
    /// Inner width E.
    width: usize,
    d_state: usize,
    heads: usize,
}

/// Inputs of the recurrence and of the readout.
struct Mamba2Inputs {
    ssm: SsmInputs,
    /// x and the gate z at the queried positions, `(batch, rows, E)`.
    x: Tensor,
    z: Tensor,
}

impl Mamba2 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, heads, width) = (spec.d_model, spec.d_state, spec.n_heads, spec.inner_width());
        let a_log = |_: usize, rng: &mut Rng| (1.0 + 15.0 * rng.uniform()).ln();
        Ok(Self {
            win: params.weight("win", (2 * width + 2 * n + heads, d), spec.input_std)?,
            conv: ShortConv::new(width + 2 * n, params)?,
            bdt: params.get("bdt", heads, Init::Each(&mamba_dt_bias))?,
            a_log: params.get("a_log", heads, Init::Each(&a_log))?,
            dskip: params.get("dskip", heads, Init::Constant(1.0))?,
            norm: params.get("norm", width, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
            width,
            d_state: n,
            heads,
        })
    }

    /// Projections to z, to xBC = (x, B, C), and to Δ.
    fn projections(&self) -> Result<[Tensor; 3]> {
        let (width, xbc) = (self.width, self.width + 2 * self.d_state);
        let rows = |start, count| self.win.narrow(0, start, count);
        Ok([rows(0, width)?, rows(width, xbc)?, rows(width + xbc, self.heads)?])
    }

    /// x `(.., heads)`, repeated for each channel of its head: `(.., E)`.
    fn per_channel(&self, x: &Tensor) -> Result<Tensor> {
        let mut shape = x.dims().to_vec();
        shape.push(self.width / self.heads);
        let wide = x.unsqueeze(D::Minus1)?.broadcast_as(shape)?;
        wide.contiguous()?.flatten_from(x.rank() - 1)
    }

    /// Inputs for the convolved xBC `(batch, seq_len, E + 2n)`, the projection dt `(batch, seq_len, heads)`, and z at the queried
    /// positions.
    fn inputs(&self, xbc: &Tensor, dt: &Tensor, z: Tensor, cx: &Cx) -> Result<Mamba2Inputs> {
        let (width, n) = (self.width, self.d_state);
        let xbc = ops::silu(xbc)?;
        let slice = |start, count| xbc.narrow(D::Minus1, start, count)?.contiguous();
        let x = slice(0, width)?;
        let delta = ops::softplus_biased(dt, &self.bdt)?; // (batch, seq_len, heads)
        Ok(Mamba2Inputs {
            ssm: SsmInputs {
                delta: self.per_channel(&delta)?,
                a: self.per_channel(&self.a_log.exp()?.neg()?)?.unsqueeze(1)?,
                b: slice(width, n)?,
                c: cx.select(&slice(width + n, n)?)?,
                x: x.clone(),
                norm: None,
            },
            x: cx.select(&x)?,
            z,
        })
    }

    fn project(&self, u: &Tensor, cx: &Cx) -> Result<Mamba2Inputs> {
        let [z, xbc, dt] = self.projections()?;
        let mut maps = project(u, &[(&xbc, None), (&dt, None)], &[(&z, None)], cx)?;
        let xbc = self.conv.forward(&maps.all[0])?;
        self.inputs(&xbc, &maps.all[1], maps.queried.remove(0), cx)
    }

    /// o + D x, and its factor: the gate times the scale of the norm after it, `(batch, rows, E)` each.
    fn gated(&self, o: &Tensor, x: &Tensor, z: &Tensor) -> Result<[Tensor; 2]> {
        let o = ops::add_scaled(o, x, &self.per_channel(&self.dskip)?)?;
        let gate = ops::silu(z)?;
        let scale = rms_scale(&(&o * &gate)?, EPS)?;
        let norm = self.norm.to_dtype(gate.dtype())?;
        let gate = gate.broadcast_mul(&scale)?.broadcast_mul(&norm)?;
        Ok([o, gate])
    }

    /// y `(batch, rows, d)` for o, x and z, `(batch, rows, E)` each.
    fn output(&self, o: &Tensor, x: &Tensor, z: &Tensor) -> Result<Tensor> {
        let [o, gate] = self.gated(o, x, z)?;
        linear(&(o * gate)?, &self.wout, None)
    }
}

impl Mixer for Mamba2 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let Mamba2Inputs { ssm, x, z } = self.project(u, cx)?;
        self.output(&ssm.scan(cx)?, &x, &z)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.width * self.d_state + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let cx = Cx::eval();
        let Mamba2Inputs { ssm, x, z } = self.project(&u.unsqueeze(0)?, &cx)?;
        let [_, gate] = self.gated(&ssm.scan(&cx)?, &x, &z)?;
        let gate = gate.squeeze(0)?;
        let skip = gate.broadcast_mul(&self.per_channel(&self.dskip)?)?;
        let mut system = ssm.system(None, skip, Some(&self.wout))?;
        system.read = system.read.broadcast_mul(&gate.unsqueeze(2)?)?;
        Ok(Some(Inner {
            system,
            input: x.squeeze(0)?,
            around: "driven by x = silu(conv4(W_x u)), a shift register of three steps and a nonlinearity before it; C_i and \
                     D_i hold the gate silu(W_z u), the scale of the norm, which is not linear in the state, and the output \
                     projection",
        }))
    }
}

impl Recurrent for Mamba2 {
    /// H `(batch, E, n)` and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = zero_state_like(&self.win, [batch, self.width, self.d_state])?;
        state.0.push(self.conv.window(batch)?);
        Ok(state)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [z, xbc, dt] = self.projections()?.map(|w| linear(x_t, &w, None));
        let (xbc, window) = self.conv.step(&xbc?, &state.0[1])?;
        let (z, xbc, dt) = (z?.unsqueeze(1)?, xbc.unsqueeze(1)?, dt?.unsqueeze(1)?);
        let Mamba2Inputs { ssm, x, z } = self.inputs(&xbc, &dt, z, &Cx::eval())?;
        let o = ssm.step(state)?;
        state.0.push(window);
        self.output(&o, &x, &z)?.squeeze(1)
    }
}
