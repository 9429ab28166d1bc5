//! Cases measured by `dsf bench all`, `lengths`, `compare` and `--device`.

use super::check::{self, by_route, Tier};
use super::driver::{first_line, Bench, BenchCase};
use super::floors::OpShape;
use super::machine::Machine;
use super::op::OpTiming;
use super::ops::{self, Op, TimedPasses, MAMBA, TASKS};
use super::peers::{call, mixers_in_pytorch, Peer, Scripts};
use super::predicted::predicted;
use super::row::{Details, Measurement, MeasurementKind, MeasurementReport};
use super::step::{of_flags, of_the_paper, StepExecution, StepShape, TimedSteps, SMALL};
use super::timer::Repetitions;
use crate::config::{Precision, RunConfig};
use crate::error::{refuse, Error, Result};
use crate::mixers::MIXERS;
use crate::ops::{Route, Simd};
use candle_core::DType;
use std::path::Path;

/// Schedule of ops on a GPU.
const OP_CALLS: Repetitions = Repetitions { warm_up: 2, rounds: 5, round_seconds: 0.02, most_calls: 1 << 14 };

/// Schedule of training steps on a GPU.
const STEP_CALLS: Repetitions = Repetitions { warm_up: 4, rounds: 5, round_seconds: 0.25, most_calls: 20 };

/// Number of distinct random numbers in a large input.
const DISTINCT: usize = 1 << 16;

/// Name of the peer that computes ops by their definitions.
const PLAIN: &str = "plain tensor ops";

/// Steps of other tasks, without dropout: name in the list of peers, flags, batch size for a laptop, and batch size for
/// a GPU.
#[rustfmt::skip]
const OTHER_TASKS: [(&str, &str, usize, usize); 3] = [
    ("lra-softmax", "--task lra --dataset image --mixer softmax --dropout 0 --attn-dropout 0", 8, 64),
    ("lra-mamba", "--task lra --dataset image --mixer mamba --dropout 0", 8, 64),
    ("pythia", "--task wikitext --preset paper --mixer softmax --dropout 0", 2, 16),
];

/// Returns their names and complete flags.
fn other_tasks(on_cpu: bool) -> impl Iterator<Item = (&'static str, String)> {
    OTHER_TASKS.iter().map(move |(name, flags, few, many)| {
        (*name, format!("{flags} --batch-size {}", if on_cpu { few } else { many }))
    })
}

/// Returns the cases on a CPU, each in a process of its own: a step of every mixer on the paper's smallest task, of two
/// classifiers and of Pythia-70M, the steps that scripts know also in bf16 if that is faster, and every op at one size;
/// with `scripts`, PyTorch as the peer, in bf16 by autocast and without logits at unlabelled positions.
pub fn cpu(scripts: Option<&Scripts>) -> Vec<BenchCase> {
    let steps = MIXERS.iter().map(|entry| {
        let name = entry.name;
        (MeasurementKind::Step, name, format!("--preset paper --mixer {name} --d 64 --n 64 --batch-size 512"))
    });
    let steps: Vec<_> =
        steps.chain(other_tasks(true).map(|(name, flags)| (MeasurementKind::Step, name, flags))).collect();
    let ops = ops::all().flat_map(|op| {
        let sizes = op.sizes.on_cpu().into_iter();
        sizes.map(|shape| (MeasurementKind::Op, op.name, format!("{} --shape {}", op.name, op.sizes_of(&shape))))
    });
    let known = mixers_in_pytorch();
    let rounded = steps.iter().filter(|(_, name, flags)| known.contains(name) || !flags.starts_with("--preset"));
    let rounded: Vec<_> = match precisions(true).contains(&Precision::Bf16) {
        true => rounded.map(|(kind, name, flags)| (*kind, *name, format!("{flags} --precision bf16"))).collect(),
        false => Vec::new(),
    };
    let beside = |(kind, name, flags): (MeasurementKind, &'static str, String), autocast: bool| {
        let peers = scripts.map_or(Vec::new(), |scripts| scripts.of(kind, name, true));
        let peers: Vec<Peer> = match autocast {
            true => {
                let labelled = peers.into_iter().filter(|peer| !peer.name.contains("--head all"));
                labelled.map(|peer| peer.with("--autocast")).collect()
            }
            false => peers,
        };
        let alone = peers.is_empty().then(|| process(kind, &flags));
        let beside = peers.into_iter().map(|peer| process(kind, &flags).beside(peer));
        alone.into_iter().chain(beside).collect::<Vec<_>>()
    };
    let rounded: Vec<_> = rounded.into_iter().flat_map(|case| beside(case, true)).collect();
    steps
        .into_iter()
        .flat_map(|case| beside(case, false))
        .chain(rounded)
        .chain(ops.flat_map(|case| beside(case, false)))
        .collect()
}

