//! Correctness of a device: ops and models are compared with the CPU.

use super::floors::OpShape;
use super::ops::{DrawnInput, Op};
use super::row::{Details, Measurement};
use super::step::{StepExecution, TimedSteps, SMALL};
use super::timer::Repetitions;
use crate::config::Precision;
use crate::error::{Error, Result};
use crate::ops::{prefer, Distance, Route};
use candle_core::{DType, Device, Tensor};

/// Sizes at which ops are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Odd sizes, compared with the op's reference.
    Small,
    /// Several thread blocks, compared with the CPU's fused op, which the tests compare with the reference.
    Medium,
    /// Sizes beyond those of the tests, compared like `Medium`.
    Large,
}

impl Tier {
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    pub fn shape(self, op: &Op) -> OpShape {
        op.heads_of(match self {
            Self::Small => OpShape { batch: 3, len: 37, width: 21, states: 9, heads: 3 },
            Self::Medium => OpShape { batch: 4, len: 256, width: 96, states: 48, heads: 1 },
            Self::Large => op.sizes.large(),
        })
    }

    /// Largest error of an op with activations of type `io`.
    pub fn limit(self, io: DType) -> Distance {
        let limit = Distance::limit(io);
        // Sums over 50,000 classes or 16,000 tokens, in the order of a matrix product.
        let long_sums = if self == Self::Large { 10.0 } else { 1.0 };
        match io {
            // Terms rounded to 16 bits cancel in gradients of attention: 3.2e-2 for the keys of linear attention on an
            // H100.
            DType::BF16 => Distance { of_rows: 4e-2, ..limit },
            _ => Distance { of_rows: long_sums * limit.of_rows, of_scale: long_sums * limit.of_scale },
        }
    }
}

/// Training steps of a model's check. The first steps are launched op by op in any form; recorded steps are replayed
/// after them.
const STEPS: Repetitions = Repetitions { warm_up: 4, rounds: 0, round_seconds: 0.0, most_calls: 1 };

/// Compares output and gradients of an op, with activations of type `io`, with those in f64.
pub(super) fn op(row: &mut Measurement, op: &Op, tier: Tier, io: DType, device: &Device) -> Result<Details> {
    let inputs = op.draw(&tier.shape(op), io, usize::MAX)?;
    let route = if tier == Tier::Small { Route::Reference } else { Route::Fused };
    let expected = by_route(route, || results(op, &inputs, DType::F64, &Device::Cpu))?;
    compare(row, op, &inputs, io, device, &expected, tier.limit(io))?;
    Ok(Details::new())
}

/// Compares the losses of a small model's first steps with those on the CPU in f32, from the same seed.
pub(super) fn model(
    row: &mut Measurement,
    mixer: &str,
    precision: Precision,
    form: StepExecution,
    device: &Device,
) -> Result<Details> {
    let losses = |precision, form, device: &Device| {
        TimedSteps::scheduled(SMALL.config(mixer, precision, None)?, STEPS, form)?.losses(device)
    };
    let expected = losses(Precision::F32, StepExecution::Launched, &Device::Cpu)?;
    let got = losses(precision, form, device)?;
    row.loss = got.last().copied();
    let tolerance = match precision {
        Precision::Bf16 => 2e-2,
        Precision::Tf32 => 2e-2 / 8.0, // three more bits
        Precision::F32 => 1e-4,
    };
    row.compared(relative_difference(&got, &expected), tolerance);
    Ok(Details::new())
}

/// Largest relative difference, with respect to the expected numbers; NaN if any is NaN, which `f64::max` would drop.
pub(super) fn relative_difference(got: &[f64], expected: &[f64]) -> f64 {
    let each = got.iter().zip(expected).map(|(x, y)| (x - y).abs() / y.abs().max(f64::MIN_POSITIVE));
    each.fold(0.0, |most, x| if x <= most { most } else { x })
}

/// Runs `work` with ops computed by `route`, and restores the fused route.
pub(super) fn by_route<T>(route: Route, work: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            prefer(Route::Fused);
        }
    }
    let _restore = Restore;
    prefer(route);
    work()
}

/// Compares `op` on `device` with `expected`, and its bits with those of a second call.
pub(super) fn compare(
    row: &mut Measurement,
    op: &Op,
    inputs: &[DrawnInput],
    io: DType,
    device: &Device,
    expected: &[Tensor],
    limit: Distance,
) -> Result<()> {
    let got = results(op, inputs, io, device)?;
    let again = results(op, inputs, io, device)?;
    let (mut worst, mut at) = ((0.0, limit.of_rows), 0);
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        let found = Distance::new(got, expected)?.worse(limit);
        if found.0 / found.1 > worst.0 / worst.1 || found.0.is_nan() {
            (worst, at) = (found, index);
        }
    }
    row.compared(worst.0, worst.1);
    row.note = match at {
        0 => "output".to_owned(),
        input => format!("gradient {input} of {}", got.len() - 1),
    };
    for (index, (once, twice)) in got.iter().zip(&again).enumerate() {
        let bits = |x: &Tensor| -> Result<Vec<u64>> { Ok(numbers(x)?.into_iter().map(f64::to_bits).collect()) };
        if bits(once)? != bits(twice)? {
            row.passed = Some(false);
            row.note = format!("result {index} has other bits in a second call");
        }
    }
    Ok(())
}

/// Returns the output, then the gradients of a weighted sum of it.
pub(super) fn results(op: &Op, inputs: &[DrawnInput], io: DType, device: &Device) -> Result<Vec<Tensor>> {
    let inputs = inputs.iter().map(|input| input.on(io, device, true)).collect::<Result<Vec<Tensor>>>()?;
    let output = (op.run)(&inputs, io)?;
    let gradients = crate::ops::backward(&(&output * weights(&output)?)?)?;
    let mut results = vec![output.detach()];
    for (index, input) in inputs.iter().enumerate() {
        if input.dtype().is_float() {
            let missing = || Error::usage(format!("input {index} has no gradient"));
            results.push(gradients.get(input).ok_or_else(missing)?.clone());
        }
    }
    Ok(results)
}

/// Returns weights that every type represents exactly, which differ within 127 neighbours.
fn weights(like: &Tensor) -> Result<Tensor> {
    let values: Vec<f64> = (0..like.elem_count()).map(|i| ((37 * i % 127) as f64 - 63.0) / 64.0).collect();
    Ok(Tensor::from_vec(values, like.shape(), &Device::Cpu)?.to_dtype(like.dtype())?.to_device(like.device())?)
}

fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    Ok(x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?)
}
