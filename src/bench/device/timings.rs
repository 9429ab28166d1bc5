//! Single ops at the sizes that matter, beside the floor of their arithmetic.

use super::predicted::predicted;
use super::time::time;
use super::{DeviceBench, DeviceRow, Kind, Task};
use crate::bench::floors::H200;
use crate::bench::ops::{self, filled, Op, Shape};
use crate::error::Result;
use candle_core::{DType, Device, Tensor, Var};

/// Numbers drawn for an input before they repeat.
const DISTINCT: usize = 1 << 16;

pub(super) fn tasks(types: &'static [DType]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for op in ops::all() {
        for shape in op.sizes.shapes() {
            for &io in types {
                for way in [Way::Forward, Way::Both] {
                    let sizes = op.sizes_of(&shape);
                    let case = format!("{} {sizes} {}", op.name, way.name());
                    let row = DeviceRow::new(Kind::Op, case, io);
                    let work = move |row: &mut DeviceRow, bench: &DeviceBench| {
                        measure(row, op, &shape, io, way, &bench.device)
                    };
                    tasks.push(Task::new(row, work));
                }
            }
        }
    }
    tasks
}

/// What is timed of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// Forward, with no gradient wanted.
    Forward,
    /// Forward and backward.
    Both,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Both => "both",
        }
    }
}

pub(super) fn measure(
    row: &mut DeviceRow,
    op: &Op,
    shape: &Shape,
    io: DType,
    way: Way,
    device: &Device,
) -> Result<()> {
    let inputs = inputs(op, shape, io, way, device)?;
    let seconds = time(device, &mut || {
        let out = (op.run)(&inputs, io)?;
        if way == Way::Both {
            out.backward()?;
        }
        Ok(())
    })?;
    let floor = match way {
        Way::Forward => op.floor(shape).forward,
        Way::Both => op.floor(shape).both,
    };
    let floor = H200.seconds(floor, io.size_in_bytes() as f64);
    row.took(seconds, Some(floor));
    row.elements_per_second = Some(op.elements(shape) / seconds.median);
    row.predicted = predicted(op.name, shape, io, way);
    Ok(())
}

fn inputs(op: &Op, shape: &Shape, io: DType, way: Way, device: &Device) -> Result<Vec<Tensor>> {
    let inputs = (op.inputs)(shape);
    let made = inputs.iter().enumerate().map(|(index, input)| {
        let values = filled(index, input, DISTINCT)?.to_device(device)?;
        if !values.dtype().is_float() {
            return Ok(values);
        }
        let values = if input.parameter {
            values
        } else {
            values.to_dtype(io)?
        };
        Ok(match way {
            Way::Forward => values,
            Way::Both => Var::from_tensor(&values)?.into_inner(),
        })
    });
    made.collect()
}
