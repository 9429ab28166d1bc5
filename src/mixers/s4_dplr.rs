//! S4 as published (Gu et al. 2022b): a time-invariant state space model per channel whose matrix is learnt as diagonal
//! plus low rank (DPLR), in m = n/2 conjugate pairs of complex states; an odd n is rounded up,
//!
//! h_i = Ā h_{i-1} + B̄ u_i,  y_i = C h_i + D u_i,  A = Λ - P Pᴴ,
//! Ā = (I - ΔA/2)⁻¹ (I + ΔA/2),  B̄ = (I - ΔA/2)⁻¹ ΔB
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | Λ | -e^(`a_re_log`) + i `a_im`, of the normal part | `(sets, m)` |
//! | P | low-rank part, real before imaginary | `(2, rank, sets, m)` |
//! | B | input vector | `(2, sets, m)` |
//! | C̃ | C (I - Ā^M), `c`; M is the option `l_max`, or the next length with a fast transform | `(2, d, m)` |
//! | Δ | step size e^(`log_dt`) | `(d)` |
//!
//! With C̃ the transform of the kernel at the Mth roots of unity needs no power of Ā, so that a training step has no
//! matrix of n x n. Only recurrence and inputs longer than M do: they compute powers of Ā, in f64.

use super::complex::Complex;
use super::diagonal::initial_log_dt;
use super::hippo::{Hippo, NormalPlusLowRank};
use super::{kernel_length, Mixer, MixerOption, MixerSpec, Recurrent, State};
use crate::error::{self, refuse};
use crate::nn::{Cx, Init, Params};
use crate::ops;
use crate::ops::rng::Rng;
use candle_core::{bail, DType, Device, Result, Tensor, D};
use std::cell::{OnceCell, RefCell};
use std::f64::consts::FRAC_1_SQRT_2;

pub(super) const VARIANT: &str = "dplr";

/// Reason why S4 is no system (11), in either variant.
pub(super) const WITHOUT_SYSTEM: &str =
    "its Λ_i is a dense matrix, whose eigenvectors are too ill-conditioned to make it diagonal";

/// Initial Λ, P and B.
pub(super) const START: MixerOption = MixerOption {
    name: "start",
    help:
        "initial Λ, P and B: HiPPO `legs`, `legt` (translated Legendre, P of rank 2) or `fourier` (FouT), or `random`",
    default: |_| "legs",
    accepts: |v| v == "random" || measure(v).is_some(),
    variants: &[VARIANT],
    ..MixerOption::DEFAULT
};

/// Number of independent systems.
pub(super) const N_SSM: MixerOption = MixerOption {
    name: "n_ssm",
    help: "independent sets of Λ, P and B: `1` for all channels, a divisor of --d, or `d` for a set of each channel",
    default: |_| "1",
    accepts: |v| v == "d" || super::in_range(v, 1..=1 << 20),
    variants: &[VARIANT],
    ..MixerOption::DEFAULT
};

/// Length of training.
pub(super) const L_MAX: MixerOption = MixerOption {
    variants: &[VARIANT],
    of_task: true,
    ..kernel_length::option(
        "length of training, to which C̃ belongs: `auto` is the task's --seq-len, up to 16777216",
        false,
    )
};

fn measure(start: &str) -> Option<Hippo> {
    match start {
        "legs" => Some(Hippo::Legs),
        "legt" => Some(Hippo::Legt),
        "fourier" => Some(Hippo::Fourier),
        _ => None,
    }
}

/// Error unless the sets divide the channels.
pub(super) fn check(spec: &MixerSpec) -> error::Result<()> {
    if spec.variant != VARIANT {
        return Ok(());
    }
    let (d, sets) = (spec.d_model, sets(spec));
    if d % sets != 0 {
        refuse!(flag "--option" = format!("n_ssm={sets}"), "must divide --d {d}: each set serves an equal number of channels");
    }
    Ok(())
}

/// Conjugate pairs of states of a channel; an odd n is rounded up.
fn pairs(spec: &MixerSpec) -> usize {
    spec.d_state.div_ceil(2)
}

/// Independent sets of Λ, P and B.
fn sets(spec: &MixerSpec) -> usize {
    match spec.option(N_SSM.name) {
        Some("d") => spec.d_model,
        _ => spec.parsed(N_SSM.name).unwrap_or(1),
    }
}

