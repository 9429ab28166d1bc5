//! S4 (Gu et al. 2022b) with the HiPPO-LegS matrix: a time-invariant state space model per channel, whose state holds
//! the coefficients of the past in Legendre polynomials,
//!
//! h_i = Ā h_{i-1} + B̄ u_i,  y_i = C h_i + D u_i,  Ā = (I - ΔA/2)⁻¹ (I + ΔA/2),  B̄ = (I - ΔA/2)⁻¹ ΔB
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | A, B | HiPPO-LegS, A lower triangular | `(n, n)`, `(n, 1)` |
//! | Ā, B̄ | their bilinear discretisation by Δ = e^(`log_dt`) | `(d, n, n)`, `(d, n, 1)` |
//! | C, D | output vector and feedthrough (`dskip`) | `(d, n)`, `(d)` |
//!
//! Below its diagonal A has rank one, so that the system is a cascade of n first-order sections. A and B are not trained;
//! [`s4_dplr`](super::s4_dplr) is the variant that learns them.

use super::diagonal::initial_log_dt;
use super::hippo::Hippo;
use super::s4_dplr::{self, DplrS4};
use super::{Core, Entry, Family, Growth, Mixer, MixerSpec, MixerWork, Recurrent, ReleasedBlock, State};
use crate::nn::{Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "s4",
    equation: "h_i = Ā h_{i-1} + B̄ u_i, y_i = C h_i + D u_i per channel, A: LegS or Λ - P Pᴴ",
    cite: "Gu et al. 2022",
    variants: &["legs", s4_dplr::VARIANT],
    dsf: "no (its transition is dense)",
    expands: true,
    released: ReleasedBlock::CHANNEL_BY_CHANNEL,
    options: &[s4_dplr::START, s4_dplr::N_SSM, s4_dplr::L_MAX],
    check: s4_dplr::check,
    // A of LegS is lower triangular: the first states do not depend on later ones. Learnt states depend on others by P.
    growth: Growth::Exact { zeroed: &["c", "p"], scaled: &[] },
    stem: "s4",
    own_init: &["a_im", "a_re_log", "b", "c", "dskip", "log_dt", "p"],
    uncounted: &["a_im", "a_re_log", "b", "c", "p"],
    work: |spec| Some(MixerWork::new(Core::LongConvolution, [spec.d_model, spec.d_state], 0)),
    build: |spec, params| match spec.variant == s4_dplr::VARIANT {
        true => Ok(Box::new(DplrS4::new(spec, params)?)),
        false => Ok(Box::new(S4::new(spec, params)?)),
    },
    ..Entry::of(Family::StateSpace)
};

struct S4 {
    /// A `(n, n)`.
    a: Tensor,
    /// B `(n, 1)`.
    b: Tensor,
    /// C `(d, n)`.
    c: Tensor,
    log_dt: Tensor,
    /// D `(d)`.
    dskip: Tensor,
    /// Whether the kernel is computed as a cascade; not for a given A, whose lower triangle has rank one only up to
    /// rounding.
    cascade: bool,
}

impl S4 {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        // `sections` holds an identity and a product of it with A.
        params.count_constant("diagonal", 2 * n * n);
        Ok(Self {
            a: params.constant("a", (n, n), |_| Hippo::Legs.system(n).a.concat())?,
            b: params.constant("b", n, |_| Hippo::Legs.system(n).b)?.unsqueeze(1)?,
            c: params.get("c", (d, n), Init::Normal(1.0))?,
            log_dt: params.get("log_dt", d, Init::Each(&initial_log_dt))?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
            cascade: params.given_constant("a")?.is_none(),
        })
    }

    /// Ā `(d, n, n)` and B̄ `(d, n, 1)`.
    fn discrete(&self) -> Result<[Tensor; 2]> {
        let dt = self.log_dt.exp()?.reshape(((), 1, 1))?;
        let half_dt_a = self.a.unsqueeze(0)?.broadcast_mul(&(&dt * 0.5)?)?; // (d, n, n)
        let eye = Tensor::eye(self.a.dim(0)?, half_dt_a.dtype(), half_dt_a.device())?;
        let inverse = lower_triangular_inverse(&half_dt_a.neg()?.broadcast_add(&eye)?)?;
        let dt_b = self.b.unsqueeze(0)?.broadcast_mul(&dt)?; // (d, n, 1)
        Ok([inverse.matmul(&half_dt_a.broadcast_add(&eye)?)?, inverse.matmul(&dt_b)?])
    }

    /// Sections of the cascade, a, b and w of [`ops::cascade`], `(d, n)` each; A_ij = -b_i b_j below the diagonal.
    fn sections(&self) -> Result<[Tensor; 3]> {
        let n = self.b.dim(0)?;
        let b = self.b.reshape((1, n))?;
        let eye = Tensor::eye(n, self.a.dtype(), self.a.device())?;
        let diagonal = (&self.a * eye)?.sum(1)?.unsqueeze(0)?;
        let half_dt = (self.log_dt.exp()? * 0.5)?.unsqueeze(1)?;
        // λ = Δ (i+1) / 2; the bilinear transform of a section is a = (1 - λ) / (1 + λ).
        let lambda = half_dt.broadcast_mul(&diagonal.neg()?)?; // (d, n)
        let denominator = (&lambda + 1.0)?.recip()?;
        Ok([
            (&denominator * lambda.affine(-1.0, 1.0)?)?,
            (&denominator * half_dt.broadcast_mul(&b.sqr()?)?)?,
            (self.c.broadcast_div(&b)? * 2.0)?,
        ])
    }

    /// Kernel C Ā^l B̄ for l < `len`, `(d, len)`.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        if self.cascade {
            let [a, b, w] = self.sections()?;
            return ops::cascade(&a, &b, &w, len);
        }
        let [a, b] = self.discrete()?;
        let states = impulse_response(a, b, len)?; // (d, n, len)
        self.c.unsqueeze(1)?.matmul(&states)?.squeeze(1)
    }
}

