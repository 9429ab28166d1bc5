//! The Legendre memory unit (Voelker et al. 2019) in the form that is computed along the whole sequence (Chilkuri & Eliasmith 2021):
//! the coefficients of the last θ tokens in Legendre polynomials, by a fixed linear system, and no path from the output back.
//! What is remembered is a linear map of the token, and the output passes the tanh of the original cell.

use super::s4::responses;
use super::{
    Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, Recurrent, State,
};
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
            help: "tokens that its memory spans, θ: `64`, from 1 to 16777216",
            default: |_| "64",
            accepts: |v| {
                v.parse()
                    .is_ok_and(|theta: f64| (1.0..=f64::from(1 << 24)).contains(&theta))
            },
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "inputs",
            help: "numbers a token that are remembered, with n coefficients each: `1` as published, up to 4096",
            default: |_| "1",
            accepts: |v| {
                v.parse::<usize>()
                    .is_ok_and(|inputs| (1..=4096).contains(&inputs))
            },
            ..MixerOption::DEFAULT
        },
    ],
    growth: Growth::No("each coefficient reads all others: those of a longer series are others"),
    stem: "lmu",
    work: |spec| {
        let (d, inputs, n) = (spec.d_model, inputs(spec), spec.d_state);
        Some(MixerWork::new(
            Core::LongConvolution,
            [inputs, n],
            d * (inputs + inputs * n + d),
        ))
    },
    build: |spec, params| Ok(Box::new(Lmu::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

fn inputs(spec: &MixerSpec) -> usize {
    let given = spec.option("inputs").and_then(|inputs| inputs.parse().ok());
    given.unwrap_or(1)
}

struct Lmu {
    /// To what is remembered.
    wu: Tensor,
    bu: Tensor,
    /// From the memory, the coefficients of one input side by side, `(d, inputs · n)`.
    wm: Tensor,
    wx: Tensor,
    bout: Tensor,
    delay: Delay,
}

/// The system that holds the last θ tokens, without parameters. It is computed in f64, where it is used first.
struct Delay {
    order: usize,
    theta: f64,
    discrete: OnceCell<[Tensor; 2]>,
    /// The longest kernel so far.
    kernel: RefCell<Option<Tensor>>,
}

impl Delay {
    /// Ā `(n, n)` and B̄ `(n, 1)` of the zero-order hold over one token: with A_ij = (2i+1)/θ (-1 for i < j, else (-1)^(i-j+1)) and
    /// B_i = (2i+1)(-1)^i/θ, the blocks of e^[[A, B], [0, 0]].
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
        let both: Vec<f64> = (0..(n + 1) * (n + 1)).map(entry).collect();
        let both = exponential(&Tensor::from_vec(both, (n + 1, n + 1), &Device::Cpu)?)?;
        let top = both.narrow(0, 0, n)?;
        let part = |start, count| top.narrow(1, start, count)?.contiguous();
        let [a, b] = [part(0, n)?, part(n, 1)?];
        Ok(self.discrete.get_or_init(|| [a, b]))
    }

    /// Ā^l B̄ for l below `len`, `(n, len)`.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        let mut longest = self.kernel.borrow_mut();
        let enough = longest.as_ref().filter(|k| k.dims()[1] >= len);
        let kernel = match enough {
            Some(kernel) => kernel.clone(),
            None => {
                let [a, b] = self.discrete()?;
                responses(a.unsqueeze(0)?, b.unsqueeze(0)?, len)?.squeeze(0)?
            }
        };
        let wanted = kernel.narrow(1, 0, len)?.contiguous();
        *longest = Some(kernel);
        wanted
    }
}

/// Matrices of the size of its transition that [`exponential`] holds at one time.
const MATRICES: usize = 4;