/// Numbers of the matrices of some channels, of which powers are computed.
fn held(spec: &MixerSpec) -> usize {
    16 * CHANNELS.min(spec.d_model) * pairs(spec) * pairs(spec)
}

/// Reason why matrices can be computed: their shapes fit, and no device is involved.
const ON_THE_CPU: &str = "matrices of fitting shapes on the CPU";

/// Channels whose powers of Ā are computed at once.
const CHANNELS: usize = 16;

/// Parameters of A, B and Δ.
struct Learnt {
    log_dt: Tensor,
    a_re_log: Tensor,
    a_im: Tensor,
    p: Tensor,
    b: Tensor,
}

impl Learnt {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, m, sets) = (spec.d_model, pairs(spec), sets(spec));
        let start = spec.option(START.name).unwrap_or("legs");
        let log_dt = params.get("log_dt", d, Init::Each(&initial_log_dt))?;
        let Some(measure) = measure(start) else {
            // Random start, as `nplr` of the authors' `hippo.py` draws it.
            return Ok(Self {
                log_dt,
                a_re_log: params.get("a_re_log", (sets, m), Init::Normal(1.0))?,
                a_im: params.get("a_im", (sets, m), Init::Normal(1.0))?,
                p: params.get("p", (2, 1, sets, m), Init::Normal(FRAC_1_SQRT_2))?,
                b: params.get("b", (2, sets, m), Init::Normal(FRAC_1_SQRT_2))?,
            });
        };
        let cell = OnceCell::new();
        let hippo = || -> &NormalPlusLowRank { cell.get_or_init(|| measure.in_eigenbasis(2 * m)) };
        let (rank, width) = (measure.rank(), sets * m);
        let a_re_log = |i: usize, _: &mut Rng| (-hippo().lambda[i % m][0]).ln();
        let a_im = |i: usize, _: &mut Rng| hippo().lambda[i % m][1];
        let p = |i: usize, _: &mut Rng| hippo().p[i / width % rank][i % m][i / (rank * width)];
        let b = |i: usize, _: &mut Rng| hippo().b[i % m][i / width];
        Ok(Self {
            log_dt,
            a_re_log: params.get("a_re_log", (sets, m), Init::Each(&a_re_log))?,
            a_im: params.get("a_im", (sets, m), Init::Each(&a_im))?,
            p: params.get("p", (2, rank, sets, m), Init::Each(&p))?,
            b: params.get("b", (2, sets, m), Init::Each(&b))?,
        })
    }

    /// The systems of all channels in units of their steps: ΔΛ, √Δ P and ΔB. Channel c has set c modulo their number, as
    /// in the authors' code.
    fn systems(&self) -> Result<Systems> {
        let dt = self.log_dt.exp()?.unsqueeze(1)?;
        let (d, m) = (self.log_dt.elem_count(), self.a_im.dim(1)?);
        let per_channel = |x: &Tensor, by: &Tensor| -> Result<Tensor> {
            let copies = d / x.dim(0)?;
            let shape = (copies, x.dim(0)?, m);
            x.unsqueeze(0)?.broadcast_as(shape)?.contiguous()?.reshape((d, m))?.broadcast_mul(by)
        };
        let complex = |x: &Tensor, by: &Tensor| -> Result<Complex> {
            Ok(Complex { re: per_channel(&x.get(0)?, by)?, im: per_channel(&x.get(1)?, by)? })
        };
        let root = (&self.log_dt * 0.5)?.exp()?.unsqueeze(1)?;
        let of_rank = |i: usize| complex(&self.p.narrow(1, i, 1)?.squeeze(1)?, &root);
        Ok(Systems {
            lambda: Complex { re: per_channel(&self.a_re_log.exp()?.neg()?, &dt)?, im: per_channel(&self.a_im, &dt)? },
            p: (0..self.p.dim(1)?).map(of_rank).collect::<Result<_>>()?,
            b: complex(&self.b, &dt)?,
        })
    }
}

/// Systems of some channels in units of their steps, `(d, m)` each.
struct Systems {
    lambda: Complex,
    p: Vec<Complex>,
    b: Complex,
}

/// 2 Re Σ_k x_k y_k, `(.., d, 1)`: a sum over all states.
fn over_pairs(x: &Complex, y: &Complex) -> Result<Tensor> {
    x.times(y)?.re.sum_keepdim(D::Minus1)? * 2.0
}

