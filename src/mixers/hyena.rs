//! Hyena (Poli et al. 2023) of order N: N - 1 long convolutions in turn with N elementwise gates, whose kernels are
//! implicit functions of the position, an MLP with sine activations times an exponential window. At order 2, the
//! default,
//!
//! y = W (x_0 ⊙ (h * (x_1 ⊙ v) + `fbias` ⊙ x_1 ⊙ v)),  x_0, x_1, v = conv(W_in u),  h_t = MLP(emb(t)) e^(-α t)
//!
//! and at order N, with v_0 = v and z_k = x_{N-1-k} ⊙ v_k,
//!
//! y = W (x_0 ⊙ v_{N-1}),  v_{k+1} = h^k * z_k + `fbias`^k ⊙ z_k
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | h | kernels, with h^k of channel c in row c (N - 1) + k, as in the authors' code | `((N - 1) d, len)` |
//! | emb | positional features: time, cosines, sines | `(len, emb)` |
//! | α | decays of the windows (`decay`) | `((N - 1) d)` |

use super::short_conv::ShortConv;
use super::{in_range, kernel_length, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork};
use crate::nn::{linear, Cx, Init, Params, Tables};
use crate::ops::rng::Rng;
use crate::ops::{self, Expression};
use candle_core::{Result, Tensor};
use std::f64::consts::TAU;

pub(super) const ENTRY: Entry = Entry {
    name: "hyena",
    equation: "y = W (x_0 ⊙ (h * (x_1 ⊙ v))), x_0, x_1, v = conv(W u), h_t = f(t) e^(-α t)",
    cite: "Poli et al. 2023",
    dsf: "no (its kernel has no finite rank)",
    options: &[
        MixerOption {
            name: "order",
            help: "order N of the hierarchy: N gates around N - 1 long convolutions; `2`, or a number up to 8",
            default: |_| "2",
            accepts: |v| in_range(v, 2..=8),
            implied: true,
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "emb",
            help: "features of the positional embedding, an odd number: `33`, up to 4097",
            default: |_| "33",
            accepts: |v| v.parse::<usize>().is_ok_and(|n| n % 2 == 1 && (3..=4097).contains(&n)),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "hidden",
            help: "width of the MLP that generates the kernel: `64`, up to 4096",
            default: |_| "64",
            accepts: |v| in_range(v, 1..=4096),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "freq",
            help: "frequency of the MLP's sine activations: `10`, up to 1000",
            default: |_| "10",
            accepts: |v| v.parse().is_ok_and(|f: f64| f > 0.0 && f <= 1000.0),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "window_decay",
            help: "decay of the window over the kernel: `trained`, or `fixed` as in the authors' configs",
            default: |_| "trained",
            accepts: |v| v == "trained" || v == "fixed",
            implied: true,
            ..MixerOption::DEFAULT
        },
        kernel_length::option(
            "length of the kernel, by which positions are scaled: `auto` is the task's --seq-len, up to 16777216",
            false,
        ),
    ],
    growth: Growth::No("its kernel has no state: there is no n to grow"),
    stem: "hyena",
    own_init: &["conv_b", "conv_w", "decay", "f1", "f2", "f3", "fbias", "g1", "g2"],
    uncounted: &["conv_w", "f1", "f2", "f3"],
    // The kernel is a sine of ten times a sine of ten times its weights.
    difference_step: 1e-7,
    work: |spec| {
        let (d, order) = (spec.d_model, order(spec));
        Some(MixerWork::new(Core::LongConvolution, [(order - 1) * d, 1], (order + 2) * d * d))
    },
    build: |spec, params| Ok(Box::new(Hyena::new(spec, params)?)),
    ..Entry::of(Family::Convolution)
};

/// Taps of the short convolution.
const SHORT_TAPS: usize = 3;

/// Order N.
fn order(spec: &MixerSpec) -> usize {
    spec.parsed("order").unwrap_or(2)
}

struct Hyena {
    order: usize,
    /// Projections to x_0, .., x_{N-1} and v, stacked, `((N + 1) d, d)`.
    input: [Tensor; 2],
    conv: ShortConv,
    /// Layers of the MLP; the last one has no bias.
    first: [Tensor; 2],
    second: [Tensor; 2],
    last: Tensor,
    /// α, `((N - 1) d)`.
    decay: Tensor,
    /// Feedthrough of the long convolutions, `((N - 1) d)`.
    fbias: Tensor,
    out: [Tensor; 2],
    freq: f64,
    /// Length by which positions are scaled; `None` takes the length of the input.
    l_max: Option<usize>,
    /// Positional features `(len, emb)` and times `(len, 1)`.
    positions: Tables<[Tensor; 2]>,
}

