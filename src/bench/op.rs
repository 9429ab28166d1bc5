//! Timing of a single op: forward, and forward with backward.

use super::floors::OpShape;
use super::machine::Machine;
use super::ops::{self, DrawnInput, Op, TimedPasses};
use super::peers::save;
use super::row::{Details, Measurement, MeasurementKind, MeasurementReport};
use super::timer::Repetitions;
use crate::error::{refuse, Result};
use crate::gpu::{self, Factors, Gpu, Recording};
use crate::store::check_memory;
use candle_core::{DType, Device, Tensor};
use serde_json::json;
use std::path::Path;

/// Fraction of its floor from which an op needs no explanation.
const HALF: f64 = 0.5;

/// Maximum number of timed calls.
const MOST_REPEATS: usize = 10_000;

/// One call after a warm-up call.
const ONCE: Repetitions = Repetitions { warm_up: 1, rounds: 1, round_seconds: 0.0, most_calls: 1 };

/// Seconds of calls that a recording holds, if these are at most so many.
const RECORDED_SECONDS: f64 = 1e-3;
const MOST_RECORDED: f64 = 32.0;

/// Largest size of an axis; memory is checked separately.
const LARGEST: usize = 1 << 30;

/// Bytes of a drawn number.
const DRAWN: f64 = 4.0;

/// Copies of an input in the type of the op that are in memory at the same time: itself, its gradient, and outputs of
/// about the same size.
const COPIES: f64 = 4.0;

/// Types that the fused ops of the CPU compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ComputeType {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

/// Options of `dsf bench op`.
#[derive(Clone, Debug, clap::Args)]
pub struct OpRequest {
    /// Name of the op.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Batch B, sequence length L, width d and, for ops with states, states per channel n.
    #[arg(long, value_delimiter = ',', value_name = "B,L,d,n", default_values_t = [8, 512, 128, 64])]
    pub shape: Vec<usize>,
    /// Number of attention heads, which divides d and n.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub heads: usize,
    /// Number type.
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: ComputeType,
    /// Number of timed calls of each pass, after two warm-up calls.
    #[arg(long, default_value_t = 9, value_name = "N")]
    pub repeats: usize,
}

/// Returns the names of the ops that can be timed, and their inputs.
pub fn op_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    ops::all().map(|op| (op.name, op.about))
}

/// An op to be timed.
pub struct OpTiming {
    pub(super) op: &'static Op,
    pub(super) shape: OpShape,
    /// Type of activations.
    pub(super) io: DType,
    pub(super) schedule: Repetitions,
}

impl OpTiming {
    /// Fails for unknown ops, shapes that do not fit them, and inputs that do not fit into memory.
    pub fn new(request: &OpRequest) -> Result<Self> {
        let op = ops::find(&request.name)?;
        let shape = shape(op, request)?;
        if !(1..=MOST_REPEATS).contains(&request.repeats) {
            let repeats = request.repeats;
            refuse!(flag "--repeats" = repeats, "must be 1 to {MOST_REPEATS}");
        }
        let io = match request.dtype {
            ComputeType::F32 => DType::F32,
            ComputeType::F64 => DType::F64,
        };
        let count = |dims: &[usize]| dims.iter().map(|&size| size as f64).product::<f64>();
        let numbers: f64 = (op.inputs)(&shape).iter().map(|input| count(&input.dims)).sum();
        let needed = numbers * (DRAWN + COPIES * io.size_in_bytes() as f64);
        check_memory(needed, "this op", "give a smaller --shape")?;
        let schedule = Repetitions::single(request.repeats);
        Ok(Self { op, shape, io, schedule })
    }

    /// Formats the op and its sizes: `selective_scan 8,512,128,64`.
    pub(super) fn case(&self) -> String {
        format!("{} {}", self.op.name, self.op.sizes_of(&self.shape))
    }

    pub(super) fn row(&self, pass: TimedPasses) -> Measurement {
        Measurement::new(MeasurementKind::Op, format!("{} {}", self.case(), pass.name()), self.io.as_str())
    }

    /// Times both passes on the CPU. `export` is a safetensors file to which the inputs are written as `input.0`,
    /// `input.1` and so on.
    pub fn report(&self, machine: &Machine, export: Option<&Path>) -> Result<MeasurementReport> {
        let row = Measurement::new(MeasurementKind::Op, self.case(), self.io.as_str());
        machine.report(row, |row| self.measure(row, machine, export))
    }