impl Systems {
    /// Applies `of` to every tensor.
    fn mapped(&self, of: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let complex = |x: &Complex| -> Result<Complex> { Ok(Complex { re: of(&x.re)?, im: of(&x.im)? }) };
        Ok(Self {
            lambda: complex(&self.lambda)?,
            p: self.p.iter().map(complex).collect::<Result<_>>()?,
            b: complex(&self.b)?,
        })
    }

    /// (2 - Λ + Σ p pᴴ)⁻¹ y over the first `rank` vectors p, by the Woodbury identity, for y `(.., d, m)`.
    fn solve(&self, y: &Complex, rank: usize) -> Result<Complex> {
        let Some(last) = rank.checked_sub(1) else {
            return y.times(&self.lambda.affine(-1.0, 2.0)?.recip()?);
        };
        let (x, q) = (self.solve(y, last)?, self.solve(&self.p[last], last)?);
        let p = self.p[last].conjugate()?;
        let along = over_pairs(&p, &x)?.broadcast_div(&(over_pairs(&p, &q)? + 1.0)?)?;
        x.minus(&q.scaled(&along)?)
    }

    /// Ā h + B̄ u for h `(.., d, m)` and u `(.., d, 1)`.
    fn advance(&self, h: &Complex, u: Option<&Tensor>) -> Result<Complex> {
        let mut y = h.times(&self.lambda.affine(1.0, 2.0)?)?;
        for p in &self.p {
            y = y.minus(&p.scaled(&over_pairs(&p.conjugate()?, h)?)?)?;
        }
        if let Some(u) = u {
            y = y.minus(&self.b.scaled(&(u * -2.0)?)?)?;
        }
        self.solve(&y, self.p.len())
    }

    /// Matrices that map rows of real and imaginary parts (Re h, Im h) as Ā maps h, transposed: `(d, 2m, 2m)`.
    fn transitions(&self) -> Result<Tensor> {
        let (d, m) = self.lambda.im.dims2()?;
        let eye = Tensor::eye(2 * m, self.lambda.im.dtype(), self.lambda.im.device())?;
        let part = |first| eye.narrow(1, first, m)?.unsqueeze(1)?.broadcast_as((2 * m, d, m))?.contiguous();
        let columns = self.advance(&Complex { re: part(0)?, im: part(m)? }, None)?;
        Tensor::cat(&[&columns.re, &columns.im], 2)?.transpose(0, 1)?.contiguous()
    }
}

/// Rows r + r Ā^M, then so with Ā^2M, and so on, `doublings` times, or until nothing is added any more: r (I - Ā^M)⁻¹.
/// For transposed matrices `(d, n, n)` and r `(d, n, 1)`.
fn unfolded(transitions: &Tensor, rows: &Tensor, period: usize, doublings: Option<usize>) -> Result<Tensor> {
    /// A mode that decays by less than 2^-64 in M steps has no limit.
    const MOST: usize = 64;
    /// Part of a row below the precision of f64.
    const NOTHING: f64 = 1e-18;
    let (mut power, mut rows) = (power(transitions, period)?, rows.clone());
    for _ in 0..doublings.unwrap_or(MOST) {
        let more = power.matmul(&rows)?;
        rows = (&rows + &more)?;
        if doublings.is_none() && power.detach().abs()?.max_all()?.to_scalar::<f64>()? < NOTHING {
            break;
        }
        power = power.matmul(&power)?;
    }
    Ok(rows)
}

/// Power of matrices `(d, n, n)`, for an exponent above 0.
fn power(matrices: &Tensor, exponent: usize) -> Result<Tensor> {
    let (mut square, mut product, mut left) = (matrices.clone(), None, exponent);
    loop {
        if left % 2 == 1 {
            product = Some(match product {
                Some(product) => square.matmul(&product)?,
                None => square.clone(),
            });
        }
        left /= 2;
        match product {
            Some(product) if left == 0 => return Ok(product),
            _ => square = square.matmul(&square)?,
        }
    }
}

pub(super) struct DplrS4 {
    learnt: Learnt,
    /// C̃.
    c: Tensor,
    /// D, `(d)`.
    dskip: Tensor,
    /// M.
    period: usize,
    /// C of the sequence that is being read, `(d, m)`.
    recovered: RefCell<Option<Complex>>,
}

