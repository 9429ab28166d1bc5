//! Runs trained by child processes, with shell scripts in place of the program.

use crate::config::RunConfig;
use crate::error::testing::Fails;
use crate::store::{Cause, Failure, Store};
use crate::sweep::program::Program;
use crate::sweep::{Ending, Job, Process, Worker, WorkerMessage};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A shell script in place of `dsf worker`, and its results folder.
fn worker(script: &str) -> (Process, tempfile::TempDir) {
    limited(script, None)
}

fn limited(script: &str, limit: Option<Duration>) -> (Process, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (Process::new(Program::script(script, &store, limit)), dir)
}

fn run() -> RunConfig {
    crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap()
}

fn job<'a>(run: &'a RunConfig, device: &'a str) -> Job<'a> {
    Job { run, device, micro_batch: None }
}

fn work(script: &str) -> (Ending, Vec<WorkerMessage>) {
    let run = run();
    let mut messages = Vec::new();
    let stop = AtomicBool::new(false);
    let (worker, _dir) = worker(script);
    let ending = worker.work(&job(&run, "cuda:7"), &stop, &mut |m| messages.push(m));
    messages.retain(|message| !matches!(message, WorkerMessage::Line(_)));
    (ending.unwrap(), messages)
}

#[test]
fn the_config_is_the_first_line_of_stdin() {
    let run = run();
    let script = r#"read -r line; printf '{"event":"warning","text":"%s"}\n' "${#line}""#;
    let (ending, messages) = work(script);
    let text = run.canonical().len().to_string();
    assert_eq!((ending, messages), (Ending::Finished, vec![WorkerMessage::Warning { text }]));
}

#[test]
fn the_device_is_the_last_argument() {
    let (_, messages) = work(r#"printf '{"event":"warning","text":"%s"}\n' "$0""#);
    let text = "--device=cuda:7".to_owned();
    assert_eq!(messages, vec![WorkerMessage::Warning { text }]);
}

#[test]
fn events_are_passed_on_and_other_lines_are_not() {
    let (_, messages) = work(
        r#"read -r _
        echo talk
        echo '{"event":"start","schema":1}'
        echo '{"event":"epoch","epoch":1,"epochs":2,"loss":0.5,"accuracy":0.25,"seconds":3,"more":0}'
        echo '{"event":"progress","epoch":2,"epochs":2,"step":1,"steps":9,"loss":0.5}'"#,
    );
    assert!(matches!(messages[0], WorkerMessage::Start));
    assert!(matches!(messages[1], WorkerMessage::Epoch { epoch: 1, accuracy: 0.25, .. }));
    assert!(matches!(messages[2], WorkerMessage::Progress { epoch: 2, step: 1, steps: 9, .. }));
    assert_eq!(messages.len(), 3);
}

#[test]
fn exit_codes_and_signals_tell_the_ending() {
    let failed = |cause, words: &str| Ending::Failed(Failure::new(cause, words));
    for (script, ending) in [
        ("exit 0", Ending::Finished),
        ("exit 75", Ending::Interrupted),
        ("exit 69", Ending::Busy),
        ("echo 'error: no file a.tsv' >&2; exit 66", failed(Cause::MissingData, "no file a.tsv (exit code 66)")),
        ("exit 3", failed(Cause::Other, "exit code 3")),
        ("echo first >&2; echo 'error: no data' >&2; exit 1", failed(Cause::Other, "no data (exit code 1)")),
        ("echo 'it broke' >&2; echo 'note: a hint' >&2; exit 101", failed(Cause::Other, "it broke (exit code 101)")),
        (
            "echo 'memory allocation of 9 bytes failed' >&2; echo '  17: dsf::cli::main' >&2; kill -ABRT $$",
            failed(Cause::Oom, "killed by signal 6: memory allocation of 9 bytes failed"),
        ),
        (
            "printf 'thread panicked at a.rs:1:\\nno way\\nstack backtrace:\\n   0: f\\n  at b.rs\\n' >&2; exit 101",
            failed(Cause::Panic, "thread panicked at a.rs:1: no way (exit code 101)"),
        ),
        ("kill -KILL $$", failed(Cause::Signal, "killed by signal 9; out of memory?")),
        ("kill -TERM $$", Ending::Interrupted),
        ("kill -HUP $$", Ending::Interrupted),
        ("kill -USR1 $$", Ending::Interrupted),
        ("kill -USR2 $$", Ending::Interrupted),
        ("kill -XCPU $$", Ending::Interrupted),
        ("echo deep >&2; kill -ABRT $$", failed(Cause::Signal, "killed by signal 6: deep")),
    ] {
        // A shell cannot receive what it ignores from its start, as under `nohup make test`.
        if script.contains("-HUP") && ignores_hang_ups() {
            continue;
        }
        assert_eq!(work(script).0, ending, "{script}");
    }
}

/// Whether this process ignores SIGHUP, the first bit of the mask.
fn ignores_hang_ups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[test]
fn a_raised_stop_closes_stdin_so_that_the_worker_can_checkpoint() {
    let run = run();
    let stop = Arc::new(AtomicBool::new(false));
    let script = r#"read -r _; echo '{"event":"other"}'; cat; exit 75"#;
    let raise = Arc::clone(&stop);
    let (worker, _dir) = worker(script);
    let ending = worker.work(&job(&run, "cpu"), &stop, &mut |_| raise.store(true, Ordering::Relaxed));
    assert_eq!(ending.unwrap(), Ending::Interrupted);
}

#[test]
fn all_that_workers_say_on_stderr_is_in_the_log_of_the_run() {
    let run = run();
    let (worker, dir) = worker("echo one more >&2; exit 1");
    for _ in 0..2 {
        let ending = worker.work(&job(&run, "cpu"), &AtomicBool::new(false), &mut |_| {});
        let failure = Failure::new(Cause::Other, "one more (exit code 1)");
        assert_eq!(ending.unwrap(), Ending::Failed(failure));
    }
    let log = dir.path().join("runs").join(run.id()).join("worker.log");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "one more\n".repeat(2));
}

#[test]
fn a_run_that_takes_too_long_is_asked_to_stop_and_keeps_its_checkpoint() {
    let limit = Some(Duration::from_secs(1));
    let (worker, _dir) = limited("read -r _; cat; exit 75", limit);
    let run = run();
    let ending = worker.work(&job(&run, "cpu"), &AtomicBool::new(false), &mut |_| {});
    let Ending::Failed(Failure { cause, words }) = ending.unwrap() else {
        panic!("it did not fail");
    };
    assert_eq!(cause, Cause::Timeout);
    assert!(words.contains("1.0 s") && words.contains("checkpoint is kept"), "{words}");
}

#[test]
fn a_smaller_micro_batch_is_a_flag_of_the_worker() {
    let (worker, _dir) = worker(r#"printf '{"event":"warning","text":"%s"}\n' "$0""#);
    let (run, mut told) = (run(), Vec::new());
    let job = Job { micro_batch: Some(7), ..job(&run, "cpu") };
    let ending = worker.work(&job, &AtomicBool::new(false), &mut |m| told.push(m));
    assert_eq!(ending.unwrap(), Ending::Finished);
    told.retain(|message| !matches!(message, WorkerMessage::Line(_)));
    let text = "--micro-batch=7".to_owned();
    assert_eq!(told, [WorkerMessage::Warning { text }]);
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let process = Process::new(Program::script("", &store, None).named("/no/such/program"));
    let run = run();
    let worked = process.work(&job(&run, "cpu"), &AtomicBool::new(false), &mut |_| {});
    worked.fails("io").is_at("/no/such/program", None);
}
