//! The delay system of the Legendre memory unit (Voelker et al. 2019, equation (3)), whose state holds the coefficients
//! of the last θ tokens of a signal in shifted Legendre polynomials.

use super::s4::impulse_response;
use super::MixerSpec;
use crate::nn::{Params, Tables};
use candle_core::{DType, Device, Result, Tensor};
use std::cell::{OnceCell, RefCell};

/// Number of input signals.
pub(super) fn inputs(spec: &MixerSpec) -> usize {
    spec.parsed("inputs").unwrap_or(1)
}

/// Length of the memory in tokens, θ.
pub(super) fn theta(spec: &MixerSpec) -> f64 {
    spec.parsed("theta").unwrap_or(64.0)
}

/// Delay system of length θ, without parameters; computed in f64 on first use.
pub(super) struct DelaySystem {
    /// Coefficients of a signal, n.
    pub order: usize,
    theta: f64,
    discrete: OnceCell<[Tensor; 2]>,
    /// The same in the type and on the device of the model.
    of_model: OnceCell<[Tensor; 2]>,
    /// Longest kernel so far, `(n, len)`.
    kernel: RefCell<Option<Tensor>>,
    /// Kernels in the type and on the device of the model.
    kernels: Tables<Tensor>,
}

impl DelaySystem {
    /// The system of `order` coefficients over `theta` tokens, whose matrices count among the constants of `params`.
    pub fn new(order: usize, theta: f64, params: &Params) -> Self {
        params.count_constant("delay", MATRICES * (order + 1) * (order + 1));
        Self::of(order, theta)
    }

    fn of(order: usize, theta: f64) -> Self {
        Self {
            order,
            theta,
            discrete: OnceCell::new(),
            of_model: OnceCell::new(),
            kernel: RefCell::default(),
            kernels: Tables::default(),
        }
    }

    /// Ā `(n, n)` and B̄ `(n, 1)`: blocks of e^[[A, B], [0, 0]], the zero-order hold over one token, with
    /// A_ij = (2i+1)/θ (-1 for i < j, else (-1)^(i-j+1)) and B_i = (2i+1)(-1)^i/θ.
    pub fn discrete(&self) -> Result<&[Tensor; 2]> {
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

    /// [`Self::discrete`] in the type and on the device of the model's tensors, of which `like` is one.
    pub fn discrete_like(&self, like: &Tensor) -> Result<&[Tensor; 2]> {
        if let Some(found) = self.of_model.get() {
            return Ok(found);
        }
        let [a, b] = self.discrete()?.each_ref().map(|x| x.to_dtype(like.dtype())?.to_device(like.device()));
        let moved = [a?, b?];
        Ok(self.of_model.get_or_init(|| moved))
    }

    /// Ā m + B̄ x of each signal, for m `(batch, inputs, n)` and x `(batch, inputs)`.
    pub fn advance(&self, m: &Tensor, x: &Tensor) -> Result<Tensor> {
        let [a, b] = self.discrete_like(m)?;
        let (a, b) = (a.t()?.contiguous()?, b.t()?.contiguous()?);
        m.broadcast_matmul(&a)? + x.unsqueeze(2)?.broadcast_mul(&b.unsqueeze(0)?)?
    }

    /// Impulse response Ā^l B̄ for l < `len`, `(n, len)`, in the type and on the device of `like`, a tensor of the model.
    pub fn kernel_like(&self, len: usize, like: &Tensor) -> Result<Tensor> {
        self.kernels.of(len, || self.kernel(len)?.to_dtype(like.dtype())?.to_device(like.device()))
    }

    /// The same in f64 on the CPU.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose of the memory: its coefficients, evaluated with shifted Legendre polynomials at the end of the window,
    /// are the input θ tokens ago (Voelker et al. 2019, equation 5).
    #[test]
    fn the_memory_holds_a_slow_input_for_theta_tokens() {
        const LEN: usize = 600;
        let delay = DelaySystem::of(12, 100.0);
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
