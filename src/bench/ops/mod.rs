//! Ops that can be timed and checked, with their inputs and shapes. A new op is a row of [`table`].

mod table;

use super::floors::{OpShape, OpWork, Passes};
use crate::error::{self, Result};
use crate::ops::rng::Rng;
use candle_core::{DType, Device, Tensor, Var};

/// Returns every op, in the order of the listing.
pub(super) fn all() -> impl Iterator<Item = &'static Op> {
    table::OPS.iter()
}

/// Finds the op called `name`; the error lists all ops.
pub(super) fn find(name: &str) -> Result<&'static Op> {
    all().find(|op| op.name == name).ok_or_else(|| error::unknown("op", name, all().map(|op| op.name)))
}

/// Passes of an op that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimedPasses {
    /// The forward pass alone, without gradient tracking.
    Forward,
    /// Forward and backward.
    Both,
}

impl TimedPasses {
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Both => "both",
        }
    }
}

/// A row of the table: an op, its inputs, and its arithmetic.
pub(super) struct Op {
    /// Name on the command line.
    pub name: &'static str,
    /// Inputs, and the elements by which its throughput is counted.
    pub about: &'static str,
    /// Whether it takes a large part of a training step, so that it is timed before the others.
    pub early: bool,
    /// Whether the op has n states.
    pub states: bool,
    pub heads: bool,
    pub inputs: fn(&OpShape) -> Vec<InputSpec>,
    /// Shapes at which it is timed.
    pub sizes: ShapeSet,
    /// Calls the op; the type of activations is passed separately, since inputs may all be parameters.
    pub run: fn(&[Tensor], DType) -> candle_core::Result<Tensor>,
    pub elements: fn(OpShape) -> f64,
    pub floor: fn(OpShape) -> Passes,
    /// Reason why it may take more than twice its floor on a CPU core.
    pub below: &'static str,
}

impl Op {
    /// Returns `shape` with one head if the op has no heads.
    pub fn heads_of(&self, shape: OpShape) -> OpShape {
        let heads = if self.heads { shape.heads } else { 1 };
        OpShape { heads, ..shape }
    }

    /// Formats `shape` as B,L,d, or as B,L,d,n if the op has states.
    pub fn sizes_of(&self, shape: &OpShape) -> String {
        let rows = format!("{},{},{}", shape.batch, shape.len, shape.width);
        if self.states {
            format!("{rows},{}", shape.states)
        } else {
            rows
        }
    }

    pub fn floor(&self, shape: &OpShape, pass: TimedPasses) -> OpWork {
        let passes = (self.floor)(*shape);
        match pass {
            TimedPasses::Forward => passes.forward,
            TimedPasses::Both => passes.both,
        }
    }

    /// Draws inputs for activations of type `io`. Values repeat after `distinct` random numbers, since drawing takes
    /// longer than the op.
    pub fn draw(&self, shape: &OpShape, io: DType, distinct: usize) -> Result<Vec<DrawnInput>> {
        let inputs = (self.inputs)(shape);
        let draw = |(index, input): (usize, &InputSpec)| {
            let parameter = input.parameter;
            let mut values = input.draw(index as u64, distinct)?;
            if io == DType::BF16 && !parameter && values.dtype().is_float() {
                values = values.to_dtype(io)?.to_dtype(DType::F32)?;
            }
            Ok(DrawnInput { values, parameter })
        };
        inputs.iter().enumerate().map(draw).collect()
    }
}

/// An input on the CPU: f32, rounded to the type of activations, or u32.
pub(super) struct DrawnInput {
    pub values: Tensor,
    parameter: bool,
}

impl DrawnInput {
    /// Copies the input to `device` for activations of type `io`. Floats become variables if `tracked`.
    pub fn on(&self, io: DType, device: &Device, tracked: bool) -> Result<Tensor> {
        if !self.values.dtype().is_float() {
            return Ok(self.values.to_device(device)?);
        }
        let dtype = if io == DType::BF16 && self.parameter { DType::F32 } else { io };
        let values = self.values.to_dtype(dtype)?.to_device(device)?;
        Ok(if tracked { Var::from_tensor(&values)?.into_inner() } else { values })
    }
}

/// Shape and distribution of an input.
#[derive(Clone, Debug)]
pub(super) struct InputSpec {
    pub dims: Vec<usize>,
    fill: Fill,
    /// Whether it is a parameter of a model, which stays f32 when activations have 16 bits.
    parameter: bool,
}

