//! S4 (Gu et al. 2022b) with the HiPPO-LegS matrix: a state space model, the same at every step, whose state is the past's
//! coefficients in Legendre polynomials. Below its diagonal the matrix is of rank one, which makes a system of n coefficients a
//! cascade of n first-order sections.

use super::diagonal::log_step;
use super::{
    Core, Entry, Family, Growth, Mixer, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State,
};
use crate::nn::{Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "s4",
    equation: "h_i = Ā h_{i-1} + B̄ u_i, y_i = C h_i + D u_i per channel, A = HiPPO-LegS",
    cite: "Gu et al. 2022",
    variants: &["legs"],
    dsf: "no (its transition is dense)",
    expands: true,
    released: ReleasedBlock::CHANNEL_BY_CHANNEL,
    // A is lower triangular: the first states do not read those behind them.
    growth: Growth::Exact {
        zeroed: &["c"],
        scaled: &[],
    },
    stem: "s4",
    own_init: &["c", "dskip", "log_dt"],
    uncounted: &["c"],
    work: |spec| {
        Some(MixerWork::new(
            Core::LongConvolution,
            [spec.d_model, spec.d_state],
            0,
        ))
    },
    build: |spec, params| Ok(Box::new(S4::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct S4 {
    /// HiPPO-LegS, `(n, n)`, lower triangular.
    a: Tensor,
    /// `(n, 1)`.
    b: Tensor,
    /// `(d, n)`.
    c: Tensor,
    log_dt: Tensor,
    dskip: Tensor,
    /// False for a matrix that was given, which need not be of rank one to its last digit.
    cascade: bool,
}

/// A_ij = -√((2i+1)(2j+1)) below the diagonal and -(i+1) on it.
fn legs(n: usize) -> Vec<f64> {
    let b = roots(n);
    let entry = |i: usize, j: usize| match i.cmp(&j) {
        std::cmp::Ordering::Greater => -b[i] * b[j],
        std::cmp::Ordering::Equal => -(i as f64 + 1.0),
        std::cmp::Ordering::Less => 0.0,
    };
    (0..n * n).map(|at| entry(at / n, at % n)).collect()
}

/// B_i = √(2i+1).
fn roots(n: usize) -> Vec<f64> {
    (0..n).map(|i| (2.0 * i as f64 + 1.0).sqrt()).collect()
}

impl S4 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        // An identity of that size, and what of `a` it leaves.
        params.count_constant("diagonal", 2 * n * n);
        Ok(Self {
            a: params.constant("a", (n, n), |_| legs(n))?,
            b: params.constant("b", n, |_| roots(n))?.unsqueeze(1)?,
            c: params.get("c", (d, n), Init::Normal(1.0))?,
            log_dt: params.get("log_dt", d, Init::Each(&log_step))?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
            cascade: params.given_constant("a").is_none(),
        })
    }

    /// The bilinear Ā = (I - ΔA/2)⁻¹ (I + ΔA/2) `(d, n, n)` and B̄ = (I - ΔA/2)⁻¹ ΔB `(d, n, 1)`.
    fn discrete(&self) -> Result<[Tensor; 2]> {
        let dt = self.log_dt.exp()?.reshape(((), 1, 1))?;
        let half = self.a.unsqueeze(0)?.broadcast_mul(&(&dt * 0.5)?)?;
        let eye = Tensor::eye(self.a.dim(0)?, half.dtype(), half.device())?;
        let inverse = lower_inverse(&half.neg()?.broadcast_add(&eye)?)?;
        let b = self.b.unsqueeze(0)?.broadcast_mul(&dt)?;
        Ok([
            inverse.matmul(&half.broadcast_add(&eye)?)?,
            inverse.matmul(&b)?,
        ])
    }

    /// Its sections, a, b and w of [`ops::cascade`], `(d, n)` each. The entries below the diagonal are -b_i b_j.
    fn sections(&self) -> Result<[Tensor; 3]> {
        let n = self.b.dim(0)?;
        let b = self.b.reshape((1, n))?;
        let eye = Tensor::eye(n, self.a.dtype(), self.a.device())?;
        let diagonal = (&self.a * eye)?.sum(1)?.unsqueeze(0)?;
        let half = (self.log_dt.exp()? * 0.5)?.unsqueeze(1)?;
        let decay = half.broadcast_mul(&diagonal.neg()?)?;
        let share = (&decay + 1.0)?.recip()?;
        Ok([
            (&share * decay.affine(-1.0, 1.0)?)?,
            (&share * half.broadcast_mul(&b.sqr()?)?)?,
            (self.c.broadcast_div(&b)? * 2.0)?,
        ])
    }

    /// C Ā^l B̄ for l below `len`, `(d, len)`.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        if self.cascade {
            let [a, b, w] = self.sections()?;
            return ops::cascade(&a, &b, &w, len);
        }
        let [a, b] = self.discrete()?;
        let states = responses(a, b, len)?;
        self.c.unsqueeze(1)?.matmul(&states)?.squeeze(1)
    }
}

/// Ā^l B̄ for l below `len`, `(.., n, len)`, where Ā is `(.., n, n)` and B̄ `(.., n, 1)` with one leading axis.
pub(super) fn responses(a: Tensor, b: Tensor, len: usize) -> Result<Tensor> {
    let (mut power, mut states) = (a, b);
    // Of twice as many steps: those there are, and Ā to their number times them.
    while states.dim(2)? < len {
        states = Tensor::cat(&[&states, &power.matmul(&states)?], 2)?;
        if states.dim(2)? < len {
            power = power.matmul(&power)?;
        }
    }
    states.narrow(2, 0, len)?.contiguous()
}