/// Returns steps of `tokens` tokens in sequences of each of `lengths`, with one label per 16 tokens, ordered by mixer.
/// Dropout on attention weights is off, since it would keep linear attention from running as a recurrence. The
/// vocabulary is larger than the longest sequence, as the task requires.
pub fn lengths(mixers: &[String], lengths: &[usize], tokens: usize, steps: usize) -> Vec<BenchCase> {
    let vocabulary = lengths.iter().max().unwrap_or(&0) + 64;
    let case = |mixer: &str, length: usize| {
        let (pairs, batch) = ((length / 16).max(1), tokens / length);
        let flags = format!(
            "--preset paper --mixer {mixer} --d 64 --n 64 --seq-len {length} --kv-pairs {pairs} \
             --batch-size {batch} --vocab-size {vocabulary} --attn-dropout 0 --steps {steps}"
        );
        process(MeasurementKind::Step, &flags)
    };
    let each = |mixer| lengths.iter().map(move |&length| case(mixer, length));
    mixers.iter().flat_map(|mixer| each(mixer)).collect()
}

/// Returns the case of a command line after `dsf bench`, a step or an op, with `peer`.
pub fn compared(line: &[String], peer: Peer) -> Result<BenchCase> {
    let kind = match line.first().map(String::as_str) {
        Some("step") => MeasurementKind::Step,
        Some("op") => MeasurementKind::Op,
        _ => {
            let given = line.join(" ");
            refuse!("`{given}` is neither a step nor an op");
        }
    };
    Ok(process(kind, &line[1..].join(" ")).beside(peer))
}

/// Runs `dsf bench step` or `dsf bench op` in a process of its own, so that its peak memory is that of the case.
fn process(kind: MeasurementKind, flags: &str) -> BenchCase {
    let row = Measurement::new(kind, flags, DType::F32.as_str());
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let drops = kind == MeasurementKind::Step && !flags.iter().any(|flag| flag == "--dropout");
    let work = move |row: &mut Measurement, bench: &Bench, export: Option<&Path>| {
        let program = std::env::current_exe().map_err(Error::io("find", "this program"))?;
        let mut command = vec![program.display().to_string(), "bench".to_owned(), kind.name().to_owned()];
        command.extend(flags.iter().cloned());
        command.extend(["--json".to_owned(), format!("--threads={}", bench.machine.threads)]);
        if let Some(path) = export {
            command.push(format!("--export={}", path.display()));
            command.extend(drops.then(|| "--dropout=0".to_owned()));
        }
        let unreadable = |e| Error::usage(format!("{}: {e}", command.join(" ")));
        let report: MeasurementReport = serde_json::from_value(call(&command)?).map_err(unreadable)?;
        *row = Measurement {
            case: row.case.clone(),
            peer: row.peer.clone(),
            passed: row.passed,
            distance: row.distance,
            tolerance: row.tolerance,
            ..report.row
        };
        Ok(report.details)
    };
    let mut case = BenchCase::new(row, work);
    case.drops = drops;
    case
}

