//! Distance between the results of two implementations of an op, and its limits.

use candle_core::{bail, DType, Device, Result, Tensor};

/// Smallest number of elements of a row: with fewer, a row may happen to be close to zero.
const ROW: usize = 16;

/// Rows shorter than this fraction of the longest row are measured relative to that fraction.
const SHORT: f64 = 0.25;

/// If all rows are shorter than this they count as zeros, left over by rounding, and are measured relative to 1.
const FAINT: f64 = 1e-2;

/// Difference between a result and the expected one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Largest relative error of a row: the norm of the row's error divided by the norm of the row. A row is the last
    /// axis, or the fewest last axes that have 16 numbers together.
    pub of_rows: f64,
    /// Relative error of the scale: the component of the error along the expected result, relative to that result.
    /// Rounding errors of many numbers cancel here, while those of a wrong factor add up. 0 for fewer than 16 numbers.
    pub of_scale: f64,
}

impl Distance {
    /// Returns the distance from `expected` to `got`; NaN if any number is NaN. Fails if the shapes differ.
    pub fn new(got: &Tensor, expected: &Tensor) -> Result<Self> {
        if got.dims() != expected.dims() {
            let (got, expected) = (got.dims(), expected.dims());
            bail!("a result of shape {got:?} where {expected:?} was expected");
        }
        let mut width = 1;
        for &dim in expected.dims().iter().rev() {
            if width < ROW {
                width *= dim.max(1);
            }
        }
        let [got, expected] = [numbers(got)?, numbers(expected)?];
        let errors: Vec<f64> = got.iter().zip(&expected).map(|(x, y)| x - y).collect();
        let longest = largest(expected.chunks(width).map(norm));
        let faint = longest < FAINT;
        let rows = errors.chunks(width).zip(expected.chunks(width));
        let of_rows = largest(rows.map(|(error, row)| match faint {
            true => norm(error),
            false => norm(error) / norm(row).max(SHORT * longest),
        }));
        let of_scale = match faint || expected.len() < ROW {
            true => 0.0,
            false => dot(&errors, &expected).abs() / dot(&expected, &expected),
        };
        Ok(Self { of_rows, of_scale })
    }

    /// Returns the limit for a correct implementation, for activations of type `io`. An error of one per cent exceeds
    /// it.
    pub fn limit(io: DType) -> Self {
        let (of_rows, of_scale) = match io {
            DType::F64 => (1e-11, 1e-11),
            // Each number is rounded by up to 1/256, once or several times.
            DType::BF16 | DType::F16 => (1.2e-2, 3e-3),
            _ => (2e-5, 5e-6),
        };
        Self { of_rows, of_scale }
    }

    /// Returns the one of the two errors that is closer to its limit, or further beyond it, and that limit.
    pub fn worse(&self, limit: Self) -> (f64, f64) {
        let rows = (self.of_rows, limit.of_rows);
        let scale = (self.of_scale, limit.of_scale);
        match scale.0 / scale.1 > rows.0 / rows.1 || scale.0.is_nan() {
            true => scale,
            false => rows,
        }
    }
}

/// Returns all numbers of a tensor in f64.
pub(crate) fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    let x = x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?;
    x.flatten_all()?.to_vec1()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

/// Returns the largest number, or NaN if any is NaN, which `f64::max` would drop.
fn largest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |most, x| if x <= most { most } else { x })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::rng::Rng;

    fn random(rows: usize) -> Vec<f64> {
        let mut rng = Rng::new(0, "distance", 0);
        (0..rows * 20).map(|_| rng.normals().0).collect()
    }

    fn between(got: &[f64], expected: &[f64]) -> Distance {
        let tensor = |x: &[f64]| Tensor::from_slice(x, (x.len() / 20, 20), &Device::Cpu).unwrap();
        Distance::new(&tensor(got), &tensor(expected)).unwrap()
    }

    fn passes(got: &[f64], expected: &[f64], io: DType) -> bool {
        let (apart, limit) = between(got, expected).worse(Distance::limit(io));
        apart <= limit
    }

    #[test]
    fn rounding_passes_and_one_per_cent_does_not() {
        let exact = random(50);
        let in_16_bits = |x: &f64| half::bf16::from_f64(*x).to_f64();
        let rounded: Vec<f64> = exact.iter().map(in_16_bits).collect();
        assert!(passes(&rounded, &exact, DType::BF16));
        assert!(!passes(&rounded, &exact, DType::F32));
        let longer: Vec<f64> = rounded.iter().map(|x| 1.01 * x).collect();
        assert!(!passes(&longer, &exact, DType::BF16));
        let rounded: Vec<f64> = exact.iter().map(|&x| x as f32 as f64).collect();
        assert!(passes(&rounded, &exact, DType::F32));
    }

    /// A wrong row among rows that are a thousand times longer.
    #[test]
    fn a_wrong_row_does_not_hide_behind_a_long_one() {
        let exact = random(50);
        let mut got = exact.clone();
        got[20..40].iter_mut().for_each(|x| *x *= 1.02);
        assert!(!passes(&got, &exact, DType::BF16));
    }

    #[test]
    fn what_rounding_leaves_of_zeros_is_measured_by_one() {
        let noise: Vec<f64> = random(3).iter().map(|x| 1e-6 * x).collect();
        assert!(passes(&noise, &[0.0; 60], DType::F32));
        assert!(!passes(&random(3), &[0.0; 60], DType::F32));
    }

    #[test]
    fn nan_is_never_within_a_limit() {
        let mut got = random(3);
        got[7] = f64::NAN;
        assert!(!passes(&got, &random(3), DType::BF16));
        assert!(!passes(&random(3), &got, DType::BF16));
    }
}
