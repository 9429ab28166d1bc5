//! Nothing is lost: kills, signals, two processes in one folder.

use super::{numbers, World};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Long enough to be interrupted, short enough to wait for.
const RUN: &str = "mqar --preset smoke --d 32 --train-examples 4000 --epochs 6 --lr 1e-4";
const TEXT: &str = "wikitext --preset smoke --mixer linear --train-examples 150 --batch-size 3 --epochs 8";
const SWEEP: &str = "sweep --preset smoke --d 32 --mixer ssd,softmax --train-examples 4000 --epochs 6 --lr 1e-4";

pub(super) fn start(world: &World, line: &str) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin("dsf"))
        .args(line.split_whitespace())
        .current_dir(world.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub(super) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// Waits until some run under `out` has written an epoch.
pub(crate) fn wait_for_an_epoch(world: &World, out: &str) {
    wait_for_epochs(world, out, 1);
}

/// Waits until some run under `out` has written so many epochs.
pub(super) fn wait_for_epochs(world: &World, out: &str, epochs: usize) {
    let began = Instant::now();
    let has_epoch = |run: &std::path::PathBuf| {
        let metrics = fs::read_to_string(run.join("metrics.csv"));
        metrics.is_ok_and(|text| text.lines().count() > epochs)
    };
    while !(world.path(out).join("runs").exists() && world.runs(out).iter().any(has_epoch)) {
        assert!(began.elapsed() < Duration::from_secs(60), "no epoch within a minute");
        sleep(Duration::from_millis(5));
    }
}

/// The runs under `out`, of which there may be none yet.
fn begun(world: &World, out: &str) -> Vec<PathBuf> {
    match world.path(out).join("runs").exists() {
        true => world.runs(out),
        false => Vec::new(),
    }
}

fn finished(run: &Path) -> bool {
    run.join("result.json").exists()
}

#[test]
fn a_terminated_run_checkpoints_and_goes_on_to_the_same_bits() {
    let world = World::new();
    world.dsf(&format!("{RUN} --out whole -q")).ok();
    let mut child = start(&world, &format!("{RUN} --out cut"));
    wait_for_an_epoch(&world, "cut");
    signal(&child, "-TERM");
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(75), "the run was over before the signal");
    let run = world.only_run("cut");
    assert!(run.join("checkpoint.safetensors").exists() && !finished(&run));
    let said = world.dsf(&format!("{RUN} --out cut"));
    assert!(said.err.contains("continuing"), "{}", said.err);
    said.ok();
    assert_eq!(numbers(&run), numbers(&world.only_run("whole")));
}

#[test]
fn a_killed_run_starts_again_and_loses_nothing_but_time() {
    let world = World::new();
    world.dsf(&format!("{RUN} --out whole -q")).ok();
    let mut child = start(&world, &format!("{RUN} --out cut"));
    wait_for_an_epoch(&world, "cut");
    child.kill().unwrap();
    child.wait().unwrap();
    world.dsf(&format!("{RUN} --out cut -q")).ok();
    assert_eq!(numbers(&world.only_run("cut")), numbers(&world.only_run("whole")));
}

/// A signal leaves a checkpoint, and a kill goes back to it: the losses of steps after it are cut off.
#[test]
fn a_run_on_text_stopped_and_killed_in_turn_leaves_the_files_of_an_unbroken_one() {
    let world = World::new();
    world.dsf(&format!("{TEXT} --out whole -q")).ok();
    for (epochs, name) in [(1, "-TERM"), (2, "-KILL"), (3, "-TERM"), (4, "-KILL")] {
        let mut child = start(&world, &format!("{TEXT} --out cut"));
        wait_for_epochs(&world, "cut", epochs);
        signal(&child, name);
        let status = child.wait().unwrap();
        assert!(!status.success(), "the run was over before the signal");
    }
    let said = world.dsf(&format!("{TEXT} --out cut"));
    assert!(said.err.contains("continuing"), "{}", said.err);
    assert!(!said.err.contains("warning"), "{}", said.err);
    said.ok();
    let (whole, cut) = (world.only_run("whole"), world.only_run("cut"));
    assert_eq!(numbers(&cut), numbers(&whole));
    for file in ["losses.csv", "best.safetensors", "weights.safetensors"] {
        let read = |run: &Path| fs::read(run.join(file)).unwrap();
        assert!(read(&cut) == read(&whole), "{file}");
    }
    let losses = fs::read_to_string(cut.join("losses.csv")).unwrap();
    assert_eq!(losses.lines().count(), 1 + 8 * 50);
    let scores = |run: &Path| {
        let text = fs::read_to_string(run.join("result.json")).unwrap();
        let mut scores: serde_json::Value = serde_json::from_str(&text).unwrap();
        let fields = scores.as_object_mut().unwrap();
        fields.retain(|name, _| name.contains("_ppl") || name.contains("bits_per_byte"));
        scores
    };
    assert!(scores(&whole)["train_ppl"].is_number());
    assert_eq!(scores(&cut), scores(&whole));
}

