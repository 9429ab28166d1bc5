//! Performer (Choromanski et al. 2020): linear attention with positive random features (FAVOR+), an unbiased estimate
//! of softmax attention,
//!
//! φ(x) = e^(Ωx - |x|²/2) / √M,  E[φ(q)·φ(k)] = e^(q·k)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | Ω | random projection, rows orthogonal within blocks of m | `(heads, M, m)` |
//! | M | random features of a head | option `n_features` |
//!
//! The features of long queries and keys overflow or underflow, so that the code keeps their logarithms and subtracts
//! the largest one.

use super::attention::Projections;
use super::log_features::LogFeatures;
use super::rotary::RotaryPositions;
use super::{
    attention, in_range, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, Recurrent, ReleasedBlock, State,
    StateNormPlace,
};
use crate::ltv::Ltv;
use crate::nn::{Cx, Params};
use crate::ops::{self, rng::Rng, Weights};
use candle_core::{DType, Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "performer",
    equation: "o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), φ(x) = e^(Ωx - |x|²/2)/√M",
    cite: "Choromanski et al. 2020",
    variants: &["reference"],
    dsf: "N = d M",
    heads: true,
    multi_head: true,
    expands: true,
    rotary: true,
    bidirectional: true,
    released: ReleasedBlock::ATTENTION,
    options: &[MixerOption {
        name: "n_features",
        help: "random features of a head, M: `auto` is m ln m as published, and at least m; up to 65536",
        default: |_| "auto",
        accepts: |v| v == "auto" || in_range(v, 1..=1 << 16),
        ..MixerOption::DEFAULT
    }],
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::No("its random features depend on all m elements of a query, so that they change with n"),
    stem: "performer_attention",
    work: |spec| {
        let work = attention::work(spec, Core::ChunkedScan);
        Some(work.over_features(features(spec), 2 * spec.n_heads))
    },
    build: |spec, params| {
        Ok(Box::new(Performer {
            projections: Projections::new(spec, params)?,
            map: RandomFeatures::new(spec, params)?,
        }))
    },
    ..Entry::of(Family::LinearAttention)
};

/// Number of random features of a head, M.
fn features(spec: &MixerSpec) -> usize {
    let m = spec.d_state / spec.n_heads;
    spec.parsed("n_features").unwrap_or_else(|| m.max((m as f64 * (m as f64).ln()) as usize))
}

struct RandomFeatures {
    /// Ωᵀ `(heads, m, M)`.
    omega: Tensor,
}

impl RandomFeatures {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (heads, m, count) = (spec.n_heads, spec.d_state / spec.n_heads, features(spec));
        let draw = |mut rng: Rng| (0..heads).flat_map(|_| orthogonal(m, count, &mut rng)).collect();
        let omega = params.constant("omega", (heads, count, m), draw)?;
        let omega = omega.transpose(1, 2)?;
        Ok(Self {
            omega: match params.has_values() {
                true => omega.contiguous()?,
                false => omega,
            },
        })
    }
}

/// `count` rows of m numbers, each normally distributed; the rows of a block of m are orthogonal, which reduces the
/// variance of the estimate.
fn orthogonal(m: usize, count: usize, rng: &mut Rng) -> Vec<f64> {
    let normal = |rng: &mut Rng| -> Vec<f64> {
        let pairs = (0..m.div_ceil(2)).flat_map(|_| <[f64; 2]>::from(rng.normals()));
        pairs.take(m).collect()
    };
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(count);
    for row in 0..count {
        let mut direction = normal(rng);
        for other in &rows[row / m * m..] {
            let projection = dot(&direction, other) / dot(other, other);
            for (x, y) in direction.iter_mut().zip(other) {
                *x -= projection * y;
            }
        }
        let length = normal(rng);
        let scale = (dot(&length, &length) / dot(&direction, &direction)).sqrt();
        rows.push(direction.iter().map(|x| x * scale).collect());
    }
    rows.concat()
}

impl RandomFeatures {
    /// Exponents Ωx - |x|²/2, `(batch, rows, heads, M)`, of x / m^{1/4} for x `(batch, rows, heads · m)`.
    fn exponents(&self, x: &Tensor) -> Result<Tensor> {
        let (heads, m, count) = self.omega.dims3()?;
        let (batch, rows, _) = x.dims3()?;
        let x = (x * (m as f64).powf(-0.25))?;
        let x = x.reshape((batch * rows, heads, m))?.transpose(0, 1)?;
        let half = (x.sqr()?.sum_keepdim(D::Minus1)? * 0.5)?;
        let projected = ops::matmul(&x, &self.omega.to_dtype(x.dtype())?)?;
        let exponents = projected.broadcast_sub(&half)?.transpose(0, 1)?;
        exponents.contiguous()?.reshape((batch, rows, heads, count))
    }

