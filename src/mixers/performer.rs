//! Performer (Choromanski et al. 2020): softmax attention estimated without bias by positive random features, which makes it
//! linear attention. Its features are exponentials that long queries and keys drive out of the numbers that there are: their
//! logarithms are kept, and exponents taken from the largest.

use super::attention::Projections;
use super::log_features::LogFeatures;
use super::rotary::Positions;
use super::{
    attention, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, Recurrent,
    ReleasedBlock, State,
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
    expands: true,
    rotary: true,
    bidirectional: true,
    released: ReleasedBlock::ATTENTION,
    options: &[MixerOption {
        name: "n_features",
        help: "random features of a head, M: `auto` is m ln m as published and m at least, up to 65536",
        default: |_| "auto",
        accepts: |v| v == "auto" || v.parse::<usize>().is_ok_and(|m| (1..=1 << 16).contains(&m)),
        ..MixerOption::DEFAULT
    }],
    growth: Growth::No("its features are random in all m directions of a query: those of n' estimate otherwise than those of n"),
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

/// M.
fn features(spec: &MixerSpec) -> usize {
    let m = spec.d_state / spec.n_heads;
    let given = spec
        .option("n_features")
        .and_then(|features| features.parse().ok());
    given.unwrap_or_else(|| m.max((m as f64 * (m as f64).ln()) as usize))
}

struct RandomFeatures {
    /// Ωᵀ of every head, `(heads, m, M)`.
    omega: Tensor,
}

impl RandomFeatures {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (heads, m, count) = (spec.n_heads, spec.d_state / spec.n_heads, features(spec));
        let draw = |mut rng: Rng| {
            (0..heads)
                .flat_map(|_| orthogonal(m, count, &mut rng))
                .collect()
        };
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

/// `count` rows of m numbers each, every row normal by itself; those of each block of m are orthogonal, which makes the estimate
/// less noisy.
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
            let along = dot(&direction, other) / dot(other, other);
            for (x, y) in direction.iter_mut().zip(other) {
                *x -= along * y;
            }
        }
        let length = normal(rng);
        let scale = (dot(&length, &length) / dot(&direction, &direction)).sqrt();
        rows.push(direction.iter().map(|x| x * scale).collect());
    }
    rows.concat()
}

impl RandomFeatures {
    /// Ωx - |x|²/2 of x / m^{1/4}, of x `(batch, rows, heads · m)`: `(batch, rows, heads, M)`.
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

    /// The features of such exponents, `(batch, rows, heads · M)`.
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
    /// The logarithms of the features of queries and keys, in the type `dtype`: what rounding adds to an exponent, it multiplies
    /// the feature by.
    fn logs(&self, [q, k]: [&Tensor; 2], dtype: DType) -> Result<LogFeatures> {
        let of = |x: &Tensor| self.map.exponents(&x.to_dtype(dtype)?);
        Ok(LogFeatures {
            q: of(q)?,
            k: of(k)?,
        })
    }

    /// The type of the weights.
    fn wide(&self) -> DType {
        self.map.omega.dtype()
    }
}

impl Mixer for Performer {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let p = &self.projections;
        let [q, k, v] = p.maps(x, &Positions::Sequence(cx))?;
        let logs = self.logs([&q, &k], x.dtype())?;
        if logs.are_moderate(cx)? {
            let [q, k] = [&logs.q, &logs.k].map(RandomFeatures::features);
            return p.output(&p.attend([&q?, &k?, &v], Weights::LinearNormalised, cx)?);
        }
        let wide = self.wide();
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
        let (p, cx) = (&self.projections, Cx::eval());
        let [q, k, _] = p.maps(&u.unsqueeze(0)?, &Positions::Sequence(&cx))?;
        let logs = self.logs([&q, &k], u.dtype())?;
        let [q, k] = [&logs.q, &logs.k].map(RandomFeatures::features);
        let (q, k) = (p.split(&q?)?, p.split(&k?)?);
        let eta = (&q * k.cumsum(2)?)?.sum(3)?.squeeze(0)?;
        p.separable(&q, &k, &eta).map(Some)
    }
}

impl Recurrent for Performer {
    fn init(&self, batch: usize) -> Result<State> {
        LogFeatures::start(&self.projections, batch, self.map.omega.dims()[2])
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let (p, wide) = (&self.projections, self.wide());
        let [q, k, v] = p.maps(&x_t.unsqueeze(1)?, &Positions::Token(at))?;
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
        let dot =
            |a: usize, b: usize| -> f64 { rows[a].iter().zip(rows[b]).map(|(a, b)| a * b).sum() };
        assert!(dot(0, 1).abs() < 1e-12 && dot(3, 15).abs() < 1e-12);
        assert!(dot(15, 16).abs() > 1e-12, "blocks are independent");
        let mean = (0..count).map(|i| dot(i, i)).sum::<f64>() / count as f64;
        assert!((mean - m as f64).abs() < 0.5, "{mean}");
    }
}
