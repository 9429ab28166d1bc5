//! `dsf worker --host`, on the CPU: what `dsf sweep --per-gpu` starts on a GPU.

use super::recovery::{signal, wait_for_an_epoch};
use super::{numbers, World};
use dsf::config::RunConfig;
use dsf::error::{Error, Result};
use dsf::recipes;
use dsf::store::{Status, Store};
use dsf::sweep::{
    run_all, Ended, Hosts, Job, Limits, Options, Plan, Program, Request, SweepEvent, Tally, TrainRequest, Training,
    WorkerMessage,
};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LONG: [(&str, &str); 5] =
    [("preset", "smoke"), ("d", "32"), ("train-examples", "4000"), ("epochs", "6"), ("lr", "1e-4")];

fn long(mixer: &str) -> RunConfig {
    recipes::run("mqar", &[&LONG[..], &[("mixer", mixer)]].concat()).unwrap()
}

fn plan(runs: impl Into<Vec<RunConfig>>) -> Plan {
    Plan { runs: runs.into(), ..Plan::default() }
}

/// Trains in one process into the folder `out`; `begun` counts the runs that have begun to train.
fn sweep_counted(world: &World, out: &str, plan: &Plan, stop: &AtomicBool, begun: &AtomicUsize) -> Result<Tally> {
    let out = world.path(out);
    let store = Store::open(&out)?;
    let options = Options {
        jobs: plan.runs.len(),
        retry_failed: true,
        threads: 1,
        devices: vec!["cpu".to_owned()],
        hosted: true,
        training: Training::default(),
        limits: Limits::default(),
    };
    let program = Program::at(assert_cmd::cargo::cargo_bin("dsf"), &out, &options)?;
    let mut on = |_, event| {
        let start = matches!(event, SweepEvent::Message(WorkerMessage::Start));
        begun.fetch_add(usize::from(start), Ordering::Relaxed);
    };
    run_all(plan, &store, &Hosts::new(program), &options, stop, &mut on)
}

fn sweep(world: &World, out: &str, plan: &Plan, stop: &AtomicBool) -> Result<Tally> {
    sweep_counted(world, out, plan, stop, &AtomicUsize::new(0))
}

/// Runs of two folders are the same to the bit.
fn assert_same(world: &World, a: &str, b: &str) {
    for (a, b) in world.runs(a).iter().zip(world.runs(b)) {
        assert_eq!(a.file_name(), b.file_name());
        assert_eq!(numbers(a), numbers(&b));
    }
}

/// The runs of `plan` one at a time, each in a process of its own.
fn train_alone(world: &World, out: &str, plan: &Plan) {
    for run in &plan.runs {
        let file = world.path("config.json");
        fs::write(&file, run.canonical()).unwrap();
        let line = format!("mqar --config {} --out {out} -q", file.display());
        world.dsf(&line).ok();
    }
}

fn result(run: &Path) -> Value {
    serde_json::from_slice(&fs::read(run.join("result.json")).unwrap()).unwrap()
}

#[test]
fn runs_side_by_side_in_a_process_give_the_numbers_of_one_at_a_time() {
    let world = World::new();
    world.dsf("sweep --preset smoke --mixer ssd,softmax --d 8,16 --n 4,8 --out alone -q").ok();
    let runs = Store::existing(&world.path("alone")).unwrap();
    let plan = plan(runs.configs().unwrap().runs);
    assert_eq!(plan.runs.len(), 8);
    let tally = sweep(&world, "together", &plan, &AtomicBool::new(false)).unwrap();
    assert_eq!(tally.finished, 8);
    assert_same(&world, "alone", "together");
    for (alone, together) in world.runs("alone").iter().zip(world.runs("together")) {
        let [alone, together] = [result(alone), result(&together)];
        assert_eq!(together["ops"], alone["ops"]);
        assert_eq!(together["accuracy"], alone["accuracy"]);
        // The memory of a process with eight runs is none of a run.
        assert!(alone["peak_memory_bytes"].is_number());
        assert!(together["peak_memory_bytes"].is_null());
    }
}

