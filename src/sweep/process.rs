//! A worker that is a child process: `dsf worker`, the config on its stdin, events on its stdout.
//!
//! The child ends when its stdin does, so a parent that is killed leaves no orphan. It sits in a
//! process group of its own: a Ctrl-C reaches the parent alone, which then asks the children.

use super::local::Options;
use super::worker::{Ending, Message, Worker};
use crate::config::RunConfig;
use crate::error::{exit, Error, Result};
use crate::store::Store;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How soon a raised stop flag is seen.
const STOP_SEEN_WITHIN: Duration = Duration::from_millis(50);

/// Longest part of a worker's last words that is kept.
const LONGEST_REASON: usize = 500;

/// Starts one child a run.
#[derive(Clone, Debug)]
pub struct Process {
    program: PathBuf,
    arguments: Vec<OsString>,
    store: Store,
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
        })
    }

    fn start(&self, device: &str, log: File) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg(flag("device", device.as_ref()))
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
    fn work(
        &self,
        run: &RunConfig,
        device: &str,
        stop: &AtomicBool,
        on: &mut dyn FnMut(Message),
    ) -> Result<Ending> {
        let mut log = self.store.open_log(&run.id())?;
        let mut child = self.start(device, log.writer()?)?;
        let messages = child.stdout.take().map(read_messages);
        let mut stdin = child.stdin.take();
        if let Some(stdin) = &mut stdin {
            // A child that died already speaks through its exit code.
            let _ = writeln!(stdin, "{}", run.canonical());
        }
        let stopped = || stop.load(Ordering::Relaxed);
        if let Some(messages) = messages {
            pass_on(&messages, on, || {
                if stopped() {
                    drop(stdin.take());
                }
            });
        }
        let status = child.wait().map_err(Error::io("wait for", &self.program))?;
        Ok(ending(status, &reason(&log.read()?), stopped()))
    }
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
        for message in lines.filter_map(|line| serde_json::from_slice(&line).ok()) {
            if sender.send(message).is_err() {
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
    match (code, signal(status)) {
        (Some(exit::DONE), _) => Ending::Finished,
        (Some(exit::STOPPED), _) => Ending::Interrupted,
        (Some(exit::BUSY), _) => Ending::Busy,
        (Some(code), _) if said.is_empty() => Ending::Failed(format!("exit code {code}")),
        (Some(code), _) => Ending::Failed(format!("{said} (exit code {code})")),
        // Someone's wish, not the run's fault: hang-up, interrupt, termination.
        (None, Some(1 | 2 | 15)) => Ending::Interrupted,
        (None, _) if stopped => Ending::Interrupted,
        (None, Some(9)) => Ending::Failed("killed by signal 9; out of memory?".to_owned()),
        (None, Some(signal)) => Ending::Failed(format!("killed by signal {signal}: {said}")),
        (None, None) => Ending::Failed(format!("ended without an exit code: {said}")),
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
    use std::sync::Arc;

    /// A shell script in place of `dsf worker`, and its results folder.
    fn worker(script: &str) -> (Process, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let process = Process {
            program: "/bin/sh".into(),
            arguments: ["-c".into(), script.into()].into(),
            store: Store::open(dir.path()).unwrap(),
        };
        (process, dir)
    }

    fn work(script: &str) -> (Ending, Vec<Message>) {
        let run = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap();
        let mut messages = Vec::new();
        let stop = AtomicBool::new(false);
        let (worker, _dir) = worker(script);
        let ending = worker.work(&run, "cuda:7", &stop, &mut |m| messages.push(m));
        (ending.unwrap(), messages)
    }

    #[test]
    fn the_config_is_the_first_line_of_stdin() {
        let run = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap();
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
        assert!(matches!(messages[0], Message::Other));
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
        let failed = |reason: &str| Ending::Failed(reason.to_owned());
        for (script, ending) in [
            ("exit 0", Ending::Finished),
            ("exit 75", Ending::Interrupted),
            ("exit 69", Ending::Busy),
            ("exit 3", failed("exit code 3")),
            (
                "echo first >&2; echo 'error: no data' >&2; exit 1",
                failed("no data (exit code 1)"),
            ),
            (
                "echo 'it broke' >&2; echo 'note: a hint' >&2; exit 101",
                failed("it broke (exit code 101)"),
            ),
            (
                "echo 'memory allocation of 9 bytes failed' >&2; echo '  17: dsf::cli::main' >&2; kill -ABRT $$",
                failed("killed by signal 6: memory allocation of 9 bytes failed"),
            ),
            (
                "printf 'thread panicked at a.rs:1:\\nno way\\nstack backtrace:\\n   0: f\\n  at b.rs\\n' >&2; exit 101",
                failed("thread panicked at a.rs:1: no way (exit code 101)"),
            ),
            (
                "kill -KILL $$",
                failed("killed by signal 9; out of memory?"),
            ),
            ("kill -TERM $$", Ending::Interrupted),
            (
                "echo deep >&2; kill -ABRT $$",
                failed("killed by signal 6: deep"),
            ),
        ] {
            assert_eq!(work(script).0, ending, "{script}");
        }
    }

    #[test]
    fn a_raised_stop_closes_stdin_so_that_the_worker_can_checkpoint() {
        let run = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let script = r#"read -r _; echo '{"event":"other"}'; cat; exit 75"#;
        let raise = Arc::clone(&stop);
        let (worker, _dir) = worker(script);
        let ending = worker.work(&run, "cpu", &stop, &mut |_| {
            raise.store(true, Ordering::Relaxed)
        });
        assert_eq!(ending.unwrap(), Ending::Interrupted);
    }

    #[test]
    fn all_that_workers_say_on_stderr_is_in_the_log_of_the_run() {
        let run = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap();
        let (worker, dir) = worker("echo one more >&2; exit 1");
        for _ in 0..2 {
            let ending = worker.work(&run, "cpu", &AtomicBool::new(false), &mut |_| {});
            let reason = "one more (exit code 1)".to_owned();
            assert_eq!(ending.unwrap(), Ending::Failed(reason));
        }
        let log = dir.path().join("runs").join(run.id()).join("worker.log");
        assert_eq!(
            std::fs::read_to_string(log).unwrap(),
            "one more\n".repeat(2)
        );
    }

    #[test]
    fn a_value_that_begins_with_a_hyphen_is_no_flag_of_its_own() {
        assert_eq!(flag("out", Path::new("-x")), "--out=-x");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let (mut process, _dir) = worker("");
        process.program = "/no/such/program".into();
        let run = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap();
        let error = process
            .work(&run, "cpu", &AtomicBool::new(false), &mut |_| {})
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot start /no/such/program: "),
            "{error}"
        );
    }
}
