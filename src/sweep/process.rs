//! A worker that is a child process: `dsf worker`, the config on its stdin, events on its stdout.
//!
//! The child ends when its stdin does, so a parent that is killed leaves no orphan. It sits in a
//! process group of its own: a Ctrl-C reaches the parent alone, which then asks the children.

use super::estimate::duration;
use super::local::Options;
use super::worker::{Ending, Job, Message, Worker};
use crate::error::{exit, Error, Result};
use crate::store::{memory_kills, Cause, Failure, Store};
use serde::Deserialize;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How soon a raised stop flag is seen.
const STOP_SEEN_WITHIN: Duration = Duration::from_millis(50);

/// How long a worker that is asked to stop may take for its checkpoint.
const GRACE: Duration = Duration::from_secs(60);

/// Longest part of a worker's last words that is kept.
const LONGEST_REASON: usize = 500;

/// Starts one child a run.
#[derive(Clone, Debug)]
pub struct Process {
    program: PathBuf,
    arguments: Vec<OsString>,
    store: Store,
    /// Time that a run may take.
    limit: Option<Duration>,
    /// Variables of the children's environment beside this process's own.
    variables: Vec<(&'static str, String)>,
}

impl Process {
    /// This program's own `worker` subcommand.
    pub fn new(out: &Path, options: &Options) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| {
            Error::usage(format!(
                "cannot find this program's own file to start workers: {e}"
            ))
        })?;
        let threads = options.threads.to_string();
        let mut arguments = vec![
            "worker".into(),
            flag("out", out),
            flag("threads", threads.as_ref()),
        ];
        let training = &options.training;
        if training.cuda_graph {
            arguments.push("--cuda-graph".into());
        }
        if let Some(dir) = &training.data_dir {
            arguments.push(flag("data-dir", dir));
        }
        if let Some(span) = training.checkpoint_every {
            let minutes = (span.as_secs_f64() / 60.0).to_string();
            arguments.push(flag("checkpoint-every", minutes.as_ref()));
        }
        Ok(Self {
            program,
            arguments,
            store: Store::existing(out)?,
            limit: options.limits.max_minutes,
            variables: Vec::new(),
        })
    }

    /// With a variable in the environment of every child.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    fn start(&self, job: &Job, log: File) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .args(job.micro_batch.map(|n| format!("--micro-batch={n}")))
            .arg(flag("device", job.device.as_ref()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map_err(Error::io("start", &self.program))
    }
}

/// A flag and its value as one argument: a value may begin with a hyphen.
fn flag(name: &str, value: &Path) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}

impl Worker for Process {
    fn work(&self, job: &Job, stop: &AtomicBool, on: &mut dyn FnMut(Message)) -> Result<Ending> {
        let mut log = self.store.open_log(&job.run.id())?;
        let mut child = self.start(job, log.writer()?)?;
        let messages = child.stdout.take().map(read_messages);
        let mut stdin = child.stdin.take();
        if let Some(stdin) = &mut stdin {
            // A child that died already speaks through its exit code.
            let _ = writeln!(stdin, "{}", job.run.canonical());
        }
        let stopped = || stop.load(Ordering::Relaxed);
        let (began, kills) = (Instant::now(), memory_kills());
        let late = |more: Duration| {
            self.limit
                .is_some_and(|limit| began.elapsed() >= limit + more)
        };
        let mut told = false;
        if let Some(messages) = messages {
            pass_on(&messages, on, || {
                if stopped() || late(Duration::ZERO) {
                    told |= stdin.take().is_some() && !stopped();
                }
                if told && late(GRACE) {
                    let _ = child.kill(); // unless it just ended
                }
            });
        }
        let status = child.wait().map_err(Error::io("wait for", &self.program))?;
        let end = ending(status, &reason(&log.read()?), stopped());
        Ok(match (end, self.limit) {
            (Ending::Interrupted, Some(limit)) if told && !stopped() => {
                timeout(limit, "its checkpoint is kept")
            }
            (Ending::Failed(_), Some(limit)) if told && signal(status) == Some(9) => timeout(
                limit,
                "it did not stop when it was asked to, and was killed",
            ),
            (Ending::Failed(failure), _) if signal(status) == Some(9) && memory_kills() > kills => {
                Ending::Failed(Failure::new(Cause::Oom, failure.words))
            }
            (end, _) => end,
        })
    }
}

fn timeout(limit: Duration, end: &str) -> Ending {
    let limit = duration(limit.as_secs_f64());
    let words = format!("not over after {limit}, the limit of --max-minutes; {end}");
    Ending::Failed(Failure::new(Cause::Timeout, words))
}

