//! The same work in PyTorch on the same device, by turns: ours, theirs, ours.

use super::check::{self, inputs};
use super::sizes::{of_the_paper, Size};
use super::steps::{Form, Steps};
use super::timings::{self, Way};
use super::{DeviceBench, DeviceRow, Kind, Task};
use crate::bench::driver::{call, difference, number};
use crate::bench::export::save;
use crate::bench::ops::{Op, Shape, TASKS};
use crate::bench::step::export;
use crate::error::{Error, Result};
use crate::train::Trainer;
use candle_core::DType;
use serde_json::Value;
use std::path::Path;

/// Steps that both sides make, of which the peer times those after the first few.
const STEPS: usize = 10;

/// Losses and sums of both sides must agree to this, relative: a GPU adds in other orders.
const TOLERANCE: f64 = 1e-4;

/// The head at every position, as released, and where a label is.
const HEADS: &[&str] = &["step.py --head all", "step.py --head labelled"];

const S6: &[&str] = &[
    "step.py --head all --form replay",
    "step.py --head all --form mamba",
    "step.py --head labelled --form compiled",
    "step.py --head labelled --form mamba",
];

const MODELS: &[(&str, &[&str])] = &[
    ("s6", S6),
    ("softmax", HEADS),
    ("ssd", HEADS),
    ("normalized", HEADS),
    ("linear", HEADS),
    ("qlstm", HEADS),
];

const SCANS: &[&str] = &[
    "scan.py --form mamba",
    "scan.py --form compiled",
    "scan.py --form replay",
];

/// A usual layer of Mamba.
const MAMBA: [usize; 4] = [8, 2048, 1536, 16];

pub(super) fn tasks(bench: &DeviceBench) -> Vec<Task> {
    let [first, second, third, last] = of_the_paper();
    let mut tasks = Vec::new();
    for sizes in [TASKS[0], TASKS[3], MAMBA] {
        tasks.extend(SCANS.iter().map(|peer| scan(sizes, peer)));
    }
    for size in [first, last, second, third] {
        for (mixer, peers) in MODELS {
            tasks.extend(
                peers
                    .iter()
                    .map(|peer| step(size, mixer, peer, bench.best_form())),
            );
        }
    }
    tasks
}

fn step(size: Size, mixer: &'static str, peer: &'static str, form: Form) -> Task {
    let of = Steps {
        size,
        mixer,
        io: DType::F32,
        form,
        dropout: Some(0.0),
    };
    let case = format!("{} {}", size.case(mixer), form.name());
    let mut row = DeviceRow::new(Kind::Step, case, DType::F32);
    row.peer = peer.to_owned();
    Task::new(row, move |row, bench| {
        let folder = tempfile::tempdir().map_err(Error::io("create", "a temporary folder"))?;
        let file = folder.path().join("step.safetensors");
        let config = of.config(STEPS)?;
        let data = bench.data(&config.task)?;
        let mut trainer = Trainer::new(&config, &data, &bench.device)?;
        form.prepare(&mut trainer);
        export(&file, &trainer, &data, config.train.batch_size)?;
        let losses = (0..STEPS).map(|_| trainer.step());
        let losses = losses.collect::<Result<Vec<f64>>>()?;
        drop(trainer);
        let (lr, decay) = (config.train.lr, config.train.weight_decay);
        let more = format!("--mixer {mixer} --lr {lr} --wd {decay} --dropout 0 --warm 4 --steps 6");
        let ours = |row: &mut DeviceRow| of.time(row, bench);
        by_turns(row, bench, &[peer, &more].join(" "), &file, &losses, &ours)
    })
}

pub(super) fn scan(sizes: [usize; 4], peer: &'static str) -> Task {
    let [batch, len, width, states] = sizes;
    let case = format!("selective_scan {batch},{len},{width},{states} both");
    let mut row = DeviceRow::new(Kind::Op, case, DType::F32);
    row.peer = peer.to_owned();
    Task::new(row, move |row, bench| {
        let op = Op::find("selective_scan")?;
        let shape = Shape {
            batch,
            len,
            width,
            states,
            heads: 1,
        };
        let folder = tempfile::tempdir().map_err(Error::io("create", "a temporary folder"))?;
        let file = folder.path().join("scan.safetensors");
        let given = inputs(op, &shape, DType::F32)?;
        let named = given.iter().enumerate();
        let named = named.map(|(i, x)| (format!("input.{i}"), x.values().clone()));
        save(&file, named.collect())?;
        let sums = check::sums(op, &given, &bench.device)?;
        drop(given);
        let ours = |row: &mut DeviceRow| {
            timings::measure(row, op, &shape, DType::F32, Way::Both, &bench.device)
        };
        by_turns(row, bench, peer, &file, &sums, &ours)
    })
}

/// Ours, theirs, ours. Nothing is timed unless both sides compute the same.
fn by_turns(
    row: &mut DeviceRow,
    bench: &DeviceBench,
    peer: &str,
    file: &Path,
    losses: &[f64],
    ours: &dyn Fn(&mut DeviceRow) -> Result<()>,
) -> Result<()> {
    ours(row)?;
    let before = row.seconds;
    bench.device.synchronize()?;
    let command = command(bench, peer, file)?;
    let report = call(&command)?;
    if let Value::String(why) = &report["absent"] {
        row.note = format!("absent: {why}");
        return Ok(());
    }
    row.apart(difference(losses, &report, &command)?, TOLERANCE);
    if row.failed() {
        row.note = "both sides compute something else".to_owned();
        return Ok(());
    }
    ours(row)?;
    // The slower of ours: what disturbed one of them may have disturbed the peer.
    row.seconds = row.seconds.zip(before).map(|(a, b)| a.max(b));
    row.beside(number(&report, "s_per_step")?);
    Ok(())
}

/// -B: leave no compiled files beside the scripts.
fn command(bench: &DeviceBench, peer: &str, file: &Path) -> Result<Vec<String>> {
    let Some((python, folder)) = &bench.python else {
        return Err(Error::usage("peers need --python"));
    };
    let (script, words) = peer.split_once(' ').unwrap_or((peer, ""));
    let paths = [python, &folder.join(script)].map(|p| p.display().to_string());
    let [python, script] = paths;
    let file = file.display().to_string();
    let mut command = vec![python, "-B".to_owned(), script];
    command.extend(words.split_whitespace().map(str::to_owned));
    command.extend([
        "--load".to_owned(),
        file,
        "--device".to_owned(),
        bench.name.clone(),
    ]);
    Ok(command)
}
