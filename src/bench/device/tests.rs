//! The checks of the device, with the emulation as the device.

use super::check::{compare, inputs, results, SMALL};
use super::{DeviceRow, Kind};
use crate::bench::ops;
use crate::gpu::emulated::{emulated, launches};
use candle_core::{DType, Device};

/// Ops that have no kernels yet.
const WITHOUT: &[&str] = &[];

#[test]
fn every_op_passes_its_check_by_kernels() {
    let (mut without, mut wrong) = (Vec::new(), Vec::new());
    for op in ops::all() {
        for io in [DType::F32, DType::BF16] {
            let shape = op.heads_of(SMALL);
            let given = inputs(op, &shape, io).unwrap();
            let expected = results(op, &given, DType::F64, &Device::Cpu).unwrap();
            let before = launches();
            let mut row = DeviceRow::new(Kind::Check, op.name, io);
            let done = emulated(|| compare(&mut row, op, &given, io, &Device::Cpu, &expected));
            if launches() == before {
                without.push(op.name);
            } else if done.is_err() || row.failed() {
                wrong.push(format!("{} {done:?}", serde_json::to_string(&row).unwrap()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    without.dedup();
    assert_eq!(without, WITHOUT);
}
