//! Many small runs on one GPU, trained in threads of one process per device. Separate processes would take turns on the
//! GPU and need a CUDA context each. The process is `dsf worker --host`; it starts with the first run that needs it and
//! receives [`Request`]s.
//!
//! A run that fails does not affect the others. When the process dies, each of its runs ends as a process of its own
//! would have, and later runs get a new process. In two cases the run is not at fault, and begins again from its
//! checkpoint: if the process was killed because another run did not stop after its time limit, and if the process was
//! already dying when the run was sent to it.

use super::attempt::{messages, ProcessExit, WorkerHandle};
use super::program::Program;
use super::request::{Ended, Request, TrainRequest};
use super::worker::{Ending, Job, Worker, WorkerMessage};
use crate::error::Result;
use serde::Deserialize;
use serde_json::Value;
use std::collections::hash_map::{Entry, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Starts one child process per device.
#[derive(Debug)]
pub struct Hosts {
    program: Program,
    /// Most recent process of each device.
    running: Mutex<HashMap<String, Arc<HostProcess>>>,
}

/// A process with many runs.
#[derive(Debug)]
struct HostProcess {
    child: Mutex<Child>,
    /// `None` if it was never open.
    stdin: Mutex<Option<ChildStdin>>,
    seats: Arc<Mutex<HostedRuns>>,
    /// Whether it was killed because of one of its runs.
    killed: AtomicBool,
}

#[derive(Debug)]
struct HostedRuns {
    /// Whether it accepts more runs.
    open: bool,
    taken: HashMap<String, RunChannels>,
}

/// Channels and log of a run in a process. The channels close when it is dropped.
#[derive(Debug)]
struct RunChannels {
    messages: Sender<WorkerMessage>,
    end: Sender<Ended>,
    log: File,
}

/// A run in a process, from the sweep's side.
struct RunInProcess {
    host: Arc<HostProcess>,
    run: String,
    /// Whether the process was started for this run.
    first: bool,
}

impl Hosts {
    /// Returns a worker that starts `program`.
    pub fn new(program: Program) -> Self {
        Self { program, running: Mutex::default() }
    }

    /// Adds a run to the process of `device`, starting it if necessary. Returns `None` if that process already has the
    /// run.
    fn place(&self, run: String, device: &str, seat: RunChannels) -> Result<Option<RunInProcess>> {
        let mut running = lock(&self.running);
        if let Some(host) = running.get(device) {
            let mut seats = lock(&host.seats);
            if seats.open {
                return Ok(match seats.taken.entry(run.clone()) {
                    Entry::Occupied(_) => None,
                    Entry::Vacant(free) => {
                        free.insert(seat);
                        let host = Arc::clone(host);
                        let first = false;
                        Some(RunInProcess { host, run, first })
                    }
                });
            }
        }
        let taken = HashMap::from([(run.clone(), seat)]);
        let seats = HostedRuns { open: true, taken };
        let host = Arc::new(HostProcess::start(&self.program, device, seats)?);
        running.insert(device.to_owned(), Arc::clone(&host));
        let first = true;
        Ok(Some(RunInProcess { host, run, first }))
    }
}

impl Worker for Hosts {
    fn work(&self, job: &Job, stop: &AtomicBool, on: &mut dyn FnMut(WorkerMessage)) -> Result<Ending> {
        let asked = TrainRequest::of(job);
        loop {
            let mut log = self.program.log(&asked.run)?;
            let (message, messages) = mpsc::channel();
            let (end, ends) = mpsc::channel();
            let seat = RunChannels { messages: message, end, log: log.writer()? };
            let Some(mut place) = self.place(asked.run.clone(), job.device, seat)? else {
                return Ok(Ending::Busy);
            };
            place.host.ask(&Request::Train(asked.clone()));
            let (mut attempt, mut heard) = (self.program.attempt(stop), false);
            let mut listen = |message| {
                heard = true;
                on(message);
            };
            attempt.follow(&messages, &mut listen, &mut place);
            if let Ok(ended) = ends.try_recv() {
                let end = ProcessExit { code: Some(ended.code), signal: None };
                return Ok(attempt.ending(end, &ended.words));
            }
            let end = ProcessExit::from(self.program.wait(&mut lock(&place.host.child))?);
            let again = if place.host.killed.load(Ordering::Relaxed) { !attempt.late } else { !heard && !place.first };
            if attempt.is_stopped() || !again {
                return Ok(attempt.ending(end, &log.read()?));
            }
            on(WorkerMessage::Warning {
                text: "its process ended, for which it was not the cause; it goes on in a new one".to_owned(),
            });
        }
    }
}

impl WorkerHandle for RunInProcess {
    fn stop(&mut self) {
        self.host.ask(&Request::Stop(self.run.clone()));
    }

    fn kill(&mut self) {
        self.host.killed.store(true, Ordering::Relaxed);
        let _ = lock(&self.host.child).kill(); // fails only if it has just ended
    }
}

impl HostProcess {
    fn start(program: &Program, device: &str, seats: HostedRuns) -> Result<Self> {
        let mut child = program.start(&["--host".into()], device, std::process::Stdio::piped())?;
        let seats = Arc::new(Mutex::new(seats));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let route = Arc::clone(&seats);
        let talk = stderr.map(|stderr| {
            let seats = Arc::clone(&seats);
            thread::spawn(move || log_for_all(stderr, &seats))
        });
        thread::spawn(move || {
            if let Some(stdout) = stdout {
                pass_on(stdout, &route);
            }
            // The logs must be complete before anyone reads them.
            let _ = talk.map(thread::JoinHandle::join);
            let mut seats = lock(&route);
            seats.open = false;
            seats.taken.clear();
        });
        Ok(Self { child: Mutex::new(child), stdin: Mutex::new(stdin), seats, killed: AtomicBool::new(false) })
    }

    fn ask(&self, request: &Request) {
        let line = serde_json::to_string(request).expect("a request is plain data");
        if let Some(stdin) = &mut *lock(&self.stdin) {
            // Writing fails if the process has died; its exit status then describes the failure.
            let _ = writeln!(stdin, "{line}");
        }
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        // The process ends when its stdin closes; waiting for it leaves no zombie.
        *lock(&self.stdin) = None;
        let _ = lock(&self.child).wait();
    }
}

/// Forwards every line of a process to the run that it names, until its stdout closes.
fn pass_on(stdout: impl Read, seats: &Mutex<HostedRuns>) {
    let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
    for event in lines.filter_map(|line| serde_json::from_slice::<Value>(&line).ok()) {
        let mut seats = lock(seats);
        if event["event"] == "ended" {
            if let Ok(ended) = Ended::deserialize(&event) {
                seats.open &= !ended.last;
                if let Some(mut seat) = seats.taken.remove(&ended.run) {
                    let _ = write!(seat.log, "{}", ended.words);
                    let _ = seat.end.send(ended);
                }
            }
            continue;
        }
        let seat = event["run"].as_str().and_then(|run| seats.taken.get(run));
        if let Some(to) = seat.map(|seat| seat.messages.clone()) {
            // Ends when the receiver is dropped.
            let _ = messages(event).try_for_each(|message| to.send(message));
        }
    }
}

/// Writes output of a process that belongs to no single run to the logs of all its runs.
fn log_for_all(stderr: impl Read, seats: &Mutex<HostedRuns>) {
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(n) if n > 0) {
        for seat in lock(seats).taken.values_mut() {
            // A log that cannot be written must not end a run.
            let _ = seat.log.write_all(&line);
        }
        line.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
