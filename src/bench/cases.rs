//! The list of cases: what `dsf bench all`, `lengths`, `compare` and `--device` measure.

use super::check::{self, by_route, MEDIUM_SHAPE, SMALL_SHAPE};
use super::driver::{Bench, Case, Work};
use super::machine::Machine;
use super::op::OpTiming;
use super::ops::{self, Op, Pass, Shape, MAMBA, TASKS};
use super::peers::{call, Peer, Scripts};
use super::predicted::predicted;
use super::row::{Details, Kind, Report, Row};
use super::step::{of_the_paper, Form, Size, Step, SMALL};
use super::timer::Schedule;
use crate::error::{Error, Result};
use crate::mixers::MIXERS;
use crate::ops::Route;
use candle_core::DType;
use std::path::Path;

/// Calls of an op on a GPU.
const OP_CALLS: Schedule = Schedule {
    warm_up: 2,
    rounds: 5,
    round_seconds: 0.02,
    most_calls: 1 << 14,
};

/// Steps on a GPU.
const STEP_CALLS: Schedule = Schedule {
    warm_up: 4,
    rounds: 5,
    round_seconds: 0.25,
    most_calls: 20,
};

/// Random numbers drawn for a large input before they repeat.
const DISTINCT: usize = 1 << 16;

/// The name of the other side that computes ops by their definitions.
const PLAIN: &str = "plain tensor ops";

/// A case for `work`, or one for each peer.
fn beside_each(peers: Vec<Peer>, case: impl Fn() -> Case) -> Vec<Case> {
    match peers.is_empty() {
        true => vec![case()],
        false => peers.into_iter().map(|peer| case().beside(peer)).collect(),
    }
}

/// A step of every mixer on the paper's smallest task and every op at one size, on a CPU, each in a process
/// of its own; with `scripts` beside PyTorch.
pub fn cpu(scripts: Option<&Scripts>) -> Vec<Case> {
    let peers = |name: &str| scripts.map_or(Vec::new(), |scripts| scripts.of(name, true));
    let steps = MIXERS.iter().flat_map(|entry| {
        let name = entry.name;
        let flags = format!("--preset full --mixer {name} --d 64 --n 64 --batch-size 512");
        beside_each(peers(name), || Process::case(Kind::Step, &flags))
    });
    let ops = ops::all().flat_map(|op| {
        let shapes = op.sizes.on_cpu().into_iter();
        shapes.flat_map(|shape| {
            let flags = format!("{} --shape {}", op.name, op.sizes_of(&shape));
            beside_each(peers(op.name), || Process::case(Kind::Op, &flags))
        })
    });
    steps.chain(ops).collect()
}

/// Steps of `tokens` tokens in sequences of each of `lengths`, one label in 16 tokens, mixer by mixer. Dropout
/// on attention weights is off, since it alone keeps linear attention from running as a recurrence; the
/// vocabulary is larger than the longest sequence, as the task wants it, at every length.
pub fn lengths(mixers: &[String], lengths: &[usize], tokens: usize, steps: usize) -> Vec<Case> {
    let vocabulary = lengths.iter().max().unwrap_or(&0) + 64;
    let case = |mixer: &str, length: usize| {
        let (pairs, batch) = ((length / 16).max(1), tokens / length);
        let flags = format!(
            "--preset full --mixer {mixer} --d 64 --n 64 --seq-len {length} --kv-pairs {pairs} \
             --batch-size {batch} --vocab-size {vocabulary} --attn-dropout 0 --steps {steps}"
        );
        Process::case(Kind::Step, &flags)
    };
    let each = |mixer| lengths.iter().map(move |&length| case(mixer, length));
    mixers.iter().flat_map(|mixer| each(mixer)).collect()
}

/// The case of a command line behind `dsf bench`, which is a step or an op, beside `peer`.
pub fn compared(line: &[String], peer: Peer) -> Result<Case> {
    let (kind, flags) = match line {
        [first, flags @ ..] if first == "step" => (Kind::Step, flags),
        [first, flags @ ..] if first == "op" => (Kind::Op, flags),
        _ => {
            let given = line.join(" ");
            return Err(Error::usage(format!(
                "`{given}` is neither a step nor an op"
            )));
        }
    };
    Ok(Process::case(kind, &flags.join(" ")).beside(peer))
}

