//! The ops that can be timed and checked, the inputs they are given, and the shapes: adding one is a row of [`table`].

mod table;

use super::floors::{Passes, Shape, Work};
use crate::error::{self, Result};
use crate::ops::rng::Rng;
use candle_core::{DType, Device, Tensor, Var};

/// Every op, in the order of the listing.
pub(super) fn all() -> impl Iterator<Item = &'static Op> {
    table::OPS.iter()
}

/// The op called `name`, or an error that lists them.
pub(super) fn find(name: &str) -> Result<&'static Op> {
    let found = all().find(|op| op.name == name);
    found.ok_or_else(|| error::unknown("op", name, all().map(|op| op.name)))
}

/// What is timed of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
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
pub(super) struct Op {
    /// As typed.
    pub name: &'static str,
    /// Its inputs, and what is counted as an element.
    pub about: &'static str,
    /// Whether most of a step is made of it, so that it is timed before the others.
    pub early: bool,
    /// Whether n matters.
    pub states: bool,
    /// Whether heads matter.
    pub heads: bool,
    pub inputs: fn(&Shape) -> Vec<Input>,
    /// The shapes at which it is timed.
    pub sizes: Sizes,
    /// The call; it is also told the type of activations, which inputs that are all parameters do not show.
    pub run: fn(&[Tensor], DType) -> candle_core::Result<Tensor>,
    pub elements: fn(Shape) -> f64,
    pub floor: fn(Shape) -> Passes,
    /// What keeps it from half of the rates of a CPU core where it does not reach that.
    pub below: &'static str,
}

impl Op {
    /// `shape` with one head where the op has none.
    pub fn heads_of(&self, shape: Shape) -> Shape {
        let heads = if self.heads { shape.heads } else { 1 };
        Shape { heads, ..shape }
    }

    /// `shape` as B,L,d or, where states matter, B,L,d,n.
    pub fn sizes_of(&self, shape: &Shape) -> String {
        let rows = format!("{},{},{}", shape.batch, shape.len, shape.width);
        match self.states {
            true => format!("{rows},{}", shape.states),
            false => rows,
        }
    }

    pub fn elements(&self, shape: &Shape) -> f64 {
        (self.elements)(*shape)
    }

