//! What a row of the table says about an op, and the inputs it is given.

use super::sizes::{Shape, Sizes};
use crate::bench::floors::{Extent, Passes, Work};
use crate::error::Result;
use crate::ops::rng::Stream;
use candle_core::{DType, Device, Tensor, Var};

/// What is timed of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Pass {
    /// The forward pass alone, without gradient tracking.
    Forward,
    /// Forward and backward.
    Both,
}

impl Pass {
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Both => "both",
        }
    }
}

/// A row of the table: an op, the inputs it is given, and its arithmetic.
pub(in crate::bench) struct Op {
    /// As typed.
    pub name: &'static str,
    /// Its inputs, and what is counted as an element.
    pub about: &'static str,
    /// Whether n matters.
    pub states: bool,
    /// Whether heads matter.
    pub heads: bool,
    pub inputs: fn(&Shape) -> Vec<Input>,
    /// The shapes at which it is timed.
    pub sizes: Sizes,
    /// The call; it is also told the type of activations, which inputs that are all parameters do not show.
    pub run: fn(&[Tensor], DType) -> candle_core::Result<Tensor>,
    pub elements: fn(Extent) -> f64,
    pub floor: fn(Extent) -> Passes,
}

impl Op {
    /// `shape` with one head where the op has none.
    pub fn heads_of(&self, shape: Shape) -> Shape {
        let heads = if self.heads { shape.heads } else { 1 };
        Shape { heads, ..shape }
    }

    /// `shape` as B,L,d or, where states matter, B,L,d,n.
    pub fn sizes_of(&self, shape: &Shape) -> String {
        let (batch, len, width, states) = (shape.batch, shape.len, shape.width, shape.states);
        match self.states {
            true => format!("{batch},{len},{width},{states}"),
            false => format!("{batch},{len},{width}"),
        }
    }

    pub fn elements(&self, shape: &Shape) -> f64 {
        (self.elements)(shape.extent())
    }

    pub fn floor(&self, shape: &Shape, pass: Pass) -> Work {
        let passes = (self.floor)(shape.extent());
        match pass {
            Pass::Forward => passes.forward,
            Pass::Both => passes.both,
        }
    }

    /// Inputs for activations of type `io`. After `distinct` random numbers they repeat, since drawing
    /// takes longer than what is timed.
    pub fn draw(&self, shape: &Shape, io: DType, distinct: usize) -> Result<Vec<Drawn>> {
        let inputs = (self.inputs)(shape);
        let draw = |(index, input): (usize, &Input)| {
            let values = input.draw(index as u64, distinct)?;
            let values = match (io, input.parameter) {
                (DType::BF16, false) if values.dtype().is_float() => {
                    values.to_dtype(io)?.to_dtype(DType::F32)?
                }
                _ => values,
            };
            let parameter = input.parameter;
            Ok(Drawn { values, parameter })
        };
        inputs.iter().enumerate().map(draw).collect()
    }
}

/// An input on the CPU, in f32 rounded to the type of activations, or u32.
pub(in crate::bench) struct Drawn {
    pub values: Tensor,
    parameter: bool,
}

impl Drawn {
    /// The input on `device` for activations of type `io`. Floats are variables where `tracked`.
    pub fn on(&self, io: DType, device: &Device, tracked: bool) -> Result<Tensor> {
        if !self.values.dtype().is_float() {
            return Ok(self.values.to_device(device)?);
        }
        let dtype = match io {
            DType::BF16 if self.parameter => DType::F32,
            io => io,
        };
        let values = self.values.to_dtype(dtype)?.to_device(device)?;
        Ok(match tracked {
            true => Var::from_tensor(&values)?.into_inner(),
            false => values,
        })
    }
}

/// An input's shape and what it is filled with.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Input {
    pub dims: Vec<usize>,
    fill: Fill,
    /// Whether it is a parameter of a model: f32 beside activations of 16 bits.
    parameter: bool,
}

/// An activation, which has the type that was asked for.
pub(super) fn input(dims: impl Into<Vec<usize>>, fill: Fill) -> Input {
    Input {
        dims: dims.into(),
        fill,
        parameter: false,
    }
}

/// A parameter of a model.
pub(super) fn parameter(dims: impl Into<Vec<usize>>, fill: Fill) -> Input {
    Input {
        parameter: true,
        ..input(dims, fill)
    }
}

/// What an input is filled with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fill {
    /// Normal numbers of this standard deviation.
    Normal(f64),
    /// Uniform numbers between two bounds.
    Uniform(f64, f64),
    /// -1, -2, .. along the last axis, the decays of S6.
    Harmonics,
    /// Class numbers below this; they have no gradient.
    Classes(usize),
    /// Lengths of sequences, evenly up to this; they have no gradient.
    Lengths(usize),
}

impl Input {
    fn draw(&self, index: u64, distinct: usize) -> Result<Tensor> {
        let dims = self.dims.as_slice();
        let count: usize = dims.iter().product();
        let last = dims.last().copied().unwrap_or(1);
        let mut stream = Stream::new(0, "bench", index);
        let mut random = |draw: &dyn Fn(&mut Stream) -> f64| -> Vec<f32> {
            let drawn = (0..count.min(distinct)).map(|_| draw(&mut stream) as f32);
            let drawn: Vec<f32> = drawn.collect();
            drawn.iter().copied().cycle().take(count).collect()
        };
        let whole = |value: &dyn Fn(usize) -> usize| -> Result<Tensor> {
            let values: Vec<u32> = (0..count).map(|i| value(i) as u32).collect();
            Ok(Tensor::from_vec(values, dims, &Device::Cpu)?)
        };
        let values = match self.fill {
            Fill::Normal(std) => random(&|stream| std * stream.normals().0),
            Fill::Uniform(low, high) => random(&|stream| low + (high - low) * stream.uniform()),
            Fill::Harmonics => (0..count).map(|i| -((i % last + 1) as f32)).collect(),
            Fill::Classes(classes) => return whole(&|i| i % classes),
            Fill::Lengths(longest) => return whole(&|i| (longest * (i + 1)).div_ceil(count)),
        };
        Ok(Tensor::from_vec(values, dims, &Device::Cpu)?)
    }
}
