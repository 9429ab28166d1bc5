//! Performer (Choromanski et al. 2020): softmax attention estimated without bias by positive random features, which makes it
//! linear attention.

use super::linear_attention::{FeatureMap, LinearAttention};
use super::{attention, Core, Entry, Family, Growth, MixerOption, MixerSpec, ReleasedBlock};
use crate::nn::Params;
use crate::ops::{self, rng::Rng};
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "performer",
    equation: "o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), φ(x) = e^(Ωx - |x|²/2)/√M",
    cite: "Choromanski et al. 2020",
    variants: &["reference"],
    dsf: "N = d M",
    heads: true,
    expands: true,
    widens: false,
    rotary: true,
    bidirectional: true,
    family: Family::LinearAttention,
    released: ReleasedBlock::ATTENTION,
    options: &[MixerOption {
        name: "n_features",
        help: "random features of a head, M: `auto` is m ln m as published and m at least, up to 65536",
        default: |_| "auto",
        accepts: |v| v == "auto" || v.parse::<usize>().is_ok_and(|m| (1..=1 << 16).contains(&m)),
        variants: &[],
        implied: false,
    }],
    growth: Growth::No("its features are random in all m directions of a query: those of n' estimate otherwise than those of n"),
    stem: "performer_attention",
    work: |spec| {
        let work = attention::work(spec, Core::ChunkedScan);
        Some(work.over_features(features(spec), 2 * spec.n_heads))
    },
    build: |spec, params| {
        let map = |_: &_| RandomFeatures::new(spec, params);
        Ok(Box::new(LinearAttention::new(spec, params, map)?))
    },
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

impl FeatureMap for RandomFeatures {
    fn width(&self) -> usize {
        self.omega.dims()[2]
    }

    /// e^{Ωx - |x|²/2} / √M of x / m^{1/4}.
    fn features(&self, x: &Tensor) -> Result<Tensor> {
        let (heads, m, count) = self.omega.dims3()?;
        let (batch, rows, _) = x.dims3()?;
        let x = (x * (m as f64).powf(-0.25))?;
        let x = x.reshape((batch * rows, heads, m))?.transpose(0, 1)?;
        let half = (x.sqr()?.sum_keepdim(D::Minus1)? * 0.5)?;
        let projected = ops::matmul(&x, &self.omega.to_dtype(x.dtype())?)?;
        let features = projected.broadcast_sub(&half)?.exp()?;
        let features = (features * (count as f64).powf(-0.5))?;
        features
            .transpose(0, 1)?
            .contiguous()?
            .reshape((batch, rows, heads * count))
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
