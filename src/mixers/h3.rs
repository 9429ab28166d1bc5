//! H3 (Fu et al. 2023) with heads of width one: a state space model that remembers, between two products. Keys pass a short shift
//! register, so that a token can be stored together with the one before it.

use super::diagonal::{Diagonal, Frequencies, Rule};
use super::{
    Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State,
};
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
        help: "tokens that the shift of keys reaches back, with the present one: `4`, up to 64",
        default: |_| "4",
        accepts: |v| {
            v.parse::<usize>()
                .is_ok_and(|taps| (1..=64).contains(&taps))
        },
        ..MixerOption::DEFAULT
    }],
    growth: Growth::Exact {
        zeroed: &["c_re", "c_im"],
        scaled: &[],
    },
    stem: "h3",
    own_init: &[
        "a_im", "a_re_log", "c_im", "c_re", "dskip", "log_dt", "shift_c", "shift_d",
    ],
    uncounted: &["a_im", "a_re_log", "c_im", "c_re", "shift_c"],
    work: |spec| {
        let (d, states) = (spec.d_model, 2 * spec.d_state);
        Some(MixerWork::new(
            Core::LongConvolution,
            [d, states],
            4 * d * d,
        ))
    },
    build: |spec, params| Ok(Box::new(H3::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct H3 {
    q: [Tensor; 2],
    k: [Tensor; 2],
    v: [Tensor; 2],
    out: [Tensor; 2],
    /// Of the shift, the present token first, `(d, taps)`.
    shift_c: Tensor,
    /// Of a key past the shift, `(d)`.
    shift_d: Tensor,
    system: Diagonal,
    dskip: Tensor,
}

impl H3 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        let taps = spec
            .option("shift")
            .and_then(|taps| taps.parse().ok())
            .unwrap_or(4usize);
        let edge = (taps as f64).powf(-0.5);
        let map = |[weight, bias]: [&str; 2], std| -> Result<[Tensor; 2]> {
            Ok([
                params.weight(weight, (d, d), std)?,
                params.bias(bias, d, d)?,
            ])
        };
        Ok(Self {
            q: map(["wq", "bq"], spec.input_std)?,
            k: map(["wk", "bk"], spec.input_std)?,
            v: map(["wv", "bv"], spec.input_std)?,
            out: map(["wout", "bout"], spec.output_std)?,
            shift_c: params.get("shift_c", (d, taps), Init::Uniform(-edge, edge))?,
            shift_d: params.get("shift_d", d, Init::Normal(1.0))?,
            system: Diagonal::new(spec, Frequencies::Linear, Rule::Hold, params)?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
        })
    }

    /// The weights of the shift, the present token last, as convolutions have them.
    fn taps(&self) -> Result<Tensor> {
        let count = self.shift_c.dim(1)? as u32;
        let turned: Vec<u32> = (0..count).rev().collect();
        self.shift_c
            .index_select(&Tensor::new(turned, self.shift_c.device())?, 1)
    }

    /// What drives the system along u `(batch, seq_len, d)`, and the queries at the positions of `cx`.
    fn drive(&self, u: &Tensor, cx: &Cx) -> Result<(Tensor, Tensor)> {
        let all = [&self.k, &self.v].map(|[w, b]| (w, Some(b)));
        let mut maps = project(u, &all, &[(&self.q[0], Some(&self.q[1]))], cx)?;
        let (k, v) = (&maps.all[0], &maps.all[1]);
        let shifted = ops::causal_conv1d(k, &self.taps()?, None)?;
        let x = (ops::add_scaled(&shifted, k, &self.shift_d)? * v)?;
        Ok((x, maps.queried.swap_remove(0)))
    }

    /// y for what the state gives, x and q at the same positions.
    fn finish(&self, o: &Tensor, x: &Tensor, q: &Tensor) -> Result<Tensor> {
        let o = ops::add_scaled(o, x, &self.dskip)?;
        linear(&(q * o)?, &self.out[0], Some(&self.out[1]))
    }
}

impl Mixer for H3 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, q) = self.drive(u, cx)?;
        let o = ops::long_conv(&x, &self.system.kernel(u.dim(1)?)?)?;
        self.finish(&cx.select(&o)?, &cx.select(&x)?, &q)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        let (d, taps) = (self.dskip.elem_count(), self.shift_c.dims()[1]);
        self.system.state_size() + (taps - 1) * d
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let u = u.unsqueeze(0)?;
        let (x, q) = self.drive(&u, &Cx::eval())?;
        let (x, q) = (x.squeeze(0)?, q.squeeze(0)?.contiguous()?);
        let (seq_len, d) = x.dims2()?;
        let eye = Tensor::eye(d, x.dtype(), x.device())?;
        let system = self.system.system(seq_len)?;
        // The last input is the constant that the bias is multiplied with.
        let constant = Tensor::zeros((d, 1), x.dtype(), x.device())?;
        let value = Tensor::cat(&[&eye, &constant], 1)?;
        let queries = Tensor::cat(&[&q, &q], 1)?;
        let passed = q.broadcast_mul(&self.dskip)?;
        let skip = Tensor::cat(&[&passed, &passed.zeros_like()?], 1)?;
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
            around: "driven by x = shift(k) ⊙ v, a product of two maps of u, one of them behind a shift register; C_i and D_i \
                     hold the queries and the output projection",
        }))
    }
}

impl Recurrent for H3 {
    /// The state of the system and the keys before, `(batch, taps - 1, d)`.
    fn init(&self, batch: usize) -> Result<State> {
        let mut state = self.system.zero_state(batch)?;
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
        let present = k.unsqueeze(1)?;
        let keys = match state.0.get(1) {
            Some(window) => Tensor::cat(&[window, &present], 1)?,
            None => present,
        };
        let taps = self.taps()?.t()?.unsqueeze(0)?;
        let shifted = keys.broadcast_mul(&taps)?.sum(1)?;
        let x = (ops::add_scaled(&shifted, &k, &self.shift_d)? * v?)?;
        let (o, h) = self.system.step(&x, &state.0[0])?;
        let before = keys.dim(1)? - 1;
        *state = State(vec![h]);
        if before > 0 {
            state.0.push(keys.narrow(1, 1, before)?);
        }
        self.finish(&o, &x, &q?)
    }
}
