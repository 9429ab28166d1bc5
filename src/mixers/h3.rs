//! H3 (Fu et al. 2023) with heads of width one: S4D between two elementwise products. Keys pass a shift SSM of a few taps, so
//! that a value can be stored under the token before it,
//!
//! y = W_O (q ⊙ SSM_diag(SSM_shift(k) ⊙ v)),  q, k, v = W u + b
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | SSM_shift | FIR filter `shift_c` with feedthrough `shift_d` | `(d, taps)`, `(d)` |
//! | SSM_diag | S4D of [`diagonal`](super::diagonal) with feedthrough `dskip` | m states per channel |

use super::diagonal::{DiagonalSsm, Discretisation, Frequencies};
use super::{in_range, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "h3",
    equation: "y = W (q ⊙ S4D(shift(k) ⊙ v)), q, k, v = W u",
    cite: "Fu et al. 2023",
    dsf: "N = 2n d, behind a product",
    expands: true,
    options: &[MixerOption {
        name: "shift",
        help: "taps of the shift SSM over keys, the current token included: `4`, up to 64",
        default: |_| "4",
        accepts: |v| in_range(v, 1..=64),
        ..MixerOption::DEFAULT
    }],
    growth: Growth::Exact { zeroed: &["c_re", "c_im"], scaled: &[] },
    stem: "h3",
    own_init: &["a_im", "a_re_log", "c_im", "c_re", "dskip", "log_dt", "shift_c", "shift_d"],
    uncounted: &["a_im", "a_re_log", "c_im", "c_re", "shift_c"],
    work: |spec| {
        let (d, states) = (spec.d_model, 2 * spec.d_state);
        Some(MixerWork::new(Core::LongConvolution, [d, states], 4 * d * d))
    },
    build: |spec, params| Ok(Box::new(H3::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct H3 {
    q: [Tensor; 2],
    k: [Tensor; 2],
    v: [Tensor; 2],
    out: [Tensor; 2],
    /// Taps of the shift SSM, the current token first, `(d, taps)`.
    shift_c: Tensor,
    /// Feedthrough of the shift SSM, `(d)`.
    shift_d: Tensor,
    ssm: DiagonalSsm,
    /// Feedthrough of the diagonal SSM, `(d)`.
    dskip: Tensor,
}

impl H3 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        let taps = spec.parsed("shift").unwrap_or(4usize);
        let edge = (taps as f64).powf(-0.5);
        let map = |[weight, bias]: [&str; 2], std| -> Result<[Tensor; 2]> {
            Ok([params.weight(weight, (d, d), std)?, params.bias(bias, d, d)?])
        };
        Ok(Self {
            q: map(["wq", "bq"], spec.input_std)?,
            k: map(["wk", "bk"], spec.input_std)?,
            v: map(["wv", "bv"], spec.input_std)?,
            out: map(["wout", "bout"], spec.output_std)?,
            shift_c: params.get("shift_c", (d, taps), Init::Uniform(-edge, edge))?,
            shift_d: params.get("shift_d", d, Init::Normal(1.0))?,
            ssm: DiagonalSsm::new(spec, Frequencies::Linear, Discretisation::Zoh, params)?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
        })
    }

    /// Taps of the shift SSM in the order of a convolution, the current token last.
    fn shift_kernel(&self) -> Result<Tensor> {
        let count = self.shift_c.dim(1)? as u32;
        let reversed: Vec<u32> = (0..count).rev().collect();
        self.shift_c.index_select(&Tensor::new(reversed, self.shift_c.device())?, 1)
    }

    /// Input x = SSM_shift(k) ⊙ v of the diagonal SSM, `(batch, seq_len, d)`, and q at the queried positions, `(batch, rows, d)`.
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<(Tensor, Tensor)> {
        let all = [&self.k, &self.v].map(|[w, b]| (w, Some(b)));
        let mut maps = project(u, &all, &[(&self.q[0], Some(&self.q[1]))], cx)?;
        let (k, v) = (&maps.all[0], &maps.all[1]);
        let shifted = ops::causal_conv1d(k, &self.shift_kernel()?, None)?;
        let x = (ops::add_scaled(&shifted, k, &self.shift_d)? * v)?;
        Ok((x, maps.queried.swap_remove(0)))
    }

    /// y for the output o of the diagonal SSM, x and q at the same positions, `(.., d)` each.
    fn readout(&self, o: &Tensor, x: &Tensor, q: &Tensor) -> Result<Tensor> {
        let o = ops::add_scaled(o, x, &self.dskip)?;
        linear(&(q * o)?, &self.out[0], Some(&self.out[1]))
    }
}

impl Mixer for H3 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, q) = self.project(u, cx)?;
        let o = ops::long_conv(&x, &self.ssm.kernel(u.dim(1)?)?)?;
        self.readout(&cx.select(&o)?, &cx.select(&x)?, &q)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        let (d, taps) = (self.dskip.elem_count(), self.shift_c.dims()[1]);
        self.ssm.state_size() + (taps - 1) * d
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let u = u.unsqueeze(0)?;
        let (x, q) = self.project(&u, &Cx::eval())?;
        let (x, q) = (x.squeeze(0)?, q.squeeze(0)?.contiguous()?);
        let (seq_len, d) = x.dims2()?;
        let eye = Tensor::eye(d, x.dtype(), x.device())?;
        let system = self.ssm.system(seq_len)?;
        // The last input is the constant 1, which carries the bias.
        let constant = Tensor::zeros((d, 1), x.dtype(), x.device())?;
        let value = Tensor::cat(&[&eye, &constant], 1)?;
        let queries = Tensor::cat(&[&q, &q], 1)?;
        let skip = q.broadcast_mul(&self.dskip)?;
        let skip = Tensor::cat(&[&skip, &skip.zeros_like()?], 1)?;
        let [w, bias] = &self.out;
        Ok(Some(Inner {
            system: Ltv {
                read: system.read.broadcast_mul(&queries.unsqueeze(2)?)?,
                value: Some(Tensor::cat(&[&value, &value], 0)?),
                skip: Some(skip),
                output: Some(Tensor::cat(&[w, w], 1)?),
                offset: Some(bias.clone()),
                ..system
            },
            input: x,
            around: "driven by x = shift(k) ⊙ v, a product of two projections of u, one of them after a shift register; C_i \
                     and D_i hold the queries and the output projection",
        }))
    }
}

