//! A worker that is a child process: `dsf worker`, the config on its stdin, events on its stdout.
//!
//! The child ends when its stdin does, so a parent that is killed leaves no orphan. It sits in a
//! process group of its own: a Ctrl-C reaches the parent alone, which then asks the children.

use super::local::Options;
use super::worker::{Ending, Message, Worker};
use crate::config::RunConfig;
use crate::error::{exit, Error, Result};
use std::ffi::OsString;
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
}

impl Process {
    /// This program's own `worker` subcommand.
    pub fn new(out: &Path, options: &Options) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| {
            Error::usage(format!(
                "cannot find this program's own file to start workers: {e}"
            ))
        })?;
        let mut arguments: Vec<OsString> = vec![
            "worker".into(),
            "--out".into(),
            out.into(),
            "--threads".into(),
            options.threads.to_string().into(),
        ];
        let training = &options.training;
        if training.cuda_graph {
            arguments.push("--cuda-graph".into());
        }
        if let Some(dir) = &training.data_dir {
            arguments.extend(["--data-dir".into(), dir.into()]);
        }
        if let Some(span) = training.checkpoint_every {
            let minutes = span.as_secs_f64() / 60.0;
            arguments.extend(["--checkpoint-every".into(), minutes.to_string().into()]);
        }
        Ok(Self { program, arguments })
    }

    fn start(&self, device: &str) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .args(["--device", device])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map_err(Error::io("start", &self.program))
    }
}

impl Worker for Process {
    fn work(
        &self,
        run: &RunConfig,
        device: &str,
        stop: &AtomicBool,
        on: &mut dyn FnMut(Message),
    ) -> Result<Ending> {
        let mut child = self.start(device)?;
        let messages = child.stdout.take().map(read_messages);
        let stderr = child.stderr.take();
        let last_words = thread::spawn(move || stderr.map(last_words).unwrap_or_default());
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
        let last_words = last_words.join().unwrap_or_default();
        Ok(ending(status, &last_words, stopped()))
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

/// The last line that says something: rustc's hint on backtraces does not.
fn last_words(stderr: impl Read) -> String {
    let lines = BufReader::new(stderr).split(b'\n').map_while(Result::ok);
    let texts = lines.map(|line| String::from_utf8_lossy(&line).trim().to_owned());
    let last = texts
        .filter(|text| !text.is_empty() && !text.starts_with("note: "))
        .last();
    last.unwrap_or_default()
        .chars()
        .take(LONGEST_REASON)
        .collect()
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

    /// A shell script in place of `dsf worker`.
    fn worker(script: &str) -> Process {
        Process {
            program: "/bin/sh".into(),
            arguments: ["-c".into(), script.into()].into(),
        }
    }

    fn work(script: &str) -> (Ending, Vec<Message>) {
        let run = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap();
        let mut messages = Vec::new();
        let stop = AtomicBool::new(false);
        let ending = worker(script).work(&run, "cuda:7", &stop, &mut |m| messages.push(m));
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
        let (_, messages) = work(r#"printf '{"event":"warning","text":"%s"}\n' "$0 $1""#);
        let text = "--device cuda:7".to_owned();
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
        assert!(matches!(messages[2], Message::Other));
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
        let ending = worker(script).work(&run, "cpu", &stop, &mut |_| {
            raise.store(true, Ordering::Relaxed)
        });
        assert_eq!(ending.unwrap(), Ending::Interrupted);
    }

    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let process = Process {
            program: "/no/such/program".into(),
            arguments: Vec::new(),
        };
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
