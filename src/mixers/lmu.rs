//! Legendre memory unit (Voelker et al. 2019) in its parallel form (Chilkuri & Eliasmith 2021): a fixed linear system
//! holds the last θ tokens as coefficients of Legendre polynomials, without feedback from the output,
//!
//! m_i = Ā m_{i-1} + B̄ (W_u u_i + b_u),  y_i = tanh(W_m m_i + W_x u_i + b)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | m | memory, n coefficients of each input signal | `(batch, inputs, n)` |
//! | Ā, B̄ | zero-order hold of the delay system over one token | `(n, n)`, `(n, 1)` |
//! | θ | length of the memory in tokens | option |

use super::s4::impulse_response;
use super::{in_range, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State};
use crate::nn::{linear, Cx, Params};
use crate::ops;
use candle_core::{DType, Device, Result, Tensor};
use std::cell::{OnceCell, RefCell};

pub(super) const ENTRY: Entry = Entry {
    name: "lmu",
    equation: "m_i = Ā m_{i-1} + B̄ (W_u u_i + b_u), y_i = tanh(W_m m_i + W_x u_i + b)",
    cite: "Voelker et al. 2019, Chilkuri & Eliasmith 2021",
    variants: &["parallel"],
    dsf: "no (a tanh around its state)",
    expands: true,
    options: &[
        MixerOption {
            name: "theta",
            help: "length of the memory in tokens, θ: `64`, from 1 to 16777216",
            default: |_| "64",
            accepts: |v| v.parse().is_ok_and(|theta: f64| (1.0..=f64::from(1 << 24)).contains(&theta)),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "inputs",
            help: "input signals per token, with n coefficients each: `1` as published, up to 4096",
            default: |_| "1",
            accepts: |v| in_range(v, 1..=4096),
            ..MixerOption::DEFAULT
        },
    ],
    growth: Growth::No("Ā is dense: every coefficient depends on the order n of the series"),
    stem: "lmu",
    work: |spec| {
        let (d, inputs, n) = (spec.d_model, inputs(spec), spec.d_state);
        Some(MixerWork::new(Core::LongConvolution, [inputs, n], d * (inputs + inputs * n + d)))
    },
    build: |spec, params| Ok(Box::new(Lmu::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

fn inputs(spec: &MixerSpec) -> usize {
    spec.parsed("inputs").unwrap_or(1)
}

struct Lmu {
    /// Projection to the input signals, `(inputs, d)`.
    wu: Tensor,
    bu: Tensor,
    /// Projection of the memory, the coefficients of one signal side by side, `(d, inputs · n)`.
    wm: Tensor,
    wx: Tensor,
    bout: Tensor,
    delay: DelaySystem,
}

/// Delay system of length θ, without parameters; computed in f64 on first use.
struct DelaySystem {
    order: usize,
    theta: f64,
    discrete: OnceCell<[Tensor; 2]>,
    /// Longest kernel so far, `(n, len)`.
    kernel: RefCell<Option<Tensor>>,
}

impl DelaySystem {
    /// Ā `(n, n)` and B̄ `(n, 1)`: blocks of e^[[A, B], [0, 0]], the zero-order hold over one token, with
    /// A_ij = (2i+1)/θ (-1 for i < j, else (-1)^(i-j+1)) and B_i = (2i+1)(-1)^i/θ.
    fn discrete(&self) -> Result<&[Tensor; 2]> {
        if let Some(found) = self.discrete.get() {
            return Ok(found);
        }
        let n = self.order;
        let sign = |power: usize| if power.is_multiple_of(2) { 1.0 } else { -1.0 };
        let entry = |at: usize| {
            let (i, j) = (at / (n + 1), at % (n + 1));
            let scale = (2 * i + 1) as f64 / self.theta;
            match () {
                () if i == n => 0.0,
                () if j == n => scale * sign(i),
                () if i < j => -scale,
                () => scale * sign(i - j + 1),
            }
        };
        let block: Vec<f64> = (0..(n + 1) * (n + 1)).map(entry).collect();
        let block = matrix_exp(&Tensor::from_vec(block, (n + 1, n + 1), &Device::Cpu)?)?;
        let top = block.narrow(0, 0, n)?;
        let part = |start, count| top.narrow(1, start, count)?.contiguous();
        let [a, b] = [part(0, n)?, part(n, 1)?];
        Ok(self.discrete.get_or_init(|| [a, b]))
    }

    /// Impulse response Ā^l B̄ for l < `len`, `(n, len)`.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        let mut longest = self.kernel.borrow_mut();
        let enough = longest.as_ref().filter(|k| k.dims()[1] >= len);
        let kernel = match enough {
            Some(kernel) => kernel.clone(),
            None => {
                let [a, b] = self.discrete()?;
                impulse_response(a.unsqueeze(0)?, b.unsqueeze(0)?, len)?.squeeze(0)?
            }
        };
        let prefix = kernel.narrow(1, 0, len)?.contiguous();
        *longest = Some(kernel);
        prefix
    }
}

/// Matrices `(n + 1, n + 1)` that [`matrix_exp`] holds at once.
const MATRICES: usize = 4;

/// e^M of a square matrix, by scaling and squaring of its Taylor series.
fn matrix_exp(matrix: &Tensor) -> Result<Tensor> {
    /// Terms of the series: for a norm of 1/2 the next one is below the precision of f64.
    const TERMS: usize = 15;
    let norm = matrix.abs()?.sum(0)?.max(0)?.to_scalar::<f64>()?;
    let halvings = (2.0 * norm).log2().ceil().max(0.0) as i32;
    let small = (matrix * 0.5f64.powi(halvings))?;
    let eye = Tensor::eye(matrix.dim(0)?, DType::F64, matrix.device())?;
    let mut sum = eye.clone();
    for term in (1..=TERMS).rev() {
        sum = (&eye + (small.matmul(&sum)? / term as f64)?)?;
    }
    for _ in 0..halvings {
        sum = sum.matmul(&sum)?;
    }
    Ok(sum)
}

impl Lmu {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, inputs, n) = (spec.d_model, inputs(spec), spec.d_state);
        let theta = spec.parsed("theta");
        params.count_constant("delay", MATRICES * (n + 1) * (n + 1));
        Ok(Self {
            wu: params.weight("wu", (inputs, d), spec.input_std)?,
            bu: params.bias("bu", inputs, d)?,
            wm: params.weight("wm", (d, inputs * n), spec.input_std)?,
            wx: params.weight("wx", (d, d), spec.input_std)?,
            bout: params.bias("bout", d, d)?,
            delay: DelaySystem {
                order: n,
                theta: theta.unwrap_or(64.0),
                discrete: OnceCell::new(),
                kernel: RefCell::default(),
            },
        })
    }

    /// y for m `(.., inputs · n)` and u `(.., d)`.
    fn readout(&self, m: &Tensor, u: &Tensor) -> Result<Tensor> {
        let wx_u = linear(u, &self.wx, Some(&self.bout))?;
        ops::tanh(&(linear(m, &self.wm, None)? + wx_u)?)
    }

    /// x in the dtype and on the device of the parameters.
    fn like_params(&self, x: &Tensor) -> Result<Tensor> {
        x.to_dtype(self.bu.dtype())?.to_device(self.bu.device())
    }
}

