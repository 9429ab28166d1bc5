//! Position embeddings.

use candle_core::{Result, Tensor};
use std::ops::Range;

/// Upper bound of the ratio of the longest wavelength to the shortest, which is 2π.
const BASE: f64 = 10_000.0;

/// Sinusoidal embeddings (Vaswani et al. 2017, section 3.5) of `positions`, `(positions, d)`, with the dtype and device
/// of `like`: a sin(p / 10000^(2i/d)) in channel 2i and the cosine of the same in channel 2i + 1, with amplitude a.
pub fn sinusoids(positions: Range<usize>, d: usize, amplitude: f64, like: &Tensor) -> Result<Tensor> {
    let value = |at: usize, channel: usize| {
        let pair = (channel / 2 * 2) as f64 / d as f64;
        let angle = at as f64 * BASE.powf(-pair);
        let wave = if channel.is_multiple_of(2) { f64::sin } else { f64::cos };
        amplitude * wave(angle)
    };
    let rows = positions.clone();
    let values: Vec<f64> = rows.flat_map(|at| (0..d).map(move |channel| value(at, channel))).collect();
    Tensor::from_vec(values, (positions.len(), d), like.device())?.to_dtype(like.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    fn positions_are_encoded_by_sines_and_cosines() {
        let like = Tensor::zeros((), DType::F64, &Device::Cpu).unwrap();
        let found = sinusoids(2..4, 4, 0.5, &like).unwrap();
        let row = |p: f64| [p, p / 100.0].map(|angle| [0.5 * angle.sin(), 0.5 * angle.cos()]);
        let expected = [row(2.0).concat(), row(3.0).concat()].concat();
        let found = found.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let apart = found.iter().zip(expected).map(|(x, y)| (x - y).abs());
        assert!(apart.fold(0.0, f64::max) < 1e-15, "{found:?}");
    }
}
