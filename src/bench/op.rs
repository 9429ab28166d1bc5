//! One op alone: forward, and forward with backward.

use super::clock::{timed, Timing};
use super::export::save;
use super::floors::CORE;
use super::machine::{self, Machine};
use super::ops::{self, filled, Input, Op, Shape};
use crate::error::{Error, Result};
use crate::ops::taken as route;
use crate::store::peak_memory_bytes;
use candle_core::{DType, Tensor, Var};
use serde::Serialize;
use std::path::Path;

/// Calls before the clock starts.
const WARM_UP: usize = 2;

/// Most timed calls.
const MOST_REPEATS: usize = 10_000;

/// Largest size of an axis; what fits into memory is a narrower question.
const LARGEST: usize = 1 << 30;

/// Types that the fused ops compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Number {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

impl Number {
    fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
        }
    }
}

/// What is to be timed.
#[derive(Clone, Debug)]
pub struct OpRequest {
    /// An op's name.
    pub name: String,
    /// B, L, d and, where the op has states, n.
    pub shape: Vec<usize>,
    /// Heads s.
    pub heads: usize,
    /// Type of the numbers.
    pub number: Number,
    /// Timed calls of each kind.
    pub repeats: usize,
}

/// An op with its inputs still to be made.
pub struct OpBench {
    op: &'static Op,
    shape: Shape,
    request: OpRequest,
}

/// Names of the ops that can be timed, and what each is given.
pub fn op_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    ops::all().map(|op| (op.name, op.about))
}

impl OpBench {
    /// Refuses unknown ops, shapes that do not fit them, and what cannot fit into memory.
    pub fn new(request: OpRequest) -> Result<Self> {
        let op = Op::find(&request.name)?;
        let shape = shape(op, &request)?;
        if !(1..=MOST_REPEATS).contains(&request.repeats) {
            return Err(Error::usage(format!(
                "--repeats must be 1 to {MOST_REPEATS}, not {}",
                request.repeats
            )));
        }
        let sizes = (op.inputs)(&shape);
        let count = |dims: &[usize]| dims.iter().map(|&size| size as f64).product::<f64>();
        let numbers: f64 = sizes.iter().map(|input| count(&input.dims)).sum();
        // Every input has a gradient.
        let needed = 2.0 * numbers * request.number.dtype().size_in_bytes() as f64;
        machine::fits(needed, "these inputs", "a smaller --shape")?;
        Ok(Self { op, shape, request })
    }

    /// Times the op.
    ///
    /// `export` names a safetensors file for its inputs, `input.0` and on.
    pub fn measure(&self, threads: usize, export: Option<&Path>) -> Result<OpReport> {
        let machine = Machine::now(threads);
        let (op, dtype) = (self.op, self.request.number.dtype());
        let inputs = (op.inputs)(&self.shape);
        let inputs: Vec<Tensor> = inputs
            .iter()
            .enumerate()
            .map(|(index, input)| tracked(index, input, dtype))
            .collect::<Result<_>>()?;
        if let Some(path) = export {
            let named = inputs.iter().enumerate();
            let named = named.map(|(i, x)| (format!("input.{i}"), x.clone()));
            save(path, named.collect())?;
        }
        let plain: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
        let (out, forward) = self.repeat(|| Ok((op.run)(&plain, dtype)?))?;
        let (grads, both) = self.repeat(|| Ok((op.run)(&inputs, dtype)?.backward()?))?;
        let grads = inputs.iter().filter_map(|x| grads.get(x));
        let gradient_checksum = grads.map(total).sum::<Result<f64>>()?;
        let (floor, elements) = (op.floor(&self.shape), op.elements(&self.shape));
        let word = dtype.size_in_bytes() as f64;
        Ok(OpReport {
            bench: "op",
            op: op.name,
            shape: self.request.shape.clone(),
            heads: self.shape.heads,
            dtype: self.request.number,
            repeats: self.request.repeats,
            route: route(),
            elements,
            forward: Pass::new(forward, elements, CORE.seconds(floor.forward, word)),
            both: Pass::new(both, elements, CORE.seconds(floor.both, word)),
            checksum: total(&out)?,
            gradient_checksum,
            peak_memory_bytes: peak_memory_bytes(),
            machine,
        })
    }