/// Returns an activation, whose type is that of the benchmark.
fn input(dims: impl Into<Vec<usize>>, fill: Fill) -> InputSpec {
    InputSpec { dims: dims.into(), fill, parameter: false }
}

/// Returns a parameter of a model.
fn parameter(dims: impl Into<Vec<usize>>, fill: Fill) -> InputSpec {
    InputSpec { parameter: true, ..input(dims, fill) }
}

/// Distribution of an input's values.
#[derive(Clone, Copy, Debug)]
enum Fill {
    /// Normal numbers with this standard deviation.
    Normal(f64),
    /// Uniform numbers between two bounds.
    Uniform(f64, f64),
    /// -1, -2, .. along the last axis, the decays of S6.
    Harmonics,
    /// Class numbers below this; they have no gradient.
    Classes(usize),
    /// Sequence lengths, evenly spaced up to this; they have no gradient.
    Lengths(usize),
}

impl InputSpec {
    fn draw(&self, index: u64, distinct: usize) -> Result<Tensor> {
        let dims = self.dims.as_slice();
        let count: usize = dims.iter().product();
        let last = dims.last().copied().unwrap_or(1);
        let mut rng = Rng::new(0, "bench", index);
        let mut random = |draw: &dyn Fn(&mut Rng) -> f64| -> Vec<f32> {
            let drawn: Vec<f32> = (0..count.min(distinct)).map(|_| draw(&mut rng) as f32).collect();
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

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ShapeSet {
    /// Sequence ops with states: short and long sequences, few and many states.
    States,
    /// The shapes of `States`, and on a CPU also few and very many states, since a decay per state is expensive.
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
    /// Embedding of every token of a task.
    Tokens,
    /// Logits at the labelled rows of a task.
    Labels,
}

/// Sizes of the paper's tasks: batch, length, width, states.
pub(super) const TASKS: [[usize; 4]; 4] =
    [[512, 64, 64, 64], [256, 128, 128, 128], [128, 256, 256, 256], [64, 512, 512, 256]];

/// Number of key-value pairs in those tasks, which equals the number of labels per sequence.
pub(super) const PAIRS: [usize; 4] = [4, 8, 16, 64];

/// Vocabulary size of those tasks.
pub(super) const VOCABULARY: usize = 8192;

/// Sizes of a typical Mamba layer.
pub(super) const MAMBA: [usize; 4] = [8, 2048, 1536, 16];

/// Many states.
const MANY: [usize; 4] = [64, 512, 512, 1024];
/// Long sequences in a batch.
const LISTOPS: [usize; 4] = [32, 2048, 192, 64];
/// One very long sequence.
const LONG: [usize; 4] = [1, 16384, 512, 64];

impl ShapeSet {
    pub fn on_gpu(self) -> Vec<OpShape> {
        let more: &[[usize; 4]] = match self {
            Self::States | Self::DecayedStates => &[MANY, LISTOPS, LONG, MAMBA],
            Self::Sequences => &[LISTOPS, LONG, MAMBA],
            Self::Rows | Self::Square | Self::Wide => &[MAMBA],
            Self::Numbers => return [TASKS[0], TASKS[3]].map(OpShape::from).into(),
            Self::Tokens | Self::Labels => &[],
        };
        let sizes = TASKS.iter().chain(more).enumerate().map(|(task, &[b, l, d, n])| match self {
            Self::Square => [b, l, d, d],
            Self::Wide => [b, l, d, 4 * d],
            Self::Tokens => [b, l, d, VOCABULARY],
            Self::Labels => [b, PAIRS[task], d, VOCABULARY],
            _ => [b, l, d, n],
        });
        sizes.map(OpShape::from).collect()
    }

    /// Shape of an additional check of a device: heads of width 8, sequences of 4,096, Pythia's vocabulary, or more
    /// than 2^31 states or logits.
    pub fn large(self) -> OpShape {
        let sizes = match self {
            Self::States | Self::DecayedStates | Self::Square => [4, 4096, 512, 512],
            Self::Sequences | Self::Rows | Self::Numbers => [4, 4096, 1024, 1],
            Self::Wide => [4, 4096, 512, 2048],
            Self::Tokens | Self::Labels => [16, 4096, 64, 50_304],
        };
        OpShape { heads: 8, ..sizes.into() }
    }

    pub fn on_cpu(self) -> Vec<OpShape> {
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
        sizes.into_iter().map(OpShape::from).collect()
    }
}