/// Passes on messages until there are no more, and looks at the clock in between.
fn pass_on(messages: &Receiver<Message>, on: &mut dyn FnMut(Message), mut tick: impl FnMut()) {
    loop {
        match messages.recv_timeout(STOP_SEEN_WITHIN) {
            Ok(message) => on(message),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        tick();
    }
}

fn read_messages(stdout: impl Read + Send + 'static) -> Receiver<Message> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        // What is not a message is for other readers.
        for event in lines.filter_map(|line| serde_json::from_slice::<Value>(&line).ok()) {
            let meant = Message::deserialize(&event).ok();
            let messages = meant.map(|meant| [Message::Line(event), meant]);
            let mut messages = messages.into_iter().flatten();
            if messages.any(|message| sender.send(message).is_err()) {
                return;
            }
        }
    });
    receiver
}

/// What a worker's last words on stderr say of its end: an error, a failed allocation or a panic if there is one, or
/// else the last line; of a backtrace nothing.
fn reason(stderr: &str) -> String {
    let lines = || {
        stderr
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let fatal =
        |line: &&str| line.starts_with("error: ") || line.starts_with("memory allocation of ");
    let said = lines().rfind(fatal).map(str::to_owned);
    let panicked = || {
        // The place, and on the next line what happened there.
        let mut from = lines().skip_while(|line| !line.contains("panicked at "));
        let (place, what) = (from.next()?, from.next().unwrap_or_default());
        Some(format!("{place} {what}"))
    };
    let trace = |line: &str| {
        let frame = line
            .split_once(": ")
            .is_some_and(|(n, _)| n.parse::<usize>().is_ok());
        frame
            || ["note: ", "at ", "stack backtrace:"]
                .iter()
                .any(|start| line.starts_with(start))
    };
    let last = || lines().rfind(|line| !trace(line)).map(str::to_owned);
    let said = said.or_else(panicked).or_else(last).unwrap_or_default();
    said.chars().take(LONGEST_REASON).collect()
}

fn ending(status: ExitStatus, last_words: &str, stopped: bool) -> Ending {
    let said = last_words.strip_prefix("error: ").unwrap_or(last_words);
    let code = status
        .code()
        .map(|code| u8::try_from(code).unwrap_or(exit::FAILED));
    let failed = |cause, words: String| Ending::Failed(Failure::new(cause, words));
    // The last words may tell more than the way it ended.
    let or = |cause| match Cause::told_by(said) {
        Cause::Other => cause,
        told => told,
    };
    match (code, signal(status)) {
        (Some(exit::DONE), _) => Ending::Finished,
        (Some(exit::STOPPED), _) => Ending::Interrupted,
        (Some(exit::BUSY), _) => Ending::Busy,
        (Some(code), _) if said.is_empty() => failed(Cause::Other, format!("exit code {code}")),
        (Some(code @ exit::NO_DATA), _) => {
            failed(Cause::MissingData, format!("{said} (exit code {code})"))
        }
        (Some(code), _) => failed(or(Cause::Other), format!("{said} (exit code {code})")),
        // Someone's wish, not the run's fault: hang-up, interrupt, termination.
        (None, Some(1 | 2 | 15)) => Ending::Interrupted,
        (None, _) if stopped => Ending::Interrupted,
        (None, Some(9)) => failed(
            Cause::Signal,
            "killed by signal 9; out of memory?".to_owned(),
        ),
        (None, Some(signal)) => failed(
            or(Cause::Signal),
            format!("killed by signal {signal}: {said}"),
        ),
        (None, None) => failed(
            or(Cause::Other),
            format!("ended without an exit code: {said}"),
        ),
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use std::sync::Arc;

    /// A shell script in place of `dsf worker`, and its results folder.
    fn worker(script: &str) -> (Process, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let process = Process {
            program: "/bin/sh".into(),
            arguments: ["-c".into(), script.into()].into(),
            store: Store::open(dir.path()).unwrap(),
            limit: None,
            variables: Vec::new(),
        };
        (process, dir)
    }

    fn run() -> RunConfig {
        crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap()
    }

    fn job<'a>(run: &'a RunConfig, device: &'a str) -> Job<'a> {
        Job {
            run,
            device,
            micro_batch: None,
        }
    }

    fn work(script: &str) -> (Ending, Vec<Message>) {
        let run = run();
        let mut messages = Vec::new();
        let stop = AtomicBool::new(false);
        let (worker, _dir) = worker(script);
        let ending = worker.work(&job(&run, "cuda:7"), &stop, &mut |m| messages.push(m));
        messages.retain(|message| !matches!(message, Message::Line(_)));
        (ending.unwrap(), messages)
    }

    #[test]
    fn the_config_is_the_first_line_of_stdin() {
        let run = run();
        let script = r#"read -r line; printf '{"event":"warning","text":"%s"}\n' "${#line}""#;
        let (ending, messages) = work(script);
        let text = run.canonical().len().to_string();
        assert_eq!(
            (ending, messages),
            (Ending::Finished, vec![Message::Warning { text }])
        );
    }

    #[test]
    fn the_device_is_the_last_argument() {
        let (_, messages) = work(r#"printf '{"event":"warning","text":"%s"}\n' "$0""#);
        let text = "--device=cuda:7".to_owned();
        assert_eq!(messages, vec![Message::Warning { text }]);
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
        assert!(matches!(messages[0], Message::Start));
        assert!(matches!(
            messages[1],
            Message::Epoch {
                epoch: 1,
                accuracy: 0.25,
                ..
            }
        ));
        assert!(matches!(
            messages[2],
            Message::Progress {
                epoch: 2,
                step: 1,
                steps: 9,
                ..
            }
        ));
        assert_eq!(messages.len(), 3);
    }

    #[test]
    fn exit_codes_and_signals_tell_the_ending() {
        let failed = |cause, words: &str| Ending::Failed(Failure::new(cause, words));
        for (script, ending) in [
            ("exit 0", Ending::Finished),
            ("exit 75", Ending::Interrupted),
            ("exit 69", Ending::Busy),
            (
                "echo 'error: no file a.tsv' >&2; exit 66",
                failed(Cause::MissingData, "no file a.tsv (exit code 66)"),
            ),
            ("exit 3", failed(Cause::Other, "exit code 3")),
            (
                "echo first >&2; echo 'error: no data' >&2; exit 1",
                failed(Cause::Other, "no data (exit code 1)"),
            ),
            (
                "echo 'it broke' >&2; echo 'note: a hint' >&2; exit 101",
                failed(Cause::Other, "it broke (exit code 101)"),
            ),
            (
                "echo 'memory allocation of 9 bytes failed' >&2; echo '  17: dsf::cli::main' >&2; kill -ABRT $$",
                failed(Cause::Oom, "killed by signal 6: memory allocation of 9 bytes failed"),
            ),
            (
                "printf 'thread panicked at a.rs:1:\\nno way\\nstack backtrace:\\n   0: f\\n  at b.rs\\n' >&2; exit 101",
                failed(Cause::Panic, "thread panicked at a.rs:1: no way (exit code 101)"),
            ),
            (
                "kill -KILL $$",
                failed(Cause::Signal, "killed by signal 9; out of memory?"),
            ),
            ("kill -TERM $$", Ending::Interrupted),
            (
                "echo deep >&2; kill -ABRT $$",
                failed(Cause::Signal, "killed by signal 6: deep"),
            ),
        ] {
            assert_eq!(work(script).0, ending, "{script}");
        }
    }

    #[test]
    fn a_raised_stop_closes_stdin_so_that_the_worker_can_checkpoint() {
        let run = run();
        let stop = Arc::new(AtomicBool::new(false));
        let script = r#"read -r _; echo '{"event":"other"}'; cat; exit 75"#;
        let raise = Arc::clone(&stop);
        let (worker, _dir) = worker(script);
        let ending = worker.work(&job(&run, "cpu"), &stop, &mut |_| {
            raise.store(true, Ordering::Relaxed)
        });
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
        assert_eq!(
            std::fs::read_to_string(log).unwrap(),
            "one more\n".repeat(2)
        );
    }

    #[test]
    fn a_run_that_takes_too_long_is_asked_to_stop_and_keeps_its_checkpoint() {
        let (mut worker, _dir) = worker("read -r _; cat; exit 75");
        worker.limit = Some(Duration::from_secs(1));
        let run = run();
        let ending = worker.work(&job(&run, "cpu"), &AtomicBool::new(false), &mut |_| {});
        let Ending::Failed(Failure { cause, words }) = ending.unwrap() else {
            panic!("it did not fail");
        };
        assert_eq!(cause, Cause::Timeout);
        assert!(
            words.contains("1.0 s") && words.contains("checkpoint is kept"),
            "{words}"
        );
    }

    #[test]
    fn a_smaller_micro_batch_is_a_flag_of_the_worker() {
        let (worker, _dir) = worker(r#"printf '{"event":"warning","text":"%s"}\n' "$0""#);
        let (run, mut told) = (run(), Vec::new());
        let job = Job {
            micro_batch: Some(7),
            ..job(&run, "cpu")
        };
        let ending = worker.work(&job, &AtomicBool::new(false), &mut |m| told.push(m));
        assert_eq!(ending.unwrap(), Ending::Finished);
        told.retain(|message| !matches!(message, Message::Line(_)));
        let text = "--micro-batch=7".to_owned();
        assert_eq!(told, [Message::Warning { text }]);
    }

    #[test]
    fn a_value_that_begins_with_a_hyphen_is_no_flag_of_its_own() {
        assert_eq!(flag("out", Path::new("-x")), "--out=-x");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let (mut process, _dir) = worker("");
        process.program = "/no/such/program".into();
        let run = run();
        let error = process
            .work(&job(&run, "cpu"), &AtomicBool::new(false), &mut |_| {})
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot start /no/such/program: "),
            "{error}"
        );
    }
}