    /// The last result of repeated work, and what each time took.
    fn repeat<T>(&self, work: impl Fn() -> Result<T>) -> Result<(T, Timing)> {
        for _ in 1..WARM_UP {
            work()?;
        }
        let (mut last, mut spans) = (work()?, Vec::new());
        for _ in 0..self.request.repeats {
            let (done, span) = timed(&work)?;
            last = done;
            spans.push(span);
        }
        Ok((last, Timing::of(&spans)))
    }
}

/// The sizes that `request` names, as `op` reads them.
fn shape(op: &Op, request: &OpRequest) -> Result<Shape> {
    let refused = |what: String| Err(Error::usage(what));
    let (batch, len, width, states) = match request.shape[..] {
        [batch, len, width, states] => (batch, len, width, states),
        [batch, len, width] if !op.states => (batch, len, width, 1),
        _ => {
            let axes = if op.states { "B,L,d,n" } else { "B,L,d" };
            let name = op.name;
            return refused(format!("--shape must be {axes} for {name}: {}", op.about));
        }
    };
    let heads = request.heads;
    let sizes = [batch, len, width, states, heads];
    if let Some(size) = sizes.iter().find(|size| !(1..=LARGEST).contains(*size)) {
        return refused(format!(
            "--shape and --heads hold numbers from 1 to {LARGEST}, not {size}"
        ));
    }
    if heads > 1 && !op.heads {
        return refused(format!("{} has no heads: leave out --heads", op.name));
    }
    if width % heads != 0 || op.states && states % heads != 0 {
        return refused(format!(
            "--heads {heads} does not divide d = {width} and n = {states}: each head takes an equal share"
        ));
    }
    Ok(Shape {
        batch,
        len,
        width,
        states,
        heads,
    })
}

/// An input with numbers in it; all but class numbers are tracked.
fn tracked(index: usize, input: &Input, dtype: DType) -> Result<Tensor> {
    let values = filled(index, input, usize::MAX)?;
    match values.dtype() {
        DType::U32 => Ok(values),
        _ => Ok(Var::from_tensor(&values.to_dtype(dtype)?)?.into_inner()),
    }
}

/// The sum of all magnitudes: a result that somebody reads cannot be left out.
fn total(x: &Tensor) -> Result<f64> {
    let sum = x.to_dtype(DType::F64)?.abs()?.sum_all()?;
    Ok(sum.to_scalar()?)
}

/// Time of one kind of call, and how near it comes to its floor.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pass {
    /// Of one call.
    #[serde(flatten)]
    pub time: Timing,
    /// Elements over the median CPU seconds.
    pub elements_per_cpu_second: f64,
    /// CPU seconds below which nothing gets.
    pub floor_seconds: f64,
    /// The floor over the median: 1 would be perfect.
    pub fraction_of_floor: f64,
}

impl Pass {
    fn new(time: Timing, elements: f64, floor_seconds: f64) -> Self {
        Self {
            time,
            elements_per_cpu_second: elements / time.cpu_seconds,
            floor_seconds,
            fraction_of_floor: floor_seconds / time.cpu_seconds,
        }
    }
}

/// What an op takes.
#[derive(Clone, Debug, Serialize)]
pub struct OpReport {
    /// Always `op`.
    pub bench: &'static str,
    /// The op.
    pub op: &'static str,
    /// B, L, d and perhaps n.
    pub shape: Vec<usize>,
    /// Heads s.
    pub heads: usize,
    /// Type of the numbers.
    pub dtype: Number,
    /// Timed calls, after two that are not.
    pub repeats: usize,
    /// How the op was computed.
    pub route: &'static str,
    /// Of one call; of what kind, the op's description says.
    pub elements: f64,
    /// Forward alone, with no gradient wanted.
    pub forward: Pass,
    /// Forward and backward.
    #[serde(flatten)]
    pub both: Pass,
    /// The sum of the output's magnitudes.
    pub checksum: f64,
    /// The sum of all gradients' magnitudes.
    pub gradient_checksum: f64,
    /// The most memory this process has held.
    pub peak_memory_bytes: Option<u64>,
    /// Where it ran.
    #[serde(flatten)]
    pub machine: Machine,
}