impl DplrS4 {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let Some(length) = kernel_length::of(spec) else {
            bail!("mixer `s4`, variant `{VARIANT}`, needs a number as its option l_max, the length of training");
        };
        let (d, m, period) = (spec.d_model, pairs(spec), ops::fast_size(length));
        let learnt = Learnt::new(spec, params)?;
        params.count_constant("powers", held(spec));
        // Without values the range of C̃ is described by that of other draws.
        let initial = || match params.has_values() {
            true => wide(&learnt.systems()?),
            false => Learnt::new(spec, &Params::seeded(0, DType::F64, &Device::Cpu))?.systems(),
        };
        let systems = OnceCell::new();
        let channels = RefCell::new(Vec::new());
        let c = |i: usize, rng: &mut Rng| {
            let (channel, k) = (i % (d * m) / m, i % m);
            let mut channels = channels.borrow_mut();
            if channels.len() <= channel {
                let row: Vec<f64> = (0..2 * m).map(|_| FRAC_1_SQRT_2 * rng.normals().0).collect();
                let systems = systems.get_or_init(initial).as_ref();
                let folded = systems.map(|systems| folded(systems, channel, &row, period));
                channels.push(folded.expect(ON_THE_CPU).expect(ON_THE_CPU));
            }
            channels[channel][if i < d * m { k } else { m + k }]
        };
        let c = params.get("c", (2, d, m), Init::Each(&c))?;
        Ok(Self { c, dskip: params.get("dskip", d, Init::Normal(1.0))?, period, recovered: RefCell::default(), learnt })
    }

    /// C̃ (I + Ā^M) (I + Ā^2M) .., see [`unfolded`], in f64 on the CPU.
    fn unfolded(&self, doublings: Option<usize>) -> Result<Complex> {
        let systems = wide(&self.learnt.systems()?)?;
        let c = self.c.to_device(&Device::Cpu)?.to_dtype(DType::F64)?;
        let (_, d, m) = c.dims3()?;
        // y = 2 Re(C h) is a real row times (Re h, Im h).
        let rows = Tensor::cat(&[&c.get(0)?, &c.get(1)?.neg()?], 1)?.unsqueeze(2)?;
        let some = |first: usize| {
            let count = CHANNELS.min(d - first);
            let systems = systems.mapped(|x| x.narrow(0, first, count))?;
            unfolded(&systems.transitions()?, &rows.narrow(0, first, count)?, self.period, doublings)
        };
        let rows = (0..d).step_by(CHANNELS).map(some).collect::<Result<Vec<_>>>()?;
        let rows = Tensor::cat(&rows, 0)?.squeeze(2)?.to_dtype(self.c.dtype())?.to_device(self.c.device())?;
        Ok(Complex { re: rows.narrow(1, 0, m)?.contiguous()?, im: rows.narrow(1, m, m)?.neg()? })
    }

    /// Kernel C Ā^l B̄ for l < `len`, `(d, len)`. Beyond M, C̃ is that of the first of 2M, 4M and so on.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        let doublings = len.div_ceil(self.period).next_power_of_two().ilog2() as usize;
        let c = match doublings {
            0 => Complex { re: self.c.get(0)?, im: self.c.get(1)? },
            _ => self.unfolded(Some(doublings))?,
        };
        let Systems { lambda, p, b } = self.learnt.systems()?;
        let stacked = |of: fn(&Complex) -> &Tensor| Tensor::stack(&p.iter().map(of).collect::<Vec<_>>(), 0);
        let p = Complex { re: stacked(|p| &p.re)?, im: stacked(|p| &p.im)? };
        let [lambda, p, b, c] = [&lambda, &p, &b, &c].map(|x| [&x.re, &x.im]);
        ops::dplr_kernel(lambda, p, b, c, [len, self.period << doublings])
    }
}

/// Systems in f64 on the CPU.
fn wide(systems: &Systems) -> Result<Systems> {
    systems.mapped(|x| x.to_device(&Device::Cpu)?.to_dtype(DType::F64))
}

/// Real and imaginary parts of C (I - Ā^M) of one channel, for those of C.
fn folded(systems: &Systems, channel: usize, c: &[f64], period: usize) -> Result<Vec<f64>> {
    let m = c.len() / 2;
    let turned = |c: &[f64]| -> Vec<f64> { c[..m].iter().copied().chain(c[m..].iter().map(|im| -im)).collect() };
    let systems = systems.mapped(|x| x.detach().narrow(0, channel, 1))?;
    let row = Tensor::from_vec(turned(c), (1, 2 * m, 1), &Device::Cpu)?;
    let later = power(&systems.transitions()?, period)?.matmul(&row)?;
    Ok(turned(&(row - later)?.flatten_all()?.to_vec1()?))
}

