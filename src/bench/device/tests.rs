//! The checks of the device, with the emulation as the device.

use super::check::{compare, inputs, results, sums, SMALL};
use super::{peers, DeviceBench, DeviceRow, Kind};
use crate::bench::ops;
use crate::gpu::emulated::{emulated, launches};
use candle_core::{DType, Device};

/// Ops whose kernels are none of ours.
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

/// The row of a small scan beside a Python that prints `report`, whatever it is asked.
#[cfg(unix)]
fn beside(report: &str) -> DeviceRow {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python.sh");
    std::fs::write(&python, format!("#!/bin/sh\necho '{report}'\n")).unwrap();
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
    let mut bench = DeviceBench::new(Device::Cpu, "cpu".to_owned());
    bench.python = Some((python, folder.path().to_owned()));
    let task = peers::scan([2, 16, 8, 4], "scan.py --form mamba");
    bench.fill(task.row, &task.work)
}

#[cfg(unix)]
#[test]
fn a_peer_is_timed_if_it_computes_the_same() {
    let absent = beside(r#"{"absent": "no such package"}"#);
    assert_eq!(absent.note, "absent: no such package");
    assert!(absent.peer_seconds.is_none() && !absent.failed());
    let wrong = beside(r#"{"s_per_step": 1, "losses": [1, 2]}"#);
    assert!(wrong.failed() && wrong.peer_seconds.is_none());
    let broken = beside("nothing");
    assert!(broken.note.contains("no JSON object"), "{}", broken.note);
    let op = ops::Op::find("selective_scan").unwrap();
    let shape = ops::Shape {
        batch: 2,
        len: 16,
        width: 8,
        states: 4,
        heads: 1,
    };
    let given = inputs(op, &shape, DType::F32).unwrap();
    let sums = sums(op, &given, &Device::Cpu).unwrap();
    let same = beside(&format!(r#"{{"s_per_step": 1, "losses": {sums:?}}}"#));
    assert!(!same.failed(), "{}", same.note);
    assert_eq!(same.ratio, same.seconds.map(|ours| 1.0 / ours));
}