impl Mixer for Lmu {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = u.dims3()?;
        let (inputs, n) = (self.bu.elem_count(), self.delay.order);
        let x = linear(u, &self.wu, Some(&self.bu))?.unsqueeze(3)?; // (batch, seq_len, inputs, 1)
        let x = x.broadcast_as((batch, seq_len, inputs, n))?.contiguous()?;
        let kernel = self.like_params(&self.delay.kernel(seq_len)?)?;
        let kernel = Tensor::cat(&vec![&kernel; inputs], 0)?; // (inputs · n, seq_len)
        let m = ops::long_conv(&x.flatten_from(2)?, &kernel)?; // (batch, seq_len, inputs · n)
        self.readout(&cx.select(&m)?, &cx.select(u)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.bu.elem_count() * self.delay.order
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "the tanh of its output is not linear in the state, and its Λ_i is a dense matrix"
    }
}

impl Recurrent for Lmu {
    /// m `(batch, inputs, n)`.
    fn init(&self, batch: usize) -> Result<State> {
        let shape = (batch, self.bu.elem_count(), self.delay.order);
        let zeros = Tensor::zeros(shape, self.bu.dtype(), self.bu.device())?;
        Ok(State(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [a, b] = self.delay.discrete()?;
        let a = self.like_params(&a.t()?.contiguous()?)?;
        let b = self.like_params(&b.t()?)?;
        let x = linear(x_t, &self.wu, Some(&self.bu))?.unsqueeze(2)?;
        let m = (state.0[0].broadcast_matmul(&a)? + x.broadcast_mul(&b.unsqueeze(0)?)?)?;
        let y = self.readout(&m.flatten_from(1)?, x_t)?;
        *state = State(vec![m]);
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose of the memory: its coefficients, evaluated with shifted Legendre polynomials at the end of the window,
    /// are the input θ tokens ago (Voelker et al. 2019, equation 5).
    #[test]
    fn the_memory_holds_a_slow_input_for_theta_tokens() {
        const LEN: usize = 600;
        let delay = DelaySystem { order: 12, theta: 100.0, discrete: OnceCell::new(), kernel: RefCell::default() };
        let wave = |t: f64| (0.05 * t).sin();
        let kernel = delay.kernel(LEN).unwrap().to_vec2::<f64>().unwrap();
        for (fraction, read) in [(0.0, [1.0, -1.0]), (1.0, [1.0, 1.0])] {
            // P_i(2 · fraction - 1) is (-1)^i or 1.
            for now in [300, 450, 599] {
                let coefficient = |i: usize| -> f64 { (0..=now).map(|j| kernel[i][now - j] * wave(j as f64)).sum() };
                let found: f64 = (0..12).map(|i| read[i % 2] * coefficient(i)).sum();
                // The zero-order hold delays the input by half a token on average.
                let wanted = wave(now as f64 + 0.5 - 100.0 * fraction);
                assert!((found - wanted).abs() < 0.03, "{fraction} {now}: {found}, {wanted}");
            }
        }
    }

    #[test]
    fn the_exponential_is_that_of_a_rotation_and_a_shift() {
        let of = |rows: &[[f64; 2]; 2]| {
            let x = matrix_exp(&Tensor::new(rows, &Device::Cpu).unwrap()).unwrap();
            x.to_vec2::<f64>().unwrap()
        };
        let turned = of(&[[0.0, -20.0], [20.0, 0.0]]);
        let (sin, cos) = 20f64.sin_cos();
        for (found, wanted) in turned.concat().iter().zip([cos, -sin, sin, cos]) {
            assert!((found - wanted).abs() < 1e-13);
        }
        assert_eq!(of(&[[0.0, 3.0], [0.0, 0.0]]), [[1.0, 3.0], [0.0, 1.0]]);
    }
}