/// Everything about a device: the correctness of ops and models first, then the time of ops and of steps; with
/// `scripts` the same beside PyTorch.
pub fn device(machine: &Machine, scripts: Option<&Scripts>) -> Vec<Case> {
    let mut cases = checks(machine);
    cases.extend(models(machine));
    cases.extend(op_times(machine));
    cases.extend(step_times(machine));
    if let Some(scripts) = scripts {
        cases.extend(beside_scripts(machine, scripts));
    }
    cases
}

fn checks(machine: &Machine) -> Vec<Case> {
    let mut cases = Vec::new();
    for (size, shape, route) in [
        ("small", SMALL_SHAPE, Route::Reference),
        ("medium", MEDIUM_SHAPE, Route::Fused),
    ] {
        for op in ops::all() {
            for &io in machine.types() {
                let shape = op.heads_of(shape);
                let case = format!("{size} {} {}", op.name, op.sizes_of(&shape));
                let row = Row::new(Kind::Check, case, io.as_str());
                let work = OpCheck {
                    op,
                    shape,
                    io,
                    route,
                };
                cases.push(Case::new(row, work));
            }
        }
    }
    cases
}

fn models(machine: &Machine) -> Vec<Case> {
    let mut cases = Vec::new();
    for &form in Form::of(machine) {
        for entry in MIXERS {
            for &io in machine.types() {
                let mixer = entry.name;
                let row = Row::new(Kind::Model, SMALL.case(mixer, form), io.as_str());
                cases.push(Case::new(row, ModelCheck { mixer, io, form }));
            }
        }
    }
    cases
}

fn op_times(machine: &Machine) -> Vec<Case> {
    let mut cases = Vec::new();
    for op in ops::all() {
        for shape in op.sizes.on_gpu() {
            for &io in machine.types() {
                for pass in [Pass::Forward, Pass::Both] {
                    let timing = OpTiming {
                        op,
                        shape,
                        io,
                        schedule: OP_CALLS,
                    };
                    let case = format!("{} {}", timing.case(), pass.name());
                    let row = Row::new(Kind::Op, case, io.as_str());
                    cases.push(Case::new(row, OnePass { timing, pass }));
                }
            }
        }
    }
    cases
}

fn step_times(machine: &Machine) -> Vec<Case> {
    let sizes = of_the_paper();
    let ends = [sizes[0], sizes[3]];
    let Some((&best, others)) = Form::of(machine).split_last() else {
        return Vec::new();
    };
    let mut cases = Vec::new();
    let mut add = |size: Size, io: DType, form: Form, beside_plain: bool| {
        for entry in MIXERS {
            let mut row = Row::new(Kind::Step, size.case(entry.name, form), io.as_str());
            if beside_plain {
                row.peer = PLAIN.to_owned();
            }
            let steps = Steps {
                size,
                mixer: entry.name,
                io,
                form,
                dropout: None,
                beside_plain,
            };
            cases.push(Case::new(row, steps));
        }
    };
    for size in sizes {
        for &io in machine.types() {
            add(size, io, best, false);
        }
    }
    for size in ends {
        for &form in others {
            add(size, DType::F32, form, false);
        }
        add(size, DType::F32, best, true);
    }
    cases
}

fn beside_scripts(machine: &Machine, scripts: &Scripts) -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in [TASKS[0], TASKS[3], MAMBA] {
        for op in ops::all() {
            let peers = scripts.of(op.name, machine.is_cpu()).into_iter();
            cases.extend(peers.map(|peer| both_passes(op, sizes.into(), peer)));
        }
    }
    let [first, second, third, last] = of_the_paper();
    for size in [first, last, second, third] {
        for entry in MIXERS {
            for peer in scripts.of(entry.name, machine.is_cpu()) {
                let form = *Form::of(machine).last().unwrap_or(&Form::Launched);
                let io = DType::F32;
                let row = Row::new(Kind::Step, size.case(entry.name, form), io.as_str());
                let steps = Steps {
                    size,
                    mixer: entry.name,
                    io,
                    form,
                    dropout: Some(0.0),
                    beside_plain: false,
                };
                cases.push(Case::new(row, steps).beside(peer));
            }
        }
    }
    cases
}

/// Forward and backward of an op in f32, beside a peer.
pub(super) fn both_passes(op: &'static Op, shape: Shape, peer: Peer) -> Case {
    let timing = OpTiming {
        op,
        shape,
        io: DType::F32,
        schedule: OP_CALLS,
    };
    let case = format!("{} {}", timing.case(), Pass::Both.name());
    let row = Row::new(Kind::Op, case, timing.io.as_str());
    Case::new(row, timing).beside(peer)
}

