//! Trains the runs of a plan on this machine, several at a time. Finished runs are skipped and failures
//! recorded, so that the same sweep can be started again at any time.

use super::grid::Plan;
use super::worker::{Ending, Message, Training, Worker};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::store::{Provenance, Record, RunResult, RunStatus, Store};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

/// How the runs of a plan are trained.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs at a time.
    pub jobs: usize,
    /// Whether runs that failed before are tried again.
    pub retry_failed: bool,
    /// Threads of each worker.
    pub threads: usize,
    /// Devices, which the jobs are assigned to in turn, e.g. `cpu`, or `cuda:0` and `cuda:1`; at least one.
    pub devices: Vec<String>,
    /// What every worker is told.
    pub training: Training,
}

/// What happened to one run of the plan.
#[derive(Clone, Debug)]
pub enum Event {
    /// A worker took it up.
    Launched,
    /// A message of its worker.
    Told(Message),
    /// It has a result, diverged or not.
    Finished(Box<Record>),
    /// It broke off, and why.
    Failed(String),
    /// It was skipped.
    Skipped(Skip),
    /// It was stopped; the same sweep continues it.
    Interrupted,
}

/// Why a run was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It was finished before.
    Done,
    /// It failed before.
    Failed,
    /// Another process is training it.
    Busy,
}

/// The runs of a plan, counted by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Finished in this sweep.
    pub finished: usize,
    /// Failed in this sweep.
    pub failed: usize,
    /// Finished before.
    pub done_before: usize,
    /// Failed before, and skipped.
    pub failed_before: usize,
    /// Being trained by another process.
    pub busy: usize,
}

impl Tally {
    /// Runs that are over, as far as this sweep goes.
    pub fn settled(&self) -> usize {
        self.finished + self.failed + self.done_before + self.failed_before + self.busy
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::Launched | Event::Told(_) | Event::Interrupted => {}
            Event::Finished(_) => self.finished += 1,
            Event::Failed(_) => self.failed += 1,
            Event::Skipped(Skip::Done) => self.done_before += 1,
            Event::Skipped(Skip::Failed) => self.failed_before += 1,
            Event::Skipped(Skip::Busy) => self.busy += 1,
        }
    }
}

/// Trains the runs of `plan` in order, and calls `on` with the index of a run at each of its events.
///
/// A failing run does not stop the rest. Once `stop` is raised no run is begun, those in work are
/// stopped, and the end is [`Error::Stopped`] unless all were over already.
pub fn run_all(
    plan: &Plan,
    store: &Store,
    worker: &dyn Worker,
    options: &Options,
    stop: &AtomicBool,
    on: &mut dyn FnMut(usize, Event),
) -> Result<Tally> {
    let sweep = Sweep {
        runs: &plan.runs,
        next: AtomicUsize::new(0),
        store,
        worker,
        options,
        stop,
    };
    let mut tally = Tally::default();
    let mut busy = Vec::new();
    let mut broken = None;
    thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        let jobs = options.jobs.clamp(1, plan.runs.len().max(1));
        for device in options.devices.iter().cycle().take(jobs) {
            let sender = sender.clone();
            let sweep = &sweep;
            scope.spawn(move || sweep.work_off(device, &sender));
        }
        drop(sender);
        for (index, event) in events {
            match event {
                Ok(event) => {
                    tally.count(&event);
                    busy.extend(matches!(event, Event::Skipped(Skip::Busy)).then_some(index));
                    on(index, event);
                }
                Err(e) => broken = broken.take().or(Some(e)),
            }
        }
    });
    // What another process had in hand may be over by now.
    for index in busy {
        let now = match store.result(&plan.runs[index].id())? {
            None => continue,
            Some(result) if result.status == RunStatus::Failed => Skip::Failed,
            Some(_) => Skip::Done,
        };
        tally.busy -= 1;
        tally.count(&Event::Skipped(now));
    }
    match broken {
        Some(e) => Err(e),
        None if tally.settled() < plan.runs.len() => Err(Error::Stopped),
        None => Ok(tally),
    }
}

type Events = Sender<(usize, Result<Event>)>;

struct Sweep<'a> {
    runs: &'a [RunConfig],
    next: AtomicUsize,
    store: &'a Store,
    worker: &'a dyn Worker,
    options: &'a Options,
    stop: &'a AtomicBool,
}

impl Sweep<'_> {
    /// Trains run after run on `device` until none is left.
    fn work_off(&self, device: &str, events: &Events) {
        while !self.stop.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = self.runs.get(index) else {
                return;
            };
            let tell = |event| {
                // The receiver outlives every sender.
                let _ = events.send((index, event));
            };
            let end = self.settle(run, device, &mut |event| tell(Ok(event)));
            if end.is_err() {
                self.stop.store(true, Ordering::Relaxed);
            }
            tell(end);
        }
    }

    /// Brings one run to its end, which is the last event; errors stop the sweep.
    fn settle(&self, run: &RunConfig, device: &str, tell: &mut dyn FnMut(Event)) -> Result<Event> {
        let id = run.id();
        let earlier = match self.store.result(&id) {
            Ok(earlier) => earlier,
            Err(e) => return Ok(Event::Failed(e.to_string())),
        };
        match earlier.as_ref().map(|result| result.status) {
            Some(RunStatus::Done) => return Ok(Event::Skipped(Skip::Done)),
            Some(RunStatus::Failed) if !self.options.retry_failed => {
                return Ok(Event::Skipped(Skip::Failed));
            }
            _ => tell(Event::Launched),
        }
        let mut told = |message| tell(Event::Told(message));
        let ending = self.worker.work(run, device, self.stop, &mut told)?;
        let reason = match ending {
            Ending::Interrupted => return Ok(Event::Interrupted),
            Ending::Busy => return Ok(Event::Skipped(Skip::Busy)),
            Ending::Finished => "the worker ended without a result".to_owned(),
            Ending::Failed(reason) => reason,
        };
        Ok(match self.store.result(&id) {
            Ok(Some(result)) if Some(&result) != earlier.as_ref() => end(run, &result),
            Ok(_) => self.record_failure(run, device, reason),
            Err(e) => Event::Failed(e.to_string()),
        })
    }

    /// Writes the result that the worker could not write.
    fn record_failure(&self, run: &RunConfig, device: &str, reason: String) -> Event {
        let provenance = Provenance::collect(device, self.options.threads);
        let recorded = self.store.begin(run, &provenance).and_then(|dir| {
            if dir.result()?.is_some() {
                return Ok(());
            }
            let result = RunResult::failed(&reason, dir.started(), provenance);
            dir.finish(&result)
        });
        match (recorded, self.store.result(&run.id())) {
            (Err(Error::Busy(_)), _) => Event::Skipped(Skip::Busy),
            (_, Ok(Some(result))) => end(run, &result),
            (Err(e), _) | (_, Err(e)) => Event::Failed(format!("{reason}; not recorded: {e}")),
            (Ok(()), Ok(None)) => Event::Failed(reason),
        }
    }
}

fn end(run: &RunConfig, result: &RunResult) -> Event {
    match result.status {
        RunStatus::Done => Event::Finished(Box::new(Record::new(run, result))),
        RunStatus::Failed => Event::Failed(result.reason.clone()),
    }
}