/// Done means that all of it is there: a run whose weights cannot be written stops, and goes on when they can.
#[test]
fn a_run_whose_weights_cannot_be_written_is_not_done_until_they_can() {
    for file in ["best.safetensors", "weights.safetensors"] {
        let world = World::new();
        world.dsf("wikitext --preset smoke -q").ok();
        let run = world.only_run("results");
        for file in ["result.json", file] {
            fs::remove_file(run.join(file)).unwrap();
        }
        fs::create_dir_all(run.join(file).join("taken")).unwrap();
        let fault = world.fails("wikitext --preset smoke", "io");
        assert!(fault.path.unwrap().ends_with(file));
        assert!(!finished(&run));
        fs::remove_dir_all(run.join(file)).unwrap();
        let out = world.dsf("wikitext --preset smoke").ok();
        assert!(out.contains("generate --checkpoint"), "{out}");
        assert!(finished(&run) && run.join(file).is_file());
    }
}

/// The memory killer of a system, say, ends a worker: the retry goes on from its checkpoint.
#[test]
fn a_run_whose_worker_was_killed_goes_on_from_its_checkpoint_when_it_is_retried() {
    let world = World::new();
    let line = "sweep --preset smoke --mixer softmax --d 32 --train-examples 4000 --epochs 400 --lr 1e-4 \
                --checkpoint-every 0.017";
    let mut sweep = start(&world, line);
    let began = Instant::now();
    let checkpoint = loop {
        let runs = begun(&world, "results");
        let found = runs.first().map(|run| run.join("checkpoint.safetensors"));
        let epochs = |path: &PathBuf| path.with_file_name("metrics.csv").exists();
        match found.filter(|path| path.exists() && epochs(path)) {
            Some(path) => break path,
            None => assert!(began.elapsed() < Duration::from_secs(120), "no checkpoint"),
        }
        sleep(Duration::from_millis(5));
    };
    // One that knows of an epoch, however slow the machine is.
    wait_for_an_epoch(&world, "results");
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let epoch = changed(&world.only_run("results").join("metrics.csv"));
    while changed(&checkpoint) <= epoch {
        assert!(began.elapsed() < Duration::from_secs(60), "no checkpoint");
        sleep(Duration::from_millis(5));
    }
    let workers = Command::new("pkill").args(["-KILL", "-P", &sweep.id().to_string()]).status();
    assert!(workers.unwrap().success());
    assert_eq!(sweep.wait().unwrap().code(), Some(3));
    let run = world.only_run("results");
    let result = fs::read_to_string(run.join("result.json")).unwrap();
    assert!(result.contains("killed by signal 9"), "{result}");
    assert!(checkpoint.exists(), "a retry needs it");
    let skipped = world.dsf(line);
    assert_eq!(skipped.code, 3, "what failed before is not done");
    let metrics = || fs::read_to_string(run.join("metrics.csv")).unwrap();
    let before = metrics();
    let mut retry = start(&world, &format!("{line} --retry-failed"));
    wait_for_epochs(&world, "results", before.lines().count());
    signal(&retry, "-TERM");
    assert_eq!(retry.wait().unwrap().code(), Some(75));
    let kept = before.lines().nth(1).unwrap();
    assert!(metrics().contains(kept), "the first epoch was trained again");
}