    pub fn floor(&self, shape: &Shape, pass: Pass) -> Work {
        let passes = (self.floor)(*shape);
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
pub(super) struct Drawn {
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
pub(super) struct Input {
    pub dims: Vec<usize>,
    fill: Fill,
    /// Whether it is a parameter of a model: f32 beside activations of 16 bits.
    parameter: bool,
}

/// An activation, which has the type that was asked for.
fn input(dims: impl Into<Vec<usize>>, fill: Fill) -> Input {
    Input {
        dims: dims.into(),
        fill,
        parameter: false,
    }
}

/// A parameter of a model.
fn parameter(dims: impl Into<Vec<usize>>, fill: Fill) -> Input {
    Input {
        parameter: true,
        ..input(dims, fill)
    }
}

/// What an input is filled with.
#[derive(Clone, Copy, Debug)]
enum Fill {
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
        let mut rng = Rng::new(0, "bench", index);
        let mut random = |draw: &dyn Fn(&mut Rng) -> f64| -> Vec<f32> {
            let drawn = (0..count.min(distinct)).map(|_| draw(&mut rng) as f32);
            let drawn: Vec<f32> = drawn.collect();
            drawn.iter().copied().cycle().take(count).collect()
        };
        let whole = |value: &dyn Fn(usize) -> usize| -> Result<Tensor> {
            let values: Vec<u32> = (0..count).map(|i| value(i) as u32).collect();
            Ok(Tensor::from_vec(values, dims, &Device::Cpu)?)
        };
        let values = match self.fill {
            Fill::Normal(std) => random(&|rng| std * rng.normals().0),
            Fill::Uniform(low, high) => random(&|rng| low + (high - low) * rng.uniform()),
            Fill::Harmonics => (0..count).map(|i| -((i % last + 1) as f32)).collect(),
            Fill::Classes(classes) => return whole(&|i| i % classes),
            Fill::Lengths(longest) => return whole(&|i| (longest * (i + 1)).div_ceil(count)),
        };
        Ok(Tensor::from_vec(values, dims, &Device::Cpu)?)
    }
}

/// A list of shapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sizes {
    /// Sequence ops with states: short and long sequences, few and many states.
    States,
    /// The same and, on a CPU, shapes of few and of very many states: a decay for every state costs most.
    DecayedStates,
    /// Sequence ops without states.
    Sequences,
    /// Ops on rows of d.
    Rows,
    /// Linear maps from d features to d.
    Square,
    /// Linear maps from d features to 4 d and back.
    Wide,
    /// Elementwise functions.
    Numbers,
    /// Every token of a task, from a vocabulary.
    Tokens,
    /// The labelled rows of a task, to a vocabulary.
    Labels,
}

/// The paper's tasks: batch, length, width, states.
pub(super) const TASKS: [[usize; 4]; 4] = [
    [512, 64, 64, 64],
    [256, 128, 128, 128],
    [128, 256, 256, 256],
    [64, 512, 512, 256],
];

/// The key-value pairs of those tasks, as many as a sequence has labels.
pub(super) const PAIRS: [usize; 4] = [4, 8, 16, 64];

/// Their vocabulary.
pub(super) const VOCABULARY: usize = 8192;

/// A typical layer of Mamba.
pub(super) const MAMBA: [usize; 4] = [8, 2048, 1536, 16];

/// Many states.
const MANY: [usize; 4] = [64, 512, 512, 1024];
/// Long sequences in a batch.
const LISTOPS: [usize; 4] = [32, 2048, 192, 64];
/// One very long sequence.
const LONG: [usize; 4] = [1, 16384, 512, 64];

impl Sizes {
    pub fn on_gpu(self) -> Vec<Shape> {
        let tasks = |more: &[[usize; 4]]| [TASKS.as_slice(), more].concat();
        let rows = || tasks(&[MAMBA]).into_iter();
        let sizes = match self {
            Self::States | Self::DecayedStates => tasks(&[MANY, LISTOPS, LONG, MAMBA]),
            Self::Sequences => tasks(&[LISTOPS, LONG, MAMBA]),
            Self::Rows => tasks(&[MAMBA]),
            Self::Square => rows().map(|[b, l, d, _]| [b, l, d, d]).collect(),
            Self::Wide => rows().map(|[b, l, d, _]| [b, l, d, 4 * d]).collect(),
            Self::Numbers => vec![TASKS[0], TASKS[3]],
            Self::Tokens => TASKS.map(|[b, l, d, _]| [b, l, d, VOCABULARY]).to_vec(),
            Self::Labels => {
                let labelled = TASKS.into_iter().zip(PAIRS);
                let sizes = labelled.map(|([b, _, d, _], k)| [b, k, d, VOCABULARY]);
                sizes.collect()
            }
        };
        sizes.into_iter().map(Shape::from).collect()
    }

    /// The shape at which a device is checked once more: heads of 8, sequences of 4,096, Pythia's vocabulary, more than
    /// 2^31 states or logits.
    pub fn large(self) -> Shape {
        let of = |[batch, len, width, states]: [usize; 4]| Shape {
            batch,
            len,
            width,
            states,
            heads: 8,
        };
        of(match self {
            Self::States | Self::DecayedStates => [4, 4096, 512, 512],
            Self::Sequences | Self::Rows | Self::Numbers => [4, 4096, 1024, 1],
            Self::Square => [4, 4096, 512, 512],
            Self::Wide => [4, 4096, 512, 2048],
            Self::Tokens | Self::Labels => [16, 4096, 64, 50_304],
        })
    }

    pub fn on_cpu(self) -> Vec<Shape> {
        let rows = |states| [64, 512, 128, states];
        let sizes = match self {
            Self::States => vec![[8, 512, 128, 64]],
            Self::DecayedStates => vec![[8, 512, 128, 64], [32, 64, 64, 64], [2, 512, 128, 1024]],
            Self::Sequences | Self::Rows | Self::Numbers => vec![rows(1)],
            Self::Square => vec![rows(128)],
            Self::Wide => vec![rows(512)],
            Self::Tokens => vec![rows(VOCABULARY)],
            Self::Labels => vec![[512, 4, 64, VOCABULARY]],
        };
        sizes.into_iter().map(Shape::from).collect()
    }
}
