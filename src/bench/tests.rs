//! Checks of a device with the emulated GPU as the device, and peers that are shell scripts.

use super::check::{compare, results, Tier};
use super::floors::OpShape;
use super::op::magnitude;
use super::ops::{self, TimedPasses};
use super::row::{Measurement, MeasurementKind};
use candle_core::{DType, Device};
use dsf_emulation::{emulated, launches};

/// Ops without a kernel of our own.
const WITHOUT: &[&str] = &[];

#[test]
fn every_op_passes_its_check_by_kernels() {
    let (mut without, mut wrong) = (Vec::new(), Vec::new());
    for op in ops::all() {
        for io in [DType::F32, DType::BF16] {
            let inputs = op.draw(&Tier::Small.shape(op), io, usize::MAX).unwrap();
            let expected = results(op, &inputs, DType::F64, &Device::Cpu).unwrap();
            let before = launches();
            let mut row = Measurement::new(MeasurementKind::Check, op.name, io.as_str());
            let limit = Tier::Small.limit(io);
            let done = emulated(|| compare(&mut row, op, &inputs, io, &Device::Cpu, &expected, limit));
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

const SHAPE: [usize; 4] = [2, 16, 8, 4];

/// Returns the row of a small scan compared with a Python that prints `report` for every call.
#[cfg(unix)]
fn beside(report: &str) -> Measurement {
    use super::{cases, Bench, Machine, Scripts};
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python.sh");
    std::fs::write(&python, format!("#!/bin/sh\necho '{report}'\n")).unwrap();
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
    let scripts = Scripts { python, folder: folder.path().to_owned() };
    let mut bench = Bench::new(Machine::cpu(1));
    bench.keep_going = true;
    let op = ops::find("selective_scan").unwrap();
    let peer = scripts.peer("scan.py --form mamba");
    let case = cases::both_passes(op, OpShape::from(SHAPE)).beside(peer);
    bench.measure(&case, &mut |_| ()).unwrap()
}

/// A script exists for the steps of the mixer `ssd`, but not for the op of that name.
#[test]
fn a_script_stands_beside_what_it_computes() {
    let scripts = super::Scripts { python: "python".into(), folder: "peer".into() };
    let cases = super::cases::cpu(Some(&scripts));
    let titles = cases.iter().map(|case| case.title());
    let beside: Vec<String> = titles.filter(|title| title.contains(".py")).collect();
    assert!(beside.iter().any(|title| title.contains("scan.py")));
    for title in beside {
        let script = if title.starts_with("op ") { title.contains("scan.py") } else { !title.contains("scan.py") };
        assert!(script, "{title}");
    }
}

#[cfg(unix)]
#[test]
fn a_peer_is_timed_if_it_computes_the_same() {
    let absent = beside(r#"{"absent": "no such package"}"#);
    assert_eq!(absent.note, "absent: no such package");
    assert!(absent.peer_seconds.is_none() && !absent.failed());
    let wrong = beside(r#"{"cpu_s_per_step": 1, "losses": [1, 2]}"#);
    assert!(wrong.failed() && wrong.peer_seconds.is_none());
    let broken = beside("nothing");
    assert!(broken.note.contains("no JSON object"), "{}", broken.note);
    let op = ops::find("selective_scan").unwrap();
    let inputs = op.draw(&OpShape::from(SHAPE), DType::F32, usize::MAX).unwrap();
    let inputs: Vec<_> = inputs.iter().map(|input| input.on(DType::F32, &Device::Cpu, true).unwrap()).collect();
    let output = (op.run)(&inputs, DType::F32).unwrap();
    let gradients = output.backward().unwrap();
    let gradients: Vec<_> = inputs.iter().filter_map(|input| gradients.get(input).cloned()).collect();
    let sums = [&[output][..], &gradients].map(|tensors| magnitude(tensors).unwrap());
    let same = beside(&format!(r#"{{"cpu_s_per_step": 1, "losses": {sums:?}}}"#));
    assert!(!same.failed(), "{}", same.note);
    assert_eq!(same.ratio, same.seconds.map(|ours| 1.0 / ours));
    assert_eq!(TimedPasses::Both.name(), same.case.rsplit(' ').next().unwrap());
}
