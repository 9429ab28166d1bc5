//! H3 (Fu et al. 2023): S4D between two products. Keys pass a shift SSM of a few taps, so that a value can be stored
//! under the token before it, for each head
//!
//! y = W_O (SSM_diag(SSM_shift(k) vᵀ)ᵀ q),  q, k, v = W u + b
//!
//! With heads of width c = 1 the products are elementwise. Zoology's Figure 2 has c = 2, as many taps as tokens and as
//! many states: n = L/2 conjugate pairs.
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | SSM_shift | FIR filter `shift_c` with feedthrough `shift_d` | `(d, taps)`, `(d)` |
//! | SSM_diag | [S4D](super::diagonal) of a head for its c² products, with feedthrough `dskip` | n pairs per product |

use super::diagonal::{DiagonalSsm, Discretisation, Start};
use super::{in_range, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State};
use crate::error::{self, refuse};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, project, Cx, Init, Params};
use crate::ops::{self, Expression};
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "h3",
    equation: "y = W (q ⊙ S4D(shift(k) ⊙ v)), q, k, v = W u",
    cite: "Fu et al. 2023",
    dsf: "N = 2n d c, after a product",
    expands: true,
    options: &[
        MixerOption {
            name: "shift",
            help: "taps of the shift SSM over keys, the current token included: `4`, up to 64, or `states`, one per state (2n)",
            default: |_| "4",
            accepts: |v| v == "states" || in_range(v, 1..=64),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "head_dim",
            help: "width of a head: `1`, up to 64; a head of width c stores c x c products of keys and values",
            default: |_| "1",
            accepts: |v| in_range(v, 1..=64),
            implied: true,
            ..MixerOption::DEFAULT
        },
    ],
    check,
    growth: Growth::Exact { zeroed: &["c_re", "c_im", "shift_c"], scaled: &[] },
    stem: "h3",
    own_init: &["a_im", "a_re_log", "c_im", "c_re", "dskip", "log_dt", "shift_c", "shift_d"],
    uncounted: &["a_im", "a_re_log", "c_im", "c_re", "shift_c"],
    work: |spec| {
        let (d, states) = (spec.d_model, 2 * spec.d_state);
        Some(MixerWork::new(Core::LongConvolution, [d * head_dim(spec), states], 4 * d * d))
    },
    build: |spec, params| Ok(Box::new(H3::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

/// Width of a head, c.
fn head_dim(spec: &MixerSpec) -> usize {
    spec.parsed("head_dim").unwrap_or(1)
}

fn check(spec: &MixerSpec) -> error::Result<()> {
    let (d, width) = (spec.d_model, head_dim(spec));
    if d.is_multiple_of(width) {
        return Ok(());
    }
    refuse!(flag "--option" = format!("head_dim={width}"), "does not divide --d {d}: each head of mixer `h3` takes as many channels")
}

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
    /// Feedthrough of the diagonal SSM, one per head, `(d/c)`.
    dskip: Tensor,
    /// Width of a head, c.
    head_dim: usize,
}

impl H3 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let d = spec.d_model;
        let taps = match spec.option("shift") {
            Some("states") => 2 * spec.d_state,
            _ => spec.parsed("shift").unwrap_or(4),
        };
        let head_dim = head_dim(spec);
        let heads = MixerSpec { d_model: d / head_dim, ..*spec };
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
            ssm: DiagonalSsm::new(&heads, Start::Linear, Discretisation::Zoh, params)?.with_copies(head_dim * head_dim),
            dskip: params.get("dskip", heads.d_model, Init::Normal(1.0))?,
            head_dim,
        })
    }

    /// Taps of the shift SSM in the order of a convolution, the current token last.
    fn shift_kernel(&self) -> Result<Tensor> {
        let count = self.shift_c.dim(1)? as u32;
        let reversed: Vec<u32> = (0..count).rev().collect();
        self.shift_c.index_select(&Tensor::new(reversed, self.shift_c.device())?, 1)
    }

    /// x `(.., d)` by heads, channel i of a head for row i of its products: `(.., heads, c, 1)`.
    fn rows(&self, x: &Tensor) -> Result<Tensor> {
        by_heads(x, [self.head_dim, 1])
    }

    /// The same, channel j of a head for column j of its products: `(.., heads, 1, c)`.
    fn columns(&self, x: &Tensor) -> Result<Tensor> {
        by_heads(x, [1, self.head_dim])
    }

    /// Rows or columns of products, repeated for each product: `(.., d c)`.
    fn repeated(&self, x: &Tensor) -> Result<Tensor> {
        let mut shape = x.dims().to_vec();
        let last = shape.len() - 3;
        shape[last + 1..].fill(self.head_dim);
        x.broadcast_as(shape)?.contiguous()?.flatten_from(last)
    }

    /// Products k vᵀ of each head, `(.., d c)`.
    fn outer(&self, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let products = (Expression::of(&self.rows(k)?) * Expression::of(&self.columns(v)?)).tensor()?;
        let leading = &k.dims()[..k.rank() - 1];
        ops::reshape(&products, [leading, &[k.dim(D::Minus1)? * self.head_dim]].concat())
    }

    /// Feedthrough of each product, `(d c)`.
    fn skip(&self) -> Result<Tensor> {
        self.ssm.per_channel(&self.dskip)
    }

    /// Input x = SSM_shift(k) vᵀ of the diagonal SSM, `(batch, seq_len, d c)`, and q at the queried positions,
    /// `(batch, rows, d)`.
    fn project(&self, u: &Tensor, cx: &Cx) -> Result<(Tensor, Tensor)> {
        let all = [&self.k, &self.v].map(|[w, b]| (w, Some(b)));
        let mut maps = project(u, &all, &[(&self.q[0], Some(&self.q[1]))], cx)?;
        let (k, v) = (&maps.all[0], &maps.all[1]);
        let shifted = ops::causal_conv1d(k, &self.shift_kernel()?, None)?;
        let shifted = ops::add_scaled(&shifted, k, &self.shift_d)?;
        let x = self.outer(&shifted, v)?;
        Ok((x, maps.queried.swap_remove(0)))
    }

    /// y for the output o of the diagonal SSM and x, `(.., d c)` each, and q `(.., d)` at the same positions.
    fn readout(&self, o: &Tensor, x: &Tensor, q: &Tensor) -> Result<Tensor> {
        let o = ops::add_scaled(o, x, &self.skip()?)?;
        let o = by_heads(&o, [self.head_dim; 2])?;
        let read = (Expression::of(&self.rows(q)?) * Expression::of(&o)).tensor()?;
        let read = match self.head_dim {
            1 => read,
            _ => read.sum(read.rank() - 2)?,
        };
        let read = ops::reshape(&read, q.shape())?;
        linear(&read, &self.out[0], Some(&self.out[1]))
    }
}