/// Returns all cases of a device, the most important first, since time may be limited: correctness of ops and models;
/// times of the ops that dominate a step; steps of the paper's mixers at both ends of its tasks, in every precision and
/// form, and of other tasks; with `scripts` the same with PyTorch as the peer; then all other times.
pub fn device(machine: &Machine, scripts: Option<&Scripts>) -> Vec<BenchCase> {
    let forms = StepExecution::of(machine);
    let [first, second, third, last] = of_the_paper();
    let ours = mixers_in_pytorch();
    let of_others: Vec<&str> = MIXERS.iter().map(|entry| entry.name).collect();
    let (of_the_paper, of_others): (Vec<&str>, Vec<&str>) = of_others.into_iter().partition(|name| ours.contains(name));
    let mut cases = checks(machine);
    cases.extend(op_times(machine, |op| op.early));
    for &precision in precisions(machine.is_cpu()) {
        for size in [first, last] {
            cases.extend(step_times(size, &of_the_paper, precision, forms));
        }
    }
    for &precision in precisions(machine.is_cpu()) {
        let flags = other_tasks(machine.is_cpu());
        cases.extend(flags.map(|(_, flags)| steps_of_flags(flags, precision)));
    }
    if let Some(scripts) = scripts {
        cases.extend(beside_scripts(machine, scripts));
    }
    cases.extend(op_times(machine, |op| !op.early));
    let best = &forms[forms.len() - 1..];
    for size in [first, last] {
        cases.extend(step_times(size, &of_others, Precision::F32, best));
        for mixer in of_the_paper.iter().chain(&of_others) {
            cases.push(beside_plain(size, mixer, best[0]));
        }
    }
    for size in [second, third] {
        for mixers in [&of_the_paper, &of_others] {
            cases.extend(step_times(size, mixers, Precision::F32, best));
        }
    }
    cases
}

/// Returns the precisions that differ in speed.
fn precisions(on_cpu: bool) -> &'static [Precision] {
    let simd = Simd::current();
    match on_cpu {
        true if simd < Simd::Avx512Bf16 => &[Precision::F32],
        true if simd < Simd::Amx => &[Precision::F32, Precision::Bf16],
        _ => &[Precision::F32, Precision::Tf32, Precision::Bf16],
    }
}

fn checks(machine: &Machine) -> Vec<BenchCase> {
    let mut cases = op_checks(machine, Tier::Small);
    cases.extend(op_checks(machine, Tier::Medium));
    for &form in StepExecution::of(machine) {
        for entry in MIXERS {
            for &precision in precisions(machine.is_cpu()) {
                let row = Measurement::new(MeasurementKind::Model, SMALL.case(entry.name, form), precision.as_str());
                cases.push(BenchCase::new(row, move |row, bench, _| {
                    check::model(row, entry.name, precision, form, &bench.machine.device)
                }));
            }
        }
    }
    cases.extend(op_checks(machine, Tier::Large));
    cases
}

fn op_checks(machine: &Machine, tier: Tier) -> Vec<BenchCase> {
    let mut cases = Vec::new();
    for op in ops::all() {
        for &io in machine.types() {
            let case = format!("{} {} {}", tier.name(), op.name, op.sizes_of(&tier.shape(op)));
            let row = Measurement::new(MeasurementKind::Check, case, io.as_str());
            cases.push(BenchCase::new(row, move |row, bench, _| check::op(row, op, tier, io, &bench.machine.device)));
        }
    }
    cases
}

fn op_times(machine: &Machine, wanted: impl Fn(&Op) -> bool) -> Vec<BenchCase> {
    let mut cases = Vec::new();
    for op in ops::all().filter(|op| wanted(op)) {
        for shape in op.sizes.on_gpu() {
            for &io in machine.types() {
                for pass in [TimedPasses::Forward, TimedPasses::Both] {
                    let timing = OpTiming { op, shape, io, schedule: OP_CALLS };
                    cases.push(BenchCase::new(timing.row(pass), move |row, bench, _| {
                        let inputs = op.draw(&shape, io, DISTINCT)?;
                        timing.time(pass, row, &inputs, &bench.machine)?;
                        row.predicted = predicted(op, &shape, io, pass);
                        Ok(Details::new())
                    }));
                }
            }
        }
    }
    cases
}

