//! Every op on the device: output and all gradients beside the CPU's in f64, and the same bits twice.

use super::{by_reference, DeviceRow, Kind, Task};
use crate::bench::ops::{self, filled, Op, Shape};
use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor, Var};

/// An odd shape, held against the definitions of the ops.
pub(super) const SMALL: Shape = Shape {
    batch: 3,
    len: 37,
    width: 21,
    states: 9,
    heads: 3,
};

/// A shape of several blocks, held against the CPU's fused ops, which are held against the definitions
/// in the tests.
const MEDIUM: Shape = Shape {
    batch: 4,
    len: 256,
    width: 96,
    states: 48,
    heads: 1,
};

pub(super) fn tasks(types: &'static [DType]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (size, shape) in [("small", SMALL), ("medium", MEDIUM)] {
        for op in ops::all() {
            for &io in types {
                let shape = op.heads_of(shape);
                let case = format!("{size} {} {}", op.name, op.sizes_of(&shape));
                let row = DeviceRow::new(Kind::Check, case, io);
                tasks.push(Task::new(row, move |row, bench| {
                    let inputs = inputs(op, &shape, io)?;
                    let mut on_the_cpu = || results(op, &inputs, DType::F64, &Device::Cpu);
                    let expected = match size {
                        "small" => by_reference(&mut on_the_cpu),
                        _ => on_the_cpu(),
                    };
                    compare(row, op, &inputs, io, &bench.device, &expected?)
                }));
            }
        }
    }
    tasks
}

/// Holds `op` on the device against what is expected.
pub(super) fn compare(
    row: &mut DeviceRow,
    op: &Op,
    inputs: &[Given],
    io: DType,
    device: &Device,
    expected: &[Tensor],
) -> Result<()> {
    let got = results(op, inputs, io, device)?;
    let again = results(op, inputs, io, device)?;
    let (mut worst, mut at) = (0.0, 0);
    for (part, (got, expected)) in got.iter().zip(expected).enumerate() {
        let apart = distance(got, expected)?;
        // A NaN wins.
        if apart > worst || apart.is_nan() {
            (worst, at) = (apart, part);
        }
    }
    row.apart(worst, tolerance(io));
    row.note = match at {
        0 => "output".to_owned(),
        input => format!("gradient {input} of {}", got.len() - 1),
    };
    for (part, (once, twice)) in got.iter().zip(&again).enumerate() {
        if bits(once)? != bits(twice)? {
            row.passed = Some(false);
            row.note = format!("result {part} has other bits the second time");
        }
    }
    Ok(())
}

/// What `src/ops/check.rs` allows.
fn tolerance(io: DType) -> f64 {
    match io {
        DType::BF16 => 1.2e-2,
        _ => 2e-5,
    }
}

/// An input, rounded to what the device will read.
pub(super) struct Given {
    values: Tensor,
    parameter: bool,
}

impl Given {
    /// On the CPU, in f32.
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    fn tracked(&self) -> bool {
        self.values.dtype().is_float()
    }

    /// On `device`, for activations of `io`.
    fn on(&self, io: DType, device: &Device) -> Result<Tensor> {
        let dtype = match (self.tracked(), io) {
            (false, _) => self.values.dtype(),
            (true, DType::BF16) if self.parameter => DType::F32,
            (true, io) => io,
        };
        Ok(self.values.to_dtype(dtype)?.to_device(device)?)
    }
}

/// The inputs of `op`, of which activations are rounded to `io`.
pub(super) fn inputs(op: &Op, shape: &Shape, io: DType) -> Result<Vec<Given>> {
    let inputs = (op.inputs)(shape);
    let given = inputs.iter().enumerate().map(|(index, input)| {
        let values = filled(index, input, usize::MAX)?;
        let rounded = match input.parameter || !values.dtype().is_float() {
            true => values,
            false => values.to_dtype(io)?.to_dtype(DType::F32)?,
        };
        Ok(Given {
            values: rounded,
            parameter: input.parameter,
        })
    });
    given.collect()
}

/// The output, then the gradients of its sum with fixed weights.
pub(super) fn results(op: &Op, given: &[Given], io: DType, device: &Device) -> Result<Vec<Tensor>> {
    gradients(op, given, io, device, weights)
}

/// The output, then the gradients of its sum with the weights that `weights` gives it.
fn gradients(
    op: &Op,
    given: &[Given],
    io: DType,
    device: &Device,
    weights: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    let (mut inputs, mut vars) = (Vec::new(), Vec::new());
    for given in given {
        let values = given.on(io, device)?;
        if given.tracked() {
            let var = Var::from_tensor(&values)?;
            inputs.push(var.as_tensor().clone());
            vars.push(var);
        } else {
            inputs.push(values);
        }
    }
    let out = (op.run)(&inputs, io)?;
    let grads = (&out * weights(&out)?)?.backward()?;
    let mut results = vec![out.detach()];
    for (index, var) in vars.iter().enumerate() {
        let grad = grads.get(var);
        let missing = || Error::usage(format!("no gradient {} of {}", index + 1, vars.len()));
        results.push(grad.ok_or_else(missing)?.clone());
    }
    Ok(results)
}

/// The sums of magnitudes of the output and of all gradients of its plain sum, as peers report them.
pub(super) fn sums(op: &Op, given: &[Given], device: &Device) -> Result<Vec<f64>> {
    let results = gradients(op, given, DType::F32, device, |out| Ok(out.ones_like()?))?;
    let total = |x: &Tensor| -> Result<f64> { Ok(numbers(x)?.iter().map(|x| x.abs()).sum()) };
    let [out, gradients @ ..] = results.as_slice() else {
        return Ok(Vec::new());
    };
    let gradients = gradients.iter().map(total).sum::<Result<f64>>()?;
    Ok(vec![total(out)?, gradients])
}

/// Numbers that every type holds exactly, another for each of 127 neighbours.
fn weights(like: &Tensor) -> Result<Tensor> {
    let number = |i: usize| ((37 * i % 127) as f64 - 63.0) / 64.0;
    let values: Vec<f64> = (0..like.elem_count()).map(number).collect();
    let weights = Tensor::from_vec(values, like.shape(), &Device::Cpu)?;
    Ok(weights.to_dtype(like.dtype())?.to_device(like.device())?)
}

/// Largest difference, in units of the larger of 1 and the largest number.
fn distance(got: &Tensor, expected: &Tensor) -> Result<f64> {
    if got.dims() != expected.dims() {
        let (got, expected) = (got.dims(), expected.dims());
        return Err(Error::usage(format!(
            "a result of shape {got:?} where {expected:?} was expected"
        )));
    }
    let (got, expected) = (numbers(got)?, numbers(expected)?);
    let scale = expected.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    let apart = got
        .iter()
        .zip(&expected)
        .map(|(x, y)| (x - y).abs() / scale);
    // Not `max`: a NaN must win.
    Ok(apart.fold(0.0, |most, d| if most >= d { most } else { d }))
}

fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    let x = x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?;
    Ok(x.flatten_all()?.to_vec1()?)
}

fn bits(x: &Tensor) -> Result<Vec<u64>> {
    Ok(numbers(x)?.into_iter().map(f64::to_bits).collect())
}