/// x `(.., heads · rows · columns)` as `(.., heads, rows, columns)`.
fn by_heads(x: &Tensor, [rows, columns]: [usize; 2]) -> Result<Tensor> {
    let (leading, width) = (&x.dims()[..x.rank() - 1], x.dim(D::Minus1)?);
    ops::reshape(x, [leading, &[width / (rows * columns), rows, columns]].concat())
}

impl Mixer for H3 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (x, q) = self.project(u, cx)?;
        let o = ops::long_conv(&x, &self.ssm.kernel(u.dim(1)?)?)?;
        self.readout(&cx.select(&o)?, &cx.select(&x)?, &q)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        let (d, taps) = (self.shift_d.elem_count(), self.shift_c.dims()[1]);
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
        let q = self.repeated(&self.rows(&q)?)?;
        let queries = Tensor::cat(&[&q, &q], 1)?;
        let skip = q.broadcast_mul(&self.skip()?)?;
        let skip = Tensor::cat(&[&skip, &skip.zeros_like()?], 1)?;
        let [w, bias] = &self.out;
        let w = self.repeated(&self.columns(w)?)?;
        Ok(Some(Inner {
            system: Ltv {
                read: system.read.broadcast_mul(&queries.unsqueeze(2)?)?,
                value: Some(Tensor::cat(&[&value, &value], 0)?),
                skip: Some(skip),
                output: Some(Tensor::cat(&[&w, &w], 1)?),
                offset: Some(bias.clone()),
                ..system
            },
            input: x,
            around:
                "driven by x = shift(k) vᵀ, a product of two projections of u, one of them after a shift register; C_i \
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
        let shifted = ops::add_scaled(&shifted, &k, &self.shift_d)?;
        let x = self.outer(&shifted, &v?)?;
        let (o, h) = self.ssm.step(&x, &state.0[0])?;
        let before = keys.dim(1)? - 1;
        *state = State::new(vec![h]);
        if before > 0 {
            state.0.push(keys.narrow(1, 1, before)?);
        }
        self.readout(&o, &x, &q?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixers::find;
    use crate::ops::rng::Rng;
    use crate::recipes;
    use candle_core::{DType, Device};
    use std::collections::HashMap;

    type Rows = Vec<Vec<f64>>;

    /// S4D of a head with the parameters in row `head`: its kernel.
    fn kernel(p: &HashMap<&str, Rows>, head: usize, len: usize) -> Vec<f64> {
        let step = p["log_dt"][0][head].exp();
        let states = p["a_im"][head].len();
        let tap = |l: usize| {
            let of_state = |k: usize| {
                let [a_re, a_im] = [-p["a_re_log"][head][k].exp(), p["a_im"][head][k]];
                let polar = |size: f64, angle: f64| [size * angle.cos(), size * angle.sin()];
                let times = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a * c - b * d, a * d + b * c];
                let [re, im] = polar((step * a_re).exp(), step * a_im);
                let hold = times([re - 1.0, im], [a_re, -a_im]).map(|x| x / (a_re * a_re + a_im * a_im));
                let power = polar((step * a_re * l as f64).exp(), step * a_im * l as f64);
                2.0 * times(times([p["c_re"][head][k], p["c_im"][head][k]], hold), power)[0]
            };
            (0..states).map(of_state).sum()
        };
        (0..len).map(tap).collect()
    }

    /// Heads of two channels by sums over tokens, products and taps.
    #[test]
    fn a_head_of_two_channels_reads_sums_of_its_four_products() {
        const LEN: usize = 9;
        let settings = [("preset", "smoke"), ("mixer", "h3"), ("protocol", "matched"), ("d", "6"), ("n", "3")];
        let model = recipes::run("mqar", &settings).unwrap().model;
        let params = Params::seeded(1, DType::F64, &Device::Cpu);
        let mixer = find("h3").unwrap().build(&model, &params).unwrap();
        let mut rng = Rng::new(1, "test", 0);
        let u: Vec<f64> = (0..LEN * 6).map(|_| rng.normals().0).collect();
        let u = Tensor::from_vec(u, (1, LEN, 6), &Device::Cpu).unwrap();
        let y: Rows = mixer.forward(&u, &Cx::eval()).unwrap().squeeze(0).unwrap().to_vec2().unwrap();
        let u: Rows = u.squeeze(0).unwrap().to_vec2().unwrap();
        let vars = params.vars();
        let rows = |x: &Tensor| -> Rows {
            let x = if x.rank() == 1 { x.unsqueeze(0).unwrap() } else { x.clone() };
            x.to_vec2().unwrap()
        };
        let p: HashMap<&str, Rows> = vars.iter().map(|(name, var)| (name.as_str(), rows(var))).collect();
        assert_eq!((p["shift_c"][0].len(), p["log_dt"][0].len()), (6, 3), "2n taps, and a system for each head");
        let map = |w: &str, x: &[f64]| -> Vec<f64> {
            p[w].iter().map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
        };
        let [q, k, v] = ["wq", "wk", "wv"].map(|w| u.iter().map(|u| map(w, u)).collect::<Rows>());
        let shifted = |t: usize, c: usize| {
            let taps = p["shift_c"][c].iter().enumerate().take(t + 1);
            taps.map(|(lag, tap)| tap * k[t - lag][c]).sum::<f64>() + p["shift_d"][0][c] * k[t][c]
        };
        for t in 0..LEN {
            let mut read = [0.0; 6];
            for head in 0..3 {
                let kernel = kernel(&p, head, LEN);
                for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j)| (2 * head + i, 2 * head + j)) {
                    let product = |s: usize| shifted(s, i) * v[s][j];
                    let stored: f64 = (0..=t).map(|s| kernel[t - s] * product(s)).sum();
                    read[j] += q[t][i] * (stored + p["dskip"][0][head] * product(t));
                }
            }
            let apart = map("wout", &read).into_iter().zip(&y[t]).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f64::max) < 1e-12, "token {t}");
        }
    }
}