/// The inverse of lower triangular matrices `(d, n, n)`, by halves.
fn lower_inverse(x: &Tensor) -> Result<Tensor> {
    let n = x.dim(2)?;
    if n == 1 {
        return x.recip();
    }
    let half = n / 2;
    let block = |row: usize, column: usize, rows: usize, columns: usize| {
        x.narrow(1, row, rows)?
            .narrow(2, column, columns)?
            .contiguous()
    };
    let above = lower_inverse(&block(0, 0, half, half)?)?;
    let below = lower_inverse(&block(half, half, n - half, n - half)?)?;
    let corner = below
        .matmul(&block(half, 0, n - half, half)?)?
        .matmul(&above)?
        .neg()?;
    let nothing = block(0, half, half, n - half)?.zeros_like()?;
    let (top, bottom) = (
        Tensor::cat(&[&above, &nothing], 2)?,
        Tensor::cat(&[&corner, &below], 2)?,
    );
    Tensor::cat(&[&top, &bottom], 1)
}

impl Mixer for S4 {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let y = ops::long_conv(u, &self.kernel(u.dim(1)?)?)?;
        ops::add_scaled(&cx.select(&y)?, &cx.select(u)?, &self.dskip)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        self.c.elem_count()
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn without_system(&self) -> &'static str {
        "its Λ_i is a dense matrix, whose eigenvectors are too ill-conditioned to make it diagonal"
    }
}

impl Recurrent for S4 {
    /// The state `(d, n, batch)` of each channel, its batch first: `(batch, d, n)`.
    fn init(&self, batch: usize) -> Result<State> {
        let (d, n) = self.c.dims2()?;
        let zeros = Tensor::zeros((batch, d, n), self.c.dtype(), self.c.device())?;
        Ok(State(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [a, b] = self.discrete()?;
        let turned = a
            .unsqueeze(0)?
            .broadcast_matmul(&state.0[0].unsqueeze(3)?)?;
        let written = b
            .squeeze(2)?
            .unsqueeze(0)?
            .broadcast_mul(&x_t.unsqueeze(2)?)?;
        let h = (turned.squeeze(3)? + written)?;
        let y = h.broadcast_mul(&self.c.unsqueeze(0)?)?.sum(D::Minus1)?;
        *state = State(vec![h]);
        ops::add_scaled(&y, x_t, &self.dskip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::rng::Rng;
    use candle_core::{DType, Device};

    const N: usize = 16;

    /// 16 channels of which each reads the state of its number, Δ = 1/64.
    fn s4([a, b]: [Vec<f64>; 2], cascade: bool) -> S4 {
        let tensor = |x: Vec<f64>, shape: &[usize]| Tensor::from_vec(x, shape, &Device::Cpu);
        S4 {
            a: tensor(a, &[N, N]).unwrap(),
            b: tensor(b, &[N, 1]).unwrap(),
            c: Tensor::eye(N, DType::F64, &Device::Cpu).unwrap(),
            log_dt: Tensor::full(-64f64.ln(), N, &Device::Cpu).unwrap(),
            dskip: Tensor::zeros(N, DType::F64, &Device::Cpu).unwrap(),
            cascade,
        }
    }

    /// The linear memory capacity of the states of h_i = Ā h_{i-1} + B̄ u_i over 256 steps: the sum over all delays of the share
    /// of a white input that a linear read-out finds again. It is N where nothing disturbs the states; here each has noise of a
    /// ten thousandth of their mean power.
    fn capacity(system: [Vec<f64>; 2]) -> f64 {
        let held = s4(system, false).kernel(256).unwrap();
        let mut gram = held
            .matmul(&held.t().unwrap())
            .unwrap()
            .to_vec2::<f64>()
            .unwrap();
        let noise = 1e-4 * (0..N).map(|i| gram[i][i]).sum::<f64>() / N as f64;
        // The trace of (G + noise I)⁻¹ G, by elimination.
        let mut found = gram.clone();
        (0..N).for_each(|i| gram[i][i] += noise);
        for i in 0..N {
            for j in (0..N).filter(|j| *j != i) {
                let by = gram[j][i] / gram[i][i];
                for k in 0..N {
                    gram[j][k] -= by * gram[i][k];
                    found[j][k] -= by * found[i][k];
                }
            }
        }
        (0..N).map(|i| found[i][i] / gram[i][i]).sum()
    }

    #[test]
    fn hippo_keeps_what_a_random_start_forgets() {
        let [a, b] = [legs(N), roots(N)];
        let kept = capacity([a.clone(), b]);
        assert!(kept > 15.8, "{kept} of {N}");
        for seed in 0..5 {
            let mut rng = Rng::new(seed, "test", 0);
            // As stable as HiPPO: its diagonal, and other numbers below.
            let random = (0..N * N).map(|at| match at % N == at / N || a[at] == 0.0 {
                true => a[at],
                false => rng.normals().0,
            });
            let random = random.collect();
            let b = (0..N).map(|_| rng.normals().0).collect();
            let forgetful = capacity([random, b]);
            assert!(forgetful < 0.5 * kept, "{forgetful} of {N}, seed {seed}");
        }
    }

    #[test]
    fn the_cascade_has_the_kernel_of_the_matrix() {
        let [fast, slow] =
            [true, false].map(|cascade| s4([legs(N), roots(N)], cascade).kernel(256).unwrap());
        let apart = (fast - slow).unwrap().abs().unwrap().max_all().unwrap();
        assert!(apart.to_scalar::<f64>().unwrap() < 1e-12);
    }
}