#[test]
fn a_sweep_whose_process_is_stopped_or_killed_goes_on_to_the_same_bits() {
    let world = World::new();
    let plan = plan([long("softmax"), long("ssd")]);
    train_alone(&world, "alone", &plan);
    let stop = AtomicBool::new(false);
    let stopped = thread::scope(|scope| {
        let sweep = scope.spawn(|| sweep(&world, "together", &plan, &stop));
        wait_for_an_epoch(&world, "together");
        stop.store(true, Ordering::Relaxed);
        sweep.join().unwrap()
    });
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    let kept = |run: &Path| run.join("checkpoint.safetensors").exists();
    assert!(world.runs("together").iter().any(|run| kept(run)));
    // Both runs are of one process. Killed, it takes them along, each with its reason.
    let store = Store::existing(&world.path("together")).unwrap();
    let (stop, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    let killed = thread::scope(|scope| {
        let sweep = scope.spawn(|| sweep_counted(&world, "together", &plan, &stop, &begun));
        let beats = || plan.runs.iter().map(|run| store.beat(&run.id()));
        let began = Instant::now();
        let pids = loop {
            let beats: Vec<_> = beats().filter_map(|beat| beat.unwrap()).collect();
            let pids: Vec<u32> = beats.iter().map(|heard| heard.beat.pid).collect();
            match pids[..] {
                [a, b] if a == b && begun.load(Ordering::Relaxed) == 2 => break [a, b],
                _ => assert!(began.elapsed() < Duration::from_secs(60), "{pids:?}"),
            }
            thread::sleep(Duration::from_millis(2));
        };
        let mut kill = Command::new("kill");
        let killed = kill.args(["-KILL", &pids[0].to_string()]).status();
        assert!(killed.unwrap().success());
        sweep.join().unwrap().unwrap()
    });
    assert_eq!((killed.finished, killed.failed), (0, 2));
    for run in &plan.runs {
        assert_eq!(store.status(&run.id()).unwrap(), Status::Failed);
        let result = result(&store.run_folder(&run.id()));
        assert!(result.to_string().contains("killed by signal 9"), "{result}");
    }
    let again = sweep(&world, "together", &plan, &AtomicBool::new(false)).unwrap();
    assert_eq!((again.finished, again.failed), (2, 0));
    assert_same(&world, "alone", "together");
}

/// The process by itself.
struct Started {
    child: Child,
    events: BufReader<std::process::ChildStdout>,
}

impl Started {
    fn new(world: &World, out: &str) -> Self {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("dsf"))
            .args(["worker", "--host", "--device", "cpu", "--out", out])
            .current_dir(world.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        Self { child, events }
    }

    fn ask(&mut self, request: &Request) {
        let line = serde_json::to_string(request).unwrap();
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next end of a run.
    fn ended(&mut self) -> Ended {
        loop {
            let mut line = String::new();
            assert!(self.events.read_line(&mut line).unwrap() > 0, "no end");
            let mut event: Value = serde_json::from_str(&line).unwrap();
            assert!(event["run"].is_string(), "{line}");
            if event["event"] == "ended" {
                let fields = event.as_object_mut().unwrap();
                fields.retain(|name, _| !["event", "schema"].contains(&name.as_str()));
                return serde_json::from_value(event).unwrap();
            }
        }
    }
}

fn train(run: &RunConfig) -> Request {
    Request::Train(TrainRequest::of(&Job { run, device: "cpu", micro_batch: None }))
}

#[test]
fn a_run_is_stopped_by_a_line_and_all_by_the_end_of_stdin_or_a_signal() {
    let world = World::new();
    let plan = plan(["softmax", "ssd", "linear"].map(long));
    train_alone(&world, "alone", &plan);
    let mut host = Started::new(&world, "together");
    plan.runs.iter().for_each(|run| host.ask(&train(run)));
    wait_for_an_epoch(&world, "together");
    host.ask(&Request::Stop(plan.runs[0].id()));
    let stopped = host.ended();
    assert_eq!((stopped.run, stopped.code), (plan.runs[0].id(), 75));
    host.child.stdin = None;
    for _ in 0..2 {
        assert_eq!(host.ended().code, 75);
    }
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    for run in world.runs("together") {
        assert!(run.join("checkpoint.safetensors").exists());
    }
    let mut host = Started::new(&world, "together");
    plan.runs.iter().for_each(|run| host.ask(&train(run)));
    let began = Instant::now();
    while !world.runs("together").iter().all(|run| run.join("beat.json").exists()) {
        assert!(began.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(2));
    }
    signal(&host.child, "-TERM");
    for _ in 0..3 {
        assert_eq!(host.ended().code, 75);
    }
    assert_eq!(host.child.wait().unwrap().code(), Some(75));
    let tally = sweep(&world, "together", &plan, &AtomicBool::new(false)).unwrap();
    assert_eq!(tally.finished, 3);
    assert_same(&world, "alone", "together");
}

#[test]
fn what_is_no_request_is_refused_and_what_is_no_config_fails_alone() {
    let world = World::new();
    let host = ["worker", "--host", "--device", "cpu"];
    let refused = world.call(&host, b"nonsense\n");
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.starts_with("error: stdin"), "{}", refused.err);
    let mut host = Started::new(&world, "results");
    host.ask(&Request::Train(TrainRequest { run: "x".to_owned(), config: "{}".to_owned(), micro_batch: None }));
    let ended = host.ended();
    assert_eq!((ended.run.as_str(), ended.code), ("x", 65));
    assert!(ended.words.starts_with("error: stdin"), "{}", ended.words);
    let bf16 = [("preset", "smoke"), ("precision", "bf16")];
    host.ask(&train(&recipes::run("mqar", &bf16).unwrap()));
    assert_eq!(host.ended().code, 0);
    let smoke = recipes::run("mqar", &[("preset", "smoke")]).unwrap();
    host.ask(&train(&smoke));
    let ended = host.ended();
    assert_eq!((ended.run, ended.code), (smoke.id(), 0));
    host.child.stdin = None;
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    let both = world.fails("worker --host --micro-batch 2", "refused");
    both.names(&["--micro-batch"]);
}