/// `dsf bench step` or `dsf bench op` in a process of its own, whose memory is that of the case alone.
struct Process {
    words: Vec<String>,
}

impl Process {
    fn case(kind: Kind, flags: &str) -> Case {
        let command = match kind {
            Kind::Step => "step",
            _ => "op",
        };
        let words = [command].into_iter().chain(flags.split_whitespace());
        let words = words.map(str::to_owned).collect();
        Case::new(Row::new(kind, flags, DType::F32.as_str()), Self { words })
    }
}

impl Work for Process {
    fn measure(&self, row: &mut Row, bench: &Bench, export: Option<&Path>) -> Result<Details> {
        let program = std::env::current_exe().map_err(Error::io("find", "this program"))?;
        let mut command = vec![program.display().to_string(), "bench".to_owned()];
        command.extend(self.words.iter().cloned());
        let threads = bench.machine.threads.to_string();
        command.extend(["--json", "--threads", &threads].map(str::to_owned));
        if let Some(path) = export {
            command.extend(["--export".to_owned(), path.display().to_string()]);
            if self.drops() {
                command.extend(["--dropout", "0"].map(str::to_owned));
            }
        }
        let report = call(&command)?;
        let unreadable = |e| Error::usage(format!("{}: {e}", command.join(" ")));
        let report: Report = serde_json::from_value(report).map_err(unreadable)?;
        *row = Row {
            case: row.case.clone(),
            peer: row.peer.clone(),
            passed: row.passed,
            distance: row.distance,
            tolerance: row.tolerance,
            ..report.row
        };
        Ok(report.details)
    }

    fn drops(&self) -> bool {
        self.words.first().is_some_and(|word| word == "step")
    }
}

struct OpCheck {
    op: &'static Op,
    shape: Shape,
    io: DType,
    /// How the CPU computes what is expected.
    route: Route,
}

impl Work for OpCheck {
    fn measure(&self, row: &mut Row, bench: &Bench, _: Option<&Path>) -> Result<Details> {
        let device = &bench.machine.device;
        check::op(row, self.op, &self.shape, self.io, self.route, device)?;
        Ok(Details::new())
    }
}

struct ModelCheck {
    mixer: &'static str,
    io: DType,
    form: Form,
}

impl Work for ModelCheck {
    fn measure(&self, row: &mut Row, bench: &Bench, _: Option<&Path>) -> Result<Details> {
        check::model(row, self.mixer, self.io, self.form, &bench.machine.device)?;
        Ok(Details::new())
    }
}

struct OnePass {
    timing: OpTiming,
    pass: Pass,
}

impl Work for OnePass {
    fn measure(&self, row: &mut Row, bench: &Bench, _: Option<&Path>) -> Result<Details> {
        let OpTiming { op, shape, io, .. } = self.timing;
        let inputs = op.draw(&shape, io, DISTINCT)?;
        self.timing.time(self.pass, row, &inputs, &bench.machine)?;
        row.predicted = predicted(op, &shape, io, self.pass);
        Ok(Details::new())
    }
}

impl Work for OpTiming {
    fn measure(&self, row: &mut Row, bench: &Bench, export: Option<&Path>) -> Result<Details> {
        self.measure(row, &bench.machine, export)
    }
}

/// Steps of one of our models on one of the paper's tasks.
struct Steps {
    size: Size,
    mixer: &'static str,
    io: DType,
    form: Form,
    /// Another dropout than the protocol's.
    dropout: Option<f64>,
    /// Whether they are also timed with ops computed by their definitions.
    beside_plain: bool,
}

impl Work for Steps {
    fn measure(&self, row: &mut Row, bench: &Bench, export: Option<&Path>) -> Result<Details> {
        let steps = |form| {
            let config = self.size.config(self.mixer, self.io, self.dropout)?;
            Step::scheduled(config, STEP_CALLS, form)
        };
        let (machine, data) = (&bench.machine, &bench.data);
        let details = steps(self.form)?.measure(row, machine, data, export)?;
        if self.beside_plain {
            let mut plain = Row::default();
            by_route(Route::Reference, || {
                steps(Form::Launched)?.measure(&mut plain, machine, data, None)
            })?;
            if let (Some(ours), Some(theirs)) = (row.seconds, plain.seconds) {
                row.took_by_turns(&[ours], &[theirs]);
            }
        }
        Ok(details)
    }
}