impl Mixer for DplrS4 {
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
        WITHOUT_SYSTEM
    }
}

impl Recurrent for DplrS4 {
    /// h `(batch, 2, d, m)`. The first step computes C.
    fn init(&self, batch: usize) -> Result<State> {
        self.recovered.replace(None);
        let (_, d, m) = self.c.dims3()?;
        let zeros = Tensor::zeros((batch, 2, d, m), self.c.dtype(), self.c.device())?;
        Ok(State::new(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, _at: usize, state: &mut State) -> Result<Tensor> {
        let part = |i| state.0[0].narrow(1, i, 1)?.squeeze(1);
        let h = Complex { re: part(0)?, im: part(1)? };
        let h = self.learnt.systems()?.advance(&h, Some(&x_t.unsqueeze(2)?))?;
        let known = self.recovered.borrow().clone();
        let c = match known {
            Some(c) => c,
            None => self.unfolded(None)?,
        };
        let y = over_pairs(&c, &h)?.squeeze(D::Minus1)?;
        self.recovered.replace(Some(c));
        *state = State::new(vec![Tensor::stack(&[h.re, h.im], 1)?]);
        ops::add_scaled(&y, x_t, &self.dskip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    fn s4(start: &str, n: usize, length: usize) -> DplrS4 {
        let options = [(START.name, start.to_owned()), (N_SSM.name, "1".to_owned()), (L_MAX.name, length.to_string())];
        let options = options.map(|(name, value)| (name.to_owned(), value));
        let model = ModelConfig { options: options.into(), d_state: n, ..ModelConfig::bare("s4", VARIANT, [3, 1]) };
        DplrS4::new(&MixerSpec::from(&model), &Params::seeded(1, DType::F64, &Device::Cpu)).unwrap()
    }

    /// Largest difference of the kernel and the response of the recurrence to an impulse, relative to the kernel.
    fn apart(s4: &DplrS4, len: usize) -> f64 {
        let kernel = s4.kernel(len).unwrap();
        let (systems, c) = (s4.learnt.systems().unwrap(), s4.unfolded(None).unwrap());
        let zero = Complex { re: c.re.zeros_like().unwrap(), im: c.im.zeros_like().unwrap() };
        let impulse = Tensor::ones((3, 1), DType::F64, &Device::Cpu).unwrap();
        let mut h = systems.advance(&zero, Some(&impulse)).unwrap();
        let mut taps = Vec::new();
        for _ in 0..len {
            taps.push(over_pairs(&c, &h).unwrap());
            let next = systems.advance(&h, None).unwrap();
            // The graph of all steps would be too deep for the stack of a test.
            h = Complex { re: next.re.detach(), im: next.im.detach() };
        }
        let largest = |x: &Tensor| x.abs().unwrap().max_all().unwrap().to_scalar::<f64>().unwrap();
        largest(&(Tensor::cat(&taps, 1).unwrap() - &kernel).unwrap()) / largest(&kernel)
    }

    #[test]
    fn the_kernel_is_the_response_of_the_recurrence() {
        for (length, states) in [(1, &[1, 3, 64, 256][..]), (17, &[2, 64, 256]), (1000, &[2, 64]), (1024, &[256])] {
            for n in states {
                let apart = apart(&s4("legs", *n, length), length);
                assert!(apart < 1e-10, "n = {n}, L = {length}: {apart:e}");
            }
        }
        for start in ["legt", "fourier", "random"] {
            for (n, length) in [(2, 1), (16, 17), (64, 1000)] {
                let apart = apart(&s4(start, n, length), length);
                assert!(apart < 1e-10, "{start}, n = {n}, L = {length}: {apart:e}");
            }
        }
    }

    #[test]
    fn shorter_and_longer_inputs_read_the_same_kernel() {
        let s4 = s4("legs", 16, 20);
        for len in [3, 20, 21, 50, 90] {
            let apart = apart(&s4, len);
            assert!(apart < 1e-11, "{len}: {apart:e}");
        }
    }
}
