//! Mamba-2, the layer around SSD as its authors train it (Dao & Gu 2024): a short convolution with SiLU over x, b and c together,
//! one decay a head, and a gate in front of an RMS norm.

use super::matrix_state::rms_factor;
use super::short_conv::ShortConv;
use super::state_space::{mamba_step_bias, zero_state_of, Drive};
use super::{
    Core, Entry, Family, Growth, Mixer, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State,
};
use crate::ltv::Inner;
use crate::nn::{linear, project, Cx, Init, Params};
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
    expands: true,
    widens: true,
    released: ReleasedBlock::STATE_SPACE,
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

/// Added to the mean square in the norm.
const EPS: f64 = 1e-5;

struct Mamba2 {
    /// Rows for z, x, b, c and the steps.
    win: Tensor,
    conv: ShortConv,
    bdt: Tensor,
    a_log: Tensor,
    dskip: Tensor,
    norm: Tensor,
    wout: Tensor,
    /// Inner width E.
    width: usize,
    d_state: usize,
    heads: usize,
}

/// What a token puts into the state, and what the read-out needs beside it.
struct Driven {
    drive: Drive,
    /// x and z at the queried positions, `(batch, rows, E)`.
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
            bdt: params.get("bdt", heads, Init::Each(&mamba_step_bias))?,
            a_log: params.get("a_log", heads, Init::Each(&a_log))?,
            dskip: params.get("dskip", heads, Init::Constant(1.0))?,
            norm: params.get("norm", width, Init::Constant(1.0))?,
            wout: params.weight("wout", (d, width), spec.output_std)?,
            width,
            d_state: n,
            heads,
        })
    }

    /// The rows of `win` for z, for x, b and c, and for the steps.
    fn maps(&self) -> Result<[Tensor; 3]> {
        let (width, convolved) = (self.width, self.width + 2 * self.d_state);
        let rows = |start, count| self.win.narrow(0, start, count);
        Ok([
            rows(0, width)?,
            rows(width, convolved)?,
            rows(width + convolved, self.heads)?,
        ])
    }

    /// `(.., heads)` to `(.., E)`.
    fn per_channel(&self, x: &Tensor) -> Result<Tensor> {
        let mut shape = x.dims().to_vec();
        shape.push(self.width / self.heads);
        let wide = x.unsqueeze(D::Minus1)?.broadcast_as(shape)?;
        wide.contiguous()?.flatten_from(x.rank() - 1)
    }

    /// The inputs of the state from convolved x, b, c `(batch, seq_len, E + 2n)`, raw steps `(.., heads)` and z at the queried
    /// positions.
    fn driven(&self, convolved: &Tensor, steps: &Tensor, z: Tensor, cx: &Cx) -> Result<Driven> {
        let (width, n) = (self.width, self.d_state);
        let xbc = ops::silu(convolved)?;
        let part = |start, count| xbc.narrow(D::Minus1, start, count)?.contiguous();
        let x = part(0, width)?;
        let step = ops::softplus_biased(steps, &self.bdt)?;
        Ok(Driven {
            drive: Drive {
                delta: self.per_channel(&step)?,
                a: self.per_channel(&self.a_log.exp()?.neg()?)?.unsqueeze(1)?,
                b: part(width, n)?,
                c: cx.select(&part(width + n, n)?)?,
                x: x.clone(),
            },
            x: cx.select(&x)?,
            z,
        })
    }

    fn drive(&self, u: &Tensor, cx: &Cx) -> Result<Driven> {
        let [z, xbc, steps] = self.maps()?;
        let mut maps = project(u, &[(&xbc, None), (&steps, None)], &[(&z, None)], cx)?;
        let convolved = self.conv.forward(&maps.all[0])?;
        self.driven(&convolved, &maps.all[1], maps.queried.remove(0), cx)
    }

    /// o + D x, and what it is multiplied with in front of the output map: the gate, and the norm behind it.
    fn gated(&self, o: &Tensor, x: &Tensor, z: &Tensor) -> Result<[Tensor; 2]> {
        let o = ops::add_scaled(o, x, &self.per_channel(&self.dskip)?)?;
        let gate = ops::silu(z)?;
        let scale = rms_factor(&(&o * &gate)?, EPS)?;
        let norm = self.norm.to_dtype(gate.dtype())?;
        let factor = gate.broadcast_mul(&scale)?.broadcast_mul(&norm)?;
        Ok([o, factor])
    }

    fn finish(&self, o: &Tensor, x: &Tensor, z: &Tensor) -> Result<Tensor> {
        let [o, factor] = self.gated(o, x, z)?;
        linear(&(o * factor)?, &self.wout, None)
    }
}

impl Mixer for Mamba2 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let Driven { drive, x, z } = self.drive(u, cx)?;
        self.finish(&drive.scan(cx)?, &x, &z)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.width * self.d_state + self.conv.state_size()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let cx = Cx::eval();
        let Driven { drive, x, z } = self.drive(&u.unsqueeze(0)?, &cx)?;
        let [_, factor] = self.gated(&drive.scan(&cx)?, &x, &z)?;
        let factor = factor.squeeze(0)?;
        let skip = factor.broadcast_mul(&self.per_channel(&self.dskip)?)?;
        let mut system = drive.system(None, skip, Some(&self.wout))?;
        system.read = system.read.broadcast_mul(&factor.unsqueeze(2)?)?;
        Ok(Some(Inner {
            system,
            input: x.squeeze(0)?,
            around: "driven by x = silu(conv4(W_x u)), a shift register of three steps and a nonlinearity in front of it; C_i and \
                     D_i hold the gate silu(W_z u), the scale of the norm, which is not linear in the state, and the output \
                     projection",
        }))
    }
}

impl Recurrent for Mamba2 {
    /// The state `(batch, E, n)` and the window of the convolution.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = zero_state_of(&self.win, [batch, self.width, self.d_state])?;
        state.0.push(self.conv.window(batch)?);
        Ok(state)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [z, xbc, steps] = self.maps()?.map(|w| linear(x_t, &w, None));
        let (convolved, window) = self.conv.step(&xbc?, &state.0[1])?;
        let one = |x: Tensor| x.unsqueeze(1);
        let (convolved, steps) = (one(convolved)?, one(steps?)?);
        let Driven { drive, x, z } = self.driven(&convolved, &steps, one(z?)?, &Cx::eval())?;
        let o = drive.step(state)?;
        state.0.push(window);
        self.finish(&o, &x, &z)?.squeeze(1)
    }
}