#[test]
fn a_damaged_checkpoint_is_noticed_and_the_one_before_is_used() {
    let world = World::new();
    // Too long to end before its second checkpoint.
    let line = "mqar --preset smoke --d 32 --train-examples 4000 --epochs 4000 --lr 1e-4 --checkpoint-every 0.017";
    let mut child = start(&world, line);
    wait_for_an_epoch(&world, "results");
    let began = Instant::now();
    let before = |run: &PathBuf| run.join("checkpoint-before.safetensors").exists();
    while !begun(&world, "results").iter().any(before) {
        assert!(began.elapsed() < Duration::from_secs(60), "no checkpoint");
        sleep(Duration::from_millis(5));
    }
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(75));
    let run = world.only_run("results");
    let newest = run.join("checkpoint.safetensors");
    let mut bytes = fs::read(&newest).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&newest, bytes).unwrap();
    // Losses and accuracies by epoch, without times.
    let epochs = || -> Vec<String> {
        let text = fs::read_to_string(run.join("metrics.csv")).unwrap();
        let cut = |row: &str| row.split(',').take(4).collect::<Vec<_>>().join(",");
        text.lines().skip(1).map(cut).collect()
    };
    let known = epochs();
    let said = fs::File::create(world.path("said")).unwrap();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("dsf"))
        .args(line.split_whitespace())
        .current_dir(world.path(""))
        .stderr(said)
        .spawn()
        .unwrap();
    wait_for_epochs(&world, "results", known.len() + 1);
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(75));
    let said = fs::read_to_string(world.path("said")).unwrap();
    assert!(said.contains("damaged") && said.contains("continuing"), "{said}");
    assert_eq!(epochs()[..known.len()], known);
}

#[test]
fn a_row_that_a_kill_kept_out_of_the_summary_comes_back() {
    let world = World::new();
    for line in ["mqar --preset smoke --mixer ssd -q", "sweep --preset smoke --mixer ssd -q"] {
        world.dsf("mqar --preset smoke --mixer ssd -q").ok();
        let summary = world.path("results/mqar.csv");
        let rows = fs::read_to_string(&summary).unwrap();
        fs::remove_file(&summary).unwrap();
        world.dsf(line).ok();
        assert_eq!(fs::read_to_string(&summary).unwrap(), rows, "{line}");
    }
}

#[test]
fn a_killed_sweep_leaves_no_orphan_and_ends_like_an_unbroken_one() {
    let world = World::new();
    world.dsf(&format!("{SWEEP} --out whole -q")).ok();
    let mut child = start(&world, &format!("{SWEEP} --out cut"));
    wait_for_an_epoch(&world, "cut");
    child.kill().unwrap();
    child.wait().unwrap();
    // The worker notices that its parent is gone, writes a checkpoint and frees the run.
    let began = Instant::now();
    loop {
        let said = world.dsf(&format!("{SWEEP} --out cut"));
        if said.code == 0 && !said.out.contains("another process") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}{}", said.out, said.err);
        sleep(Duration::from_millis(100));
    }
    let (whole, cut) = (world.runs("whole"), world.runs("cut"));
    assert_eq!(whole.len(), 2);
    for (whole, cut) in whole.iter().zip(&cut) {
        assert_eq!(whole.file_name(), cut.file_name());
        assert_eq!(numbers(whole), numbers(cut));
    }
}

#[test]
fn a_terminated_sweep_stops_its_workers_and_says_how_to_go_on() {
    let world = World::new();
    let mut child = start(&world, SWEEP);
    wait_for_an_epoch(&world, "results");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(75));
    assert!(world.runs("results").iter().any(|run| !finished(run)));
    let said = world.dsf(SWEEP).ok();
    assert!(said.contains("2 runs:"), "{said}");
}

#[test]
fn two_sweeps_in_one_folder_train_every_run_once() {
    let world = World::new();
    let line = "sweep --preset smoke --mixer ssd,softmax,linear --d 8,16 --seeds 2 -q --threads 1";
    let (mut first, mut second) = (start(&world, line), start(&world, line));
    // The code says so where the last runs were still in the hands of the other sweep.
    let codes = [&mut first, &mut second].map(|child| child.wait().unwrap().code());
    assert!(codes.iter().all(|code| [Some(0), Some(69)].contains(code)), "{codes:?}");
    assert!(codes.contains(&Some(0)), "{codes:?}");
    let runs = world.runs("results");
    assert_eq!(runs.len(), 12);
    let said = world.dsf(&line.replace(" -q", "")).ok();
    assert!(said.contains("12 runs: 0 finished, 12 done before."), "{said}");
    let summary = std::fs::read_to_string(world.path("results/mqar.csv")).unwrap();
    assert_eq!(summary.lines().count(), 13);
}