impl Recurrent for H3 {
    /// State of the diagonal SSM and, with several taps, the previous keys `(batch, taps - 1, d)`.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = self.ssm.zero_state(batch)?;
        let (d, taps) = self.shift_c.dims2()?;
        let like = &self.dskip;
        if taps > 1 {
            let window = Tensor::zeros((batch, taps - 1, d), like.dtype(), like.device())?;
            state.0.push(window);
        }
        Ok(state)
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|[w, b]| linear(x_t, w, Some(b)));
        let k = k?;
        let current = k.unsqueeze(1)?; // (batch, 1, d)
        let keys = match state.0.get(1) {
            Some(window) => Tensor::cat(&[window, &current], 1)?,
            None => current,
        }; // (batch, taps, d)
        let taps = self.shift_kernel()?.t()?.unsqueeze(0)?; // (1, taps, d)
        let shifted = keys.broadcast_mul(&taps)?.sum(1)?;
        let x = (ops::add_scaled(&shifted, &k, &self.shift_d)? * v?)?;
        let (o, h) = self.ssm.step(&x, &state.0[0])?;
        let before = keys.dim(1)? - 1;
        *state = State(vec![h]);
        if before > 0 {
            state.0.push(keys.narrow(1, 1, before)?);
        }
        self.readout(&o, &x, &q?)
    }
}