    /// φ `(batch, rows, heads · M)` for its exponents.
    fn features(exponents: &Tensor) -> Result<Tensor> {
        let count = exponents.dim(3)? as f64;
        (exponents.exp()? * count.powf(-0.5))?.flatten_from(2)
    }
}

struct Performer {
    projections: Projections,
    map: RandomFeatures,
}

impl Performer {
    /// ln φ of queries and keys in `dtype`: an absolute error of an exponent is a relative error of the feature.
    fn logs(&self, [q, k]: [&Tensor; 2], dtype: DType) -> Result<LogFeatures> {
        let log_phi = |x: &Tensor| self.map.exponents(&x.to_dtype(dtype)?);
        Ok(LogFeatures { q: log_phi(q)?, k: log_phi(k)? })
    }

    /// Dtype of the parameters.
    fn param_dtype(&self) -> DType {
        self.map.omega.dtype()
    }
}

impl Performer {
    /// Features of queries and keys, `(1, heads, seq_len, M)`, along u `(seq_len, d_model)`.
    fn features(&self, u: &Tensor) -> Result<[Tensor; 2]> {
        let (p, cx) = (&self.projections, Cx::eval());
        let [q, k, _] = p.qkv(&u.unsqueeze(0)?, &RotaryPositions::Sequence(&cx))?;
        let logs = self.logs([&q, &k], u.dtype())?;
        let [q, k] = [&logs.q, &logs.k].map(RandomFeatures::features);
        Ok([p.split(&q?)?, p.split(&k?)?])
    }
}

impl Mixer for Performer {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let p = &self.projections;
        let [q, k, v] = p.qkv(x, &RotaryPositions::Sequence(cx))?;
        let logs = self.logs([&q, &k], x.dtype())?;
        if logs.are_moderate(cx)? {
            let [q, k] = [&logs.q, &logs.k].map(RandomFeatures::features);
            return p.output(&p.attend([&q?, &k?, &v], Weights::LinearNormalised, cx)?);
        }
        let wide = self.param_dtype();
        let logs = match x.dtype() == wide {
            true => logs,
            false => self.logs([&q, &k], wide)?,
        };
        let o = logs.attend(p, &v.to_dtype(wide)?, cx)?;
        p.output(&o.to_dtype(x.dtype())?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        LogFeatures::state_size(&self.projections, self.map.omega.dims()[2])
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let [q, k] = self.features(u)?;
        let eta = (&q * k.cumsum(2)?)?.sum(3)?.squeeze(0)?;
        self.projections.separable(&q, &k, &eta).map(Some)
    }

    fn ltv_of_both_sides(&self, u: &Tensor) -> Result<Option<[Ltv; 2]>> {
        let [q, k] = self.features(u)?;
        let eta = q.broadcast_mul(&k.sum_keepdim(2)?)?.sum(3)?.squeeze(0)?;
        self.projections.separable_on_both_sides(&q, &k, &eta).map(Some)
    }
}

impl Recurrent for Performer {
    fn init(&self, batch: usize) -> Result<State> {
        LogFeatures::init(&self.projections, batch, self.map.omega.dims()[2])
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let (p, wide) = (&self.projections, self.param_dtype());
        let [q, k, v] = p.qkv(&x_t.unsqueeze(1)?, &RotaryPositions::Token(at))?;
        let logs = self.logs([&q, &k], wide)?;
        let o = logs.step(&v.to_dtype(wide)?, state)?;
        p.output(&o.to_dtype(x_t.dtype())?)?.squeeze(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_block_are_orthogonal_and_as_long_as_normal_ones() {
        let (m, count) = (16, 4000);
        let omega = orthogonal(m, count, &mut Rng::new(1, "test", 0));
        let rows: Vec<&[f64]> = omega.chunks(m).collect();
        let dot = |a: usize, b: usize| -> f64 { rows[a].iter().zip(rows[b]).map(|(a, b)| a * b).sum() };
        assert!(dot(0, 1).abs() < 1e-12 && dot(3, 15).abs() < 1e-12);
        assert!(dot(15, 16).abs() > 1e-12, "blocks are independent");
        let mean = (0..count).map(|i| dot(i, i)).sum::<f64>() / count as f64;
        assert!((mean - m as f64).abs() < 0.5, "{mean}");
    }
}