impl Hyena {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, order) = (spec.d_model, order(spec));
        // Channels of the gates and of v, and of all long convolutions.
        let (stacked, long) = ((order + 1) * d, (order - 1) * d);
        let number = |name: &str| spec.parsed::<f64>(name);
        let emb = number("emb").map_or(33, |n| n as usize);
        let hidden = number("hidden").map_or(64, |n| n as usize);
        // Default initialisation of PyTorch, as in the authors' code.
        let uniform = |name, shape: (usize, usize)| {
            let edge = (shape.1 as f64).powf(-0.5);
            params.get(name, shape, Init::Uniform(-edge, edge))
        };
        let bias = |name, fan_in: usize| {
            let edge = (fan_in as f64).powf(-0.5);
            params.get(name, hidden, Init::Uniform(-edge, edge))
        };
        // The window falls to 1/100 after 0.3 to 1.5 times the length.
        let (slow, fast) = (100f64.ln() / 1.5, 100f64.ln() / 0.3);
        let decay = |i: usize, _: &mut Rng| slow + (fast - slow) * i as f64 / (long - 1).max(1) as f64;
        Ok(Self {
            order,
            input: [params.weight("win", (stacked, d), spec.input_std)?, params.bias("bin", stacked, d)?],
            conv: ShortConv::with_taps(SHORT_TAPS, stacked, params)?,
            first: [uniform("f1", (hidden, emb))?, bias("g1", emb)?],
            second: [uniform("f2", (hidden, hidden))?, bias("g2", hidden)?],
            last: uniform("f3", (long, hidden))?,
            decay: match spec.option("window_decay") {
                Some("fixed") => {
                    params.constant("decay", long, |mut rng| (0..long).map(|i| decay(i, &mut rng)).collect())?
                }
                _ => params.get("decay", long, Init::Each(&decay))?,
            },
            fbias: params.get("fbias", long, Init::Normal(1.0))?,
            out: [params.weight("wout", (d, d), spec.output_std)?, params.bias("bout", d, d)?],
            freq: number("freq").unwrap_or(10.0),
            l_max: kernel_length::of(spec),
            positions: Tables::default(),
        })
    }

    /// First `len` taps of the kernels h, `((N - 1) d, len)`.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        let [features, times] = self.positions.of(len, || self.positions_of(len))?;
        let layer = |x: &Tensor, [w, b]: &[Tensor; 2]| {
            let x = linear(x, w, Some(b))?;
            (Expression::of(&x) * self.freq).sin().tensor()
        };
        let hidden = layer(&layer(&features, &self.first)?, &self.second)?; // (len, hidden)

        // e^{-decay t}, (len, (N - 1) d).
        let window = (Expression::of(&times) * -Expression::of(&self.decay.unsqueeze(0)?)).exp();
        let taps = linear(&hidden, &self.last, None)?;
        (Expression::of(&taps) * window).tensor()?.t()?.contiguous()
    }

    fn positions_of(&self, len: usize) -> Result<[Tensor; 2]> {
        let l_max = self.l_max.unwrap_or(len);
        let tensor = |numbers: Vec<f64>, shape: (usize, usize)| {
            Tensor::from_vec(numbers, shape, self.decay.device())?.to_dtype(self.decay.dtype())
        };
        let time = |t: usize| t as f64 / (l_max - 1).max(1) as f64;
        let emb = self.first[0].dim(1)?;
        let features = (0..len).flat_map(|t| positional_features(t, l_max, emb, time(t))).collect();
        Ok([tensor(features, (len, emb))?, tensor((0..len).map(time).collect(), (len, 1))?])
    }
}

/// Positional features [time, cos(2π f t/l_max), -sin(2π f t/l_max)], where f is evenly spaced from 1e-4 to bands - 1.
fn positional_features(t: usize, l_max: usize, emb: usize, time: f64) -> Vec<f64> {
    let bands = (emb - 1) / 2;
    let (low, high) = (1e-4, (bands - 1) as f64);
    let frequency = |band: usize| low + (high - low) * band as f64 / (bands - 1).max(1) as f64;
    let angle = move |band: usize| TAU * frequency(band) * t as f64 / l_max as f64;
    let cosines = (0..bands).map(|band| angle(band).cos());
    let sines = (0..bands).map(|band| -angle(band).sin());
    std::iter::once(time).chain(cosines).chain(sines).collect()
}

impl Mixer for Hyena {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let z = self.conv.forward(&linear(u, &self.input[0], Some(&self.input[1]))?)?; // (batch, seq_len, (N + 1) d)
        let d = u.dim(2)?;
        let parts = ops::split(&z, 2, &vec![d; self.order + 1])?; // (batch, seq_len, d)
        let product = |x: &Tensor, y: &Tensor| (Expression::of(x) * Expression::of(y)).tensor();
        let (kernels, convolutions) = (self.kernel(u.dim(1)?)?, self.order - 1);
        let mut v = parts[self.order].clone();
        for k in 0..convolutions {
            let last = k + 1 == convolutions;
            let x = product(&parts[convolutions - k], &v)?;
            let of_this = |t: &Tensor| match convolutions {
                1 => Ok(t.clone()),
                _ => {
                    let mut shape = t.dims().to_vec();
                    shape.splice(..1, [d, convolutions]);
                    t.reshape(shape)?.narrow(1, k, 1)?.squeeze(1)?.contiguous()
                }
            };
            // Only the last convolution is not read by another one.
            let chosen = |t: &Tensor| if last { cx.select(t) } else { Ok(t.clone()) };
            let o = ops::long_conv(&x, &of_this(&kernels)?)?;
            v = ops::add_scaled(&chosen(&o)?, &chosen(&x)?, &of_this(&self.fbias)?)?;
        }
        let gated = product(&cx.select(&parts[0])?, &v)?;
        linear(&gated, &self.out[0], Some(&self.out[1]))
    }

    /// Elements kept when decoding: all inputs of the convolutions, since their kernels have no finite-dimensional
    /// state.
    fn state_size(&self, seq_len: usize) -> usize {
        seq_len * self.decay.elem_count() + self.conv.state_size()
    }

    fn without_system(&self) -> &'static str {
        "its kernel is not a finite sum of exponentials; only a shift register of all L tokens, N = L d, has it"
    }
}