/// States Ā^l B̄ for l < `len`, `(d, n, len)`, for Ā `(d, n, n)` and B̄ `(d, n, 1)`.
pub(super) fn impulse_response(a: Tensor, b: Tensor, len: usize) -> Result<Tensor> {
    let (mut power, mut states) = (a, b);
    // Doubling: the next `l` states are Ā^l times the first `l`.
    while states.dim(2)? < len {
        states = Tensor::cat(&[&states, &power.matmul(&states)?], 2)?;
        if states.dim(2)? < len {
            power = power.matmul(&power)?;
        }
    }
    states.narrow(2, 0, len)?.contiguous()
}

/// Inverse of lower triangular matrices `(d, n, n)`, by recursion on 2 x 2 blocks.
fn lower_triangular_inverse(x: &Tensor) -> Result<Tensor> {
    let n = x.dim(2)?;
    if n == 1 {
        return x.recip();
    }
    let half = n / 2;
    let block = |row: usize, column: usize, rows: usize, columns: usize| {
        x.narrow(1, row, rows)?.narrow(2, column, columns)?.contiguous()
    };
    let upper = lower_triangular_inverse(&block(0, 0, half, half)?)?;
    let lower = lower_triangular_inverse(&block(half, half, n - half, n - half)?)?;
    let corner = lower.matmul(&block(half, 0, n - half, half)?)?.matmul(&upper)?.neg()?;
    let zero = block(0, half, half, n - half)?.zeros_like()?;
    let (top, bottom) = (Tensor::cat(&[&upper, &zero], 2)?, Tensor::cat(&[&corner, &lower], 2)?);
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
        s4_dplr::WITHOUT_SYSTEM
    }
}

impl Recurrent for S4 {
    /// h `(batch, d, n)`.
    fn init(&self, batch: usize) -> Result<State> {
        let (d, n) = self.c.dims2()?;
        let zeros = Tensor::zeros((batch, d, n), self.c.dtype(), self.c.device())?;
        Ok(State::new(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let [a, b] = self.discrete()?;
        let a_h = a.unsqueeze(0)?.broadcast_matmul(&state.0[0].unsqueeze(3)?)?;
        let b_u = b.squeeze(2)?.unsqueeze(0)?.broadcast_mul(&x_t.unsqueeze(2)?)?;
        let h = (a_h.squeeze(3)? + b_u)?; // (batch, d, n)
        let y = h.broadcast_mul(&self.c.unsqueeze(0)?)?.sum(D::Minus1)?;
        *state = State::new(vec![h]);
        ops::add_scaled(&y, x_t, &self.dskip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::rng::Rng;
    use candle_core::{DType, Device};

    const N: usize = 16;

    /// A and B of HiPPO-LegS.
    fn legs() -> [Vec<f64>; 2] {
        let system = Hippo::Legs.system(N);
        [system.a.concat(), system.b]
    }

    /// S4 with Δ = 1/64 and C = I: channel i reads state i.
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

    /// Linear memory capacity of the states of h_i = Ā h_{i-1} + B̄ u_i over 256 steps: the sum over all delays of the
    /// share of white noise input that a linear readout reconstructs. It is N without noise; here each state has noise
    /// of 1e-4 of the mean power.
    fn capacity(system: [Vec<f64>; 2]) -> f64 {
        let held = s4(system, false).kernel(256).unwrap();
        let mut gram = held.matmul(&held.t().unwrap()).unwrap().to_vec2::<f64>().unwrap();
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
        let [a, b] = legs();
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
        let [fast, slow] = [true, false].map(|cascade| s4(legs(), cascade).kernel(256).unwrap());
        let apart = (fast - slow).unwrap().abs().unwrap().max_all().unwrap();
        assert!(apart.to_scalar::<f64>().unwrap() < 1e-12);
    }
}
