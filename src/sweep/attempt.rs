//! One attempt at a run by any kind of worker: its time limit, and the interpretation of its end.

use super::estimate::duration;
use super::worker::{Ending, WorkerMessage};
use crate::error::exit;
use crate::store::{memory_kills, Cause, Failure};
use serde::Deserialize;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
use std::ffi::c_int;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Interval at which the stop flag is polled.
const STOP_SEEN_WITHIN: Duration = Duration::from_millis(50);

/// Signals that request a stop: interrupt and termination, hang-up of the terminal, and the notices of schedulers or of
/// the system that time is nearly up (both user signals, and the limit on processor time).
pub const STOPPING: [c_int; 6] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU];

/// Maximum length of a recorded failure message, in characters.
const LONGEST_REASON: usize = 500;

/// Control over the process or thread that trains a run.
pub(super) trait WorkerHandle {
    /// Requests a stop after a checkpoint.
    fn stop(&mut self);
    /// Ends it immediately.
    fn kill(&mut self);
}

/// Exit of a process, or of a run that shares a process and reports an equivalent exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessExit {
    /// Exit code, unless a signal ended it.
    pub code: Option<u8>,
    /// Signal that killed it.
    pub signal: Option<i32>,
}

impl From<ExitStatus> for ProcessExit {
    fn from(status: ExitStatus) -> Self {
        Self { code: status.code().map(|code| u8::try_from(code).unwrap_or(exit::FAILED)), signal: status.signal() }
    }
}

/// Time limit and state of an attempt.
pub(super) struct Attempt<'a> {
    stop: &'a AtomicBool,
    limit: Option<Duration>,
    /// Additional time in which a stopped run may write its checkpoint.
    grace: Duration,
    began: Instant,
    /// Number of processes that the OOM killer had killed at the beginning.
    kills: Option<u64>,
    /// Whether a stop has been requested.
    asked: bool,
    /// Whether the stop was requested because of the time limit.
    pub late: bool,
    killed: bool,
}

impl<'a> Attempt<'a> {
    /// Begins an attempt now, limited to `limit`, plus `grace` to stop.
    pub fn new(stop: &'a AtomicBool, limit: Option<Duration>, grace: Duration) -> Self {
        Self {
            stop,
            limit,
            grace,
            began: Instant::now(),
            kills: memory_kills(),
            asked: false,
            late: false,
            killed: false,
        }
    }

    /// Forwards messages until the channel closes, checking the time limit meanwhile.
    pub fn follow(
        &mut self,
        messages: &Receiver<WorkerMessage>,
        on: &mut dyn FnMut(WorkerMessage),
        hand: &mut dyn WorkerHandle,
    ) {
        loop {
            match messages.recv_timeout(STOP_SEEN_WITHIN) {
                Ok(message) => on(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !self.asked && (self.is_stopped() || self.is_over(Duration::ZERO)) {
                hand.stop();
                self.asked = true;
                self.late = !self.is_stopped();
            }
            if self.late && !self.killed && self.is_over(self.grace) {
                hand.kill();
                self.killed = true;
            }
        }
    }

    /// Whether the whole sweep is to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the time limit is exceeded by `more`.
    fn is_over(&self, more: Duration) -> bool {
        self.limit.is_some_and(|limit| self.began.elapsed() >= limit + more)
    }

    /// Interprets the end of the worker; `said` is its output on stderr.
    pub fn ending(&self, end: ProcessExit, said: &str) -> Ending {
        let stopped = self.is_stopped();
        match (ending(end, &reason(said), stopped), self.limit) {
            (Ending::Interrupted, Some(limit)) if self.late && !stopped => timeout(limit, "its checkpoint is kept"),
            (Ending::Failed(_), Some(limit)) if self.late && end.signal == Some(9) => {
                timeout(limit, "it did not stop when it was asked to, and was killed")
            }
            (Ending::Failed(failure), _) if end.signal == Some(9) && memory_kills() > self.kills => {
                Ending::Failed(Failure::new(Cause::Oom, failure.words))
            }
            (end, _) => end,
        }
    }
}

fn timeout(limit: Duration, end: &str) -> Ending {
    let limit = duration(limit.as_secs_f64());
    let words = format!("not over after {limit}, the limit of --max-minutes; {end}");
    Ending::Failed(Failure::new(Cause::Timeout, words))
}

/// Converts an event of a worker to messages. An unknown event gives none, since it is meant for other readers.
pub(super) fn messages(event: Value) -> impl Iterator<Item = WorkerMessage> {
    let meant = WorkerMessage::deserialize(&event).ok();
    meant.map(|meant| [WorkerMessage::Line(event), meant]).into_iter().flatten()
}

/// Extracts the failure message from stderr: an error, a failed allocation or a panic if there is one, otherwise the
/// last line that is not part of a backtrace.
fn reason(stderr: &str) -> String {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let fatal = |line: &&str| line.starts_with("error: ") || line.starts_with("memory allocation of ");
    let said = lines().rfind(fatal).map(str::to_owned);
    let panicked = || {
        // A panic prints its place, and the message on the next line.
        let mut from = lines().skip_while(|line| !line.contains("panicked at "));
        let (place, what) = (from.next()?, from.next().unwrap_or_default());
        Some(format!("{place} {what}"))
    };
    let trace = |line: &str| {
        let frame = line.split_once(": ").is_some_and(|(n, _)| n.parse::<usize>().is_ok());
        frame || ["note: ", "at ", "stack backtrace:"].iter().any(|start| line.starts_with(start))
    };
    let last = || lines().rfind(|line| !trace(line)).map(str::to_owned);
    said.or_else(panicked).or_else(last).unwrap_or_default().chars().take(LONGEST_REASON).collect()
}

fn ending(end: ProcessExit, last_words: &str, stopped: bool) -> Ending {
    let said = last_words.strip_prefix("error: ").unwrap_or(last_words);
    let failed = |cause, words: String| Ending::Failed(Failure::new(cause, words));
    // The exit code of a refusal or of damage is that of its error; otherwise the message may be more specific.
    let or = |cause| match Cause::infer(said) {
        Cause::Other => cause,
        told => told,
    };
    match (end.code, end.signal) {
        (Some(exit::DONE), _) => Ending::Finished,
        (Some(exit::STOPPED), _) => Ending::Interrupted,
        (Some(exit::BUSY), _) => Ending::Busy,
        (Some(code), _) if said.is_empty() => failed(Cause::Other, format!("exit code {code}")),
        (Some(code @ exit::NO_DATA), _) => failed(Cause::MissingData, format!("{said} (exit code {code})")),
        (Some(code @ (exit::REFUSED | exit::BAD_DATA)), _) => {
            failed(Cause::Other, format!("{said} (exit code {code})"))
        }
        (Some(code), _) => failed(or(Cause::Other), format!("{said} (exit code {code})")),
        // The signal arrived before its handler was installed; the run itself did not fail.
        (None, Some(signal)) if STOPPING.contains(&signal) => Ending::Interrupted,
        (None, _) if stopped => Ending::Interrupted,
        (None, Some(9)) => failed(Cause::Signal, "killed by signal 9; out of memory?".to_owned()),
        (None, Some(signal)) => failed(or(Cause::Signal), format!("killed by signal {signal}: {said}")),
        (None, None) => failed(or(Cause::Other), format!("ended without an exit code: {said}")),
    }
}