    /// Times both passes. The row describes forward and backward together; the details contain both.
    pub(super) fn measure(&self, row: &mut Measurement, machine: &Machine, export: Option<&Path>) -> Result<Details> {
        let inputs = self.op.draw(&self.shape, self.io, usize::MAX)?;
        if let Some(path) = export {
            let named = inputs.iter().enumerate().map(|(i, input)| {
                let typed = if input.values.dtype().is_float() { self.io } else { input.values.dtype() };
                Ok((format!("input.{i}"), input.values.to_dtype(typed)?))
            });
            save(path, named.collect::<Result<Vec<_>>>()?, None)?;
        }
        let mut forward = Measurement::default();
        // Both passes come first, so that the recorded peak memory is theirs.
        let gradients = self.time(TimedPasses::Both, row, &inputs, machine)?;
        let output = self.time(TimedPasses::Forward, &mut forward, &inputs, machine)?;
        let OpShape { batch, len, width, states, heads } = self.shape;
        let details = json!({
            "op": self.op.name,
            "shape": [batch, len, width, states],
            "heads": heads,
            "repeats": self.schedule.rounds,
            "forward": {
                "seconds": forward.seconds,
                "seconds_min": forward.seconds_min,
                "seconds_max": forward.seconds_max,
                "wall_seconds": forward.wall_seconds,
                "floor_seconds": forward.floor_seconds,
                "fraction_of_floor": forward.fraction_of_floor,
                "elements_per_second": forward.elements_per_second,
            },
            "checksum": magnitude(&output)?,
            "gradient_checksum": magnitude(&gradients)?,
        });
        if row.fraction_of_floor.is_some_and(|fraction| fraction < HALF) && machine.is_cpu() {
            self.op.below.clone_into(&mut row.below);
        }
        Ok(details.as_object().cloned().unwrap_or_default())
    }

    /// Times one pass: replays of a recording on a GPU, which does not wait for the launches of short kernels then; the
    /// calls themselves if they cannot be recorded, which the row notes. Returns a result: the output, or the gradients of
    /// all inputs.
    pub(super) fn time(
        &self,
        pass: TimedPasses,
        row: &mut Measurement,
        inputs: &[DrawnInput],
        machine: &Machine,
    ) -> Result<Vec<Tensor>> {
        let tracked = pass == TimedPasses::Both;
        let inputs =
            inputs.iter().map(|input| input.on(self.io, &machine.device, tracked)).collect::<Result<Vec<Tensor>>>()?;
        let mut call = || {
            let output = (self.op.run)(&inputs, self.io)?;
            if !tracked {
                return Ok(vec![output]);
            }
            let gradients = crate::ops::backward(&output)?;
            Ok(inputs.iter().filter_map(|input| gradients.get(input).cloned()).collect())
        };
        let (results, timing) = match inputs.first().and_then(gpu::of) {
            None => machine.time(&self.schedule, &mut call)?,
            Some(gpu) => {
                let (results, once) = machine.time(&ONCE, &mut call)?;
                // Many calls of a short op, so that the start of a recording takes no time beside them.
                let calls = (RECORDED_SECONDS / once.wall.median).ceil().clamp(1.0, MOST_RECORDED) as usize;
                match record(&gpu, calls, &mut call) {
                    Ok(recording) => {
                        row.graph_nodes = Some(recording.nodes()? / calls);
                        let ((), timing) = machine.time(&self.schedule, &mut || Ok(recording.replay()?))?;
                        (results, timing.of_part(calls))
                    }
                    Err(refusal) => {
                        let reason = refusal.to_string();
                        row.note = format!("launched, not recorded: {}", reason.lines().next().unwrap_or_default());
                        machine.time(&self.schedule, &mut call)?
                    }
                }
            }
        };
        let bytes = self.io.size_in_bytes() as f64;
        let work = self.op.floor(&self.shape, pass);
        machine.floor(row, Factors::F32, |rates| Ok(Some(rates.seconds(work, bytes))))?;
        row.elements = Some((self.op.elements)(self.shape));
        row.timed(&timing);
        Ok(results)
    }
}

/// Records `calls` calls, after one by launches, which loads kernels and constants.
fn record(
    gpu: &Gpu,
    calls: usize,
    call: &mut dyn FnMut() -> Result<Vec<Tensor>>,
) -> candle_core::Result<Box<dyn Recording>> {
    let mut once = || call().map(drop).map_err(candle_core::Error::wrap);
    gpu.warm_up(&mut once)?;
    gpu.record(|| (0..calls).try_for_each(|_| once()))
}

/// Returns the sizes in `request`, as `op` interprets them.
fn shape(op: &Op, request: &OpRequest) -> Result<OpShape> {
    let typed = || request.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let (batch, len, width, states) = match request.shape[..] {
        [batch, len, width, states] => (batch, len, width, states),
        [batch, len, width] if !op.states => (batch, len, width, 1),
        _ => {
            let axes = if op.states { "B,L,d,n" } else { "B,L,d" };
            let name = op.name;
            refuse!(flag "--shape" = typed(), "must be {axes} for {name}: {}", op.about);
        }
    };
    let heads = request.heads;
    if let Some(size) = [batch, len, width, states, heads].iter().find(|size| !(1..=LARGEST).contains(*size)) {
        refuse!(flag "--shape" = typed(), "this and --heads hold numbers from 1 to {LARGEST}, not {size}");
    }
    if heads > 1 && !op.heads {
        refuse!(flag "--heads" = heads, "{} has no heads: leave it out", op.name);
    }
    if width % heads != 0 || op.states && states % heads != 0 {
        refuse!(flag "--heads" = heads, "does not divide d = {width} and n = {states}: each head takes an equal share");
    }
    Ok(OpShape { batch, len, width, states, heads })
}

/// Sum of all magnitudes, in f64.
pub(super) fn magnitude(tensors: &[Tensor]) -> Result<f64> {
    let total = |x: &Tensor| -> Result<f64> {
        Ok(x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.abs()?.sum_all()?.to_scalar()?)
    };
    tensors.iter().map(total).sum()
}
