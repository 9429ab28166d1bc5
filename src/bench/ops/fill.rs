//! The numbers that ops are given.

use super::Input;
use crate::error::Result;
use crate::rng::Stream;
use candle_core::{Device, Tensor};

/// What an input is filled with.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) enum Fill {
    /// Normal numbers of this standard deviation.
    Normal(f64),
    /// Uniform numbers between two bounds.
    Uniform(f64, f64),
    /// -1, -2, .. along the last axis, the decays of S6.
    Harmonics,
    /// Class numbers below this, which no gradient reaches.
    Classes(usize),
    /// Lengths of sequences, evenly up to this, which no gradient reaches.
    Lengths(usize),
}

/// Input `index` of an op on the CPU: f32, and u32 for class numbers and lengths. After `distinct` random numbers
/// they start again, since drawing takes longer than what is timed.
pub(in crate::bench) fn filled(index: usize, input: &Input, distinct: usize) -> Result<Tensor> {
    let Input { dims, fill, .. } = input;
    let count: usize = dims.iter().product();
    let last = dims.last().copied().unwrap_or(1);
    let mut stream = Stream::new(0, "bench", index as u64);
    let mut draw = |fill: &mut dyn FnMut(&mut Stream) -> f64| {
        let drawn: Vec<f32> = (0..count.min(distinct))
            .map(|_| fill(&mut stream) as f32)
            .collect();
        drawn.iter().copied().cycle().take(count).collect()
    };
    let whole = |value: &dyn Fn(usize) -> usize| {
        let values: Vec<u32> = (0..count).map(|i| value(i) as u32).collect();
        Ok(Tensor::from_vec(values, dims.as_slice(), &Device::Cpu)?)
    };
    let values: Vec<f32> = match *fill {
        Fill::Normal(std) => draw(&mut |stream| std * stream.normals().0),
        Fill::Uniform(low, high) => draw(&mut |stream| low + (high - low) * stream.uniform()),
        Fill::Harmonics => (0..count).map(|i| -((i % last + 1) as f32)).collect(),
        Fill::Classes(classes) => return whole(&|i| i % classes),
        Fill::Lengths(longest) => return whole(&|i| (longest * (i + 1)).div_ceil(count)),
    };
    Ok(Tensor::from_vec(values, dims.as_slice(), &Device::Cpu)?)
}