/// e^M of a square matrix: by its series after it is halved until it is small, and squared as often again.
fn exponential(matrix: &Tensor) -> Result<Tensor> {
    /// Terms of the series: the next one of a norm of 1/2 is below the digits of f64.
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
        let theta = spec.option("theta").and_then(|theta| theta.parse().ok());
        params.count_constant("delay", MATRICES * (n + 1) * (n + 1));
        Ok(Self {
            wu: params.weight("wu", (inputs, d), spec.input_std)?,
            bu: params.bias("bu", inputs, d)?,
            wm: params.weight("wm", (d, inputs * n), spec.input_std)?,
            wx: params.weight("wx", (d, d), spec.input_std)?,
            bout: params.bias("bout", d, d)?,
            delay: Delay {
                order: n,
                theta: theta.unwrap_or(64.0),
                discrete: OnceCell::new(),
                kernel: RefCell::default(),
            },
        })
    }

    /// y for the memory `(.., inputs · n)` and u `(.., d)`.
    fn finish(&self, m: &Tensor, u: &Tensor) -> Result<Tensor> {
        let seen = linear(u, &self.wx, Some(&self.bout))?;
        ops::tanh(&(linear(m, &self.wm, None)? + seen)?)
    }

    /// A constant where and as the parameters are.
    fn like(&self, x: &Tensor) -> Result<Tensor> {
        x.to_dtype(self.bu.dtype())?.to_device(self.bu.device())
    }
}

impl Mixer for Lmu {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = u.dims3()?;
        let (inputs, n) = (self.bu.elem_count(), self.delay.order);
        let x = linear(u, &self.wu, Some(&self.bu))?.unsqueeze(3)?;
        let x = x.broadcast_as((batch, seq_len, inputs, n))?.contiguous()?;
        let kernel = self.like(&self.delay.kernel(seq_len)?)?;
        let kernel = Tensor::cat(&vec![&kernel; inputs], 0)?;
        let m = ops::long_conv(&x.flatten_from(2)?, &kernel)?;
        self.finish(&cx.select(&m)?, &cx.select(u)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.bu.elem_count() * self.delay.order
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "the tanh around its state is no linear read-out, and its Λ_i is a dense matrix"
    }
}

impl Recurrent for Lmu {
    /// The coefficients, `(batch, inputs, n)`.
    fn init(&self, batch: usize) -> Result<State> {
        let shape = (batch, self.bu.elem_count(), self.delay.order);
        let zeros = Tensor::zeros(shape, self.bu.dtype(), self.bu.device())?;
        Ok(State(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [a, b] = self.delay.discrete()?;
        let (a, b) = (self.like(&a.t()?.contiguous()?)?, self.like(&b.t()?)?);
        let x = linear(x_t, &self.wu, Some(&self.bu))?.unsqueeze(2)?;
        let m = (state.0[0].broadcast_matmul(&a)? + x.broadcast_mul(&b.unsqueeze(0)?)?)?;
        let y = self.finish(&m.flatten_from(1)?, x_t)?;
        *state = State(vec![m]);
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the memory is for: its coefficients, read by shifted Legendre polynomials at the end of the window, are the input θ
    /// tokens ago (Voelker et al. 2019, equation 5).
    #[test]
    fn the_memory_holds_a_slow_input_for_theta_tokens() {
        const LEN: usize = 600;
        let delay = Delay {
            order: 12,
            theta: 100.0,
            discrete: OnceCell::new(),
            kernel: RefCell::default(),
        };
        let wave = |t: f64| (0.05 * t).sin();
        let kernel = delay.kernel(LEN).unwrap().to_vec2::<f64>().unwrap();
        for (fraction, read) in [(0.0, [1.0, -1.0]), (1.0, [1.0, 1.0])] {
            // P_i(2 · fraction - 1) is (-1)^i or 1.
            for now in [300, 450, 599] {
                let coefficient = |i: usize| -> f64 {
                    (0..=now).map(|j| kernel[i][now - j] * wave(j as f64)).sum()
                };
                let found: f64 = (0..12).map(|i| read[i % 2] * coefficient(i)).sum();
                // The hold makes of the input what it was half a token before, on average.
                let wanted = wave(now as f64 + 0.5 - 100.0 * fraction);
                assert!(
                    (found - wanted).abs() < 0.03,
                    "{fraction} {now}: {found}, {wanted}"
                );
            }
        }
    }

    #[test]
    fn the_exponential_is_that_of_a_rotation_and_a_shift() {
        let of = |rows: &[[f64; 2]; 2]| {
            let x = exponential(&Tensor::new(rows, &Device::Cpu).unwrap()).unwrap();
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