fn step_times(
    size: StepShape,
    mixers: &[&'static str],
    precision: Precision,
    forms: &[StepExecution],
) -> Vec<BenchCase> {
    let of_form = |form: &StepExecution| {
        mixers.iter().map(|mixer| steps(size, mixer, precision, *form, None)).collect::<Vec<_>>()
    };
    forms.iter().flat_map(of_form).collect()
}

/// Returns steps of one of our models on one of the paper's tasks; `None` keeps the protocol's dropout.
fn steps(
    size: StepShape,
    mixer: &'static str,
    precision: Precision,
    form: StepExecution,
    dropout: Option<f64>,
) -> BenchCase {
    step(size.case(mixer, form), precision, form, move || size.config(mixer, precision, dropout))
}

/// Returns steps of `dsf bench step` with these flags, launched op by op, since batches of documents differ in shape.
fn steps_of_flags(flags: String, precision: Precision) -> BenchCase {
    let whole = format!("{flags} --precision {}", precision.as_str());
    step(flags, precision, StepExecution::Launched, move || of_flags(&whole))
}

fn step(
    case: String,
    precision: Precision,
    form: StepExecution,
    config: impl Fn() -> Result<RunConfig> + 'static,
) -> BenchCase {
    BenchCase::new(Measurement::new(MeasurementKind::Step, case, precision.as_str()), move |row, bench, export| {
        TimedSteps::scheduled(config()?, STEP_CALLS, form)?.measure(row, &bench.machine, &bench.data, export)
    })
}

/// Returns the same steps, also timed with ops computed by their definitions.
fn beside_plain(size: StepShape, mixer: &'static str, form: StepExecution) -> BenchCase {
    let fused = steps(size, mixer, Precision::F32, form, None);
    let plain = steps(size, mixer, Precision::F32, StepExecution::Launched, None);
    let mut row = fused.row;
    row.peer = PLAIN.to_owned();
    BenchCase::new(row, move |row, bench, _| {
        let details = (fused.work)(row, bench, None)?;
        let mut theirs = Measurement::default();
        if let Err(refusal) = by_route(Route::Reference, || (plain.work)(&mut theirs, bench, None)) {
            row.note = format!("absent: {}", first_line(&refusal));
        }
        if let (Some(ours), Some(theirs)) = (row.seconds, theirs.seconds) {
            row.took_by_turns(&[ours], &[theirs]);
        }
        Ok(details)
    })
}

fn beside_scripts(machine: &Machine, scripts: &Scripts) -> Vec<BenchCase> {
    let peers = |kind, name| scripts.of(kind, name, machine.is_cpu()).into_iter();
    let mut cases = Vec::new();
    for sizes in [TASKS[0], TASKS[3], MAMBA] {
        for op in ops::all() {
            let beside = |peer| both_passes(op, sizes.into()).beside(peer);
            cases.extend(peers(MeasurementKind::Op, op.name).map(beside));
        }
    }
    let form = *StepExecution::of(machine).last().unwrap_or(&StepExecution::Launched);
    let [first, second, third, last] = of_the_paper();
    for size in [first, last, second, third] {
        for entry in MIXERS {
            let case = || steps(size, entry.name, Precision::F32, form, Some(0.0));
            cases.extend(peers(MeasurementKind::Step, entry.name).map(|peer| case().beside(peer)));
        }
    }
    for (name, flags) in other_tasks(machine.is_cpu()) {
        let case = |precision| steps_of_flags(flags.clone(), precision);
        cases.extend(peers(MeasurementKind::Step, name).map(|peer| case(Precision::F32).beside(peer)));
        if precisions(machine.is_cpu()).contains(&Precision::Bf16) {
            let in_bf16 = peers(MeasurementKind::Step, name).map(|peer| peer.with("--autocast"));
            cases.extend(in_bf16.map(|peer| case(Precision::Bf16).beside(peer)));
        }
    }
    cases
}

/// Returns forward and backward of an op in f32.
pub(super) fn both_passes(op: &'static Op, shape: OpShape) -> BenchCase {
    let timing = OpTiming { op, shape, io: DType::F32, schedule: OP_CALLS };
    BenchCase::new(timing.row(TimedPasses::Both), move |row, bench, export| timing.measure(row, &bench.machine, export))
}
