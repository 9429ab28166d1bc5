//! Training of the runs of a plan on this machine, several in parallel. Finished runs are skipped and failures are
//! recorded, so that the same sweep can be started again at any time.

use super::grid::Plan;
use super::worker::{minutes, Ending, Job, Training, Worker, WorkerMessage};
use crate::config::{whole, RunConfig};
use crate::error::{Error, Result};
use crate::store::{Cause, Failure, Provenance, Record, RunResult, RunStatus, Store};
use clap::Args;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

/// Options for training the runs of a plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of runs in parallel.
    pub jobs: usize,
    /// Whether runs that failed before are tried again.
    pub retry_failed: bool,
    /// Threads per run.
    pub threads: usize,
    /// Devices, assigned to the jobs in turn, e.g. `cpu`, or `cuda:0` and `cuda:1`; at least one.
    pub devices: Vec<String>,
    /// Whether the runs of a device are threads of one process.
    pub hosted: bool,
    /// Flags passed to every worker.
    pub training: Training,
    /// Limits on time and failures.
    pub limits: Limits,
}

impl Options {
    /// Number of parallel runs per worker process.
    pub fn runs_a_process(&self) -> usize {
        if self.hosted {
            self.jobs.div_ceil(self.devices.len().max(1))
        } else {
            1
        }
    }
}

/// Limits on failures and on time.
#[derive(Clone, Debug, Default, Args)]
pub struct Limits {
    /// Time limit of a run, in minutes. The run writes a checkpoint and counts as failed, for the reason timeout.
    #[arg(long, hide_short_help = true, value_name = "MINUTES", value_parser = minutes)]
    pub max_minutes: Option<Duration>,
    /// Number of immediate retries of a failed run, from its last checkpoint. There is no retry after a timeout or if
    /// data are missing; a run that ran out of memory is always retried once, with half the micro-batch size.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 0)]
    pub retries: usize,
    /// Start no further runs after this many failures.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX))]
    pub max_failures: Option<u64>,
}

/// Event of one run of the plan.
#[derive(Clone, Debug)]
pub enum SweepEvent {
    /// A worker began it.
    Launched,
    /// A message from its worker.
    Message(WorkerMessage),
    /// It has a result, diverged or not.
    Finished(Box<Record>),
    /// It failed.
    Failed(Failure),
    /// It failed and is tried again.
    Again(Failure),
    /// It was skipped.
    Skipped(Skip),
    /// It was stopped; the same sweep resumes it.
    Interrupted,
}

/// Reason for skipping a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It was finished before.
    Done,
    /// It failed before.
    Failed,
    /// Another process trains it.
    Busy,
}

impl Skip {
    /// Reason for skipping a run that has a result.
    fn of(status: RunStatus) -> Self {
        match status {
            RunStatus::Done => Self::Done,
            RunStatus::Failed => Self::Failed,
        }
    }
}

/// Number of runs of a plan by outcome.
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
    /// Runs that another process trains.
    pub busy: usize,
    /// Never begun, because too many others failed.
    pub given_up: usize,
}

impl Tally {
    /// Number of runs that this sweep is finished with.
    pub fn settled(&self) -> usize {
        self.finished + self.failed + self.done_before + self.failed_before + self.busy
    }

    fn count(&mut self, event: &SweepEvent) {
        match event {
            SweepEvent::Launched | SweepEvent::Message(_) | SweepEvent::Again(_) | SweepEvent::Interrupted => {}
            SweepEvent::Finished(_) => self.finished += 1,
            SweepEvent::Failed(_) => self.failed += 1,
            SweepEvent::Skipped(Skip::Done) => self.done_before += 1,
            SweepEvent::Skipped(Skip::Failed) => self.failed_before += 1,
            SweepEvent::Skipped(Skip::Busy) => self.busy += 1,
        }
    }
}

/// Trains the runs of `plan` in order, and calls `on` with the index of a run at each of its events.
///
/// A failed run does not stop the others, unless [`Limits::max_failures`] is reached. Once `stop` is set no run is
/// begun, those in progress are stopped, and the function returns [`Error::Stopped`] unless all runs were finished
/// already.
pub fn run_all(
    plan: &Plan,
    store: &Store,
    worker: &dyn Worker,
    options: &Options,
    stop: &AtomicBool,
    on: &mut dyn FnMut(usize, SweepEvent),
) -> Result<Tally> {
    let sweep = Sweep {
        runs: &plan.runs,
        next: AtomicUsize::new(0),
        failures: AtomicUsize::new(0),
        store,
        worker,
        options,
        stop,
    };
    let mut tally = Tally::default();
    let (mut busy, mut interrupted) = (Vec::new(), false);
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
                    interrupted |= matches!(event, SweepEvent::Interrupted);
                    busy.extend(matches!(event, SweepEvent::Skipped(Skip::Busy)).then_some(index));
                    on(index, event);
                }
                Err(e) => broken = broken.take().or(Some(e)),
            }
        }
    });
    // Runs that another process held may be finished by now.
    for index in busy {
        let Some(result) = store.result(&plan.runs[index].id())? else { continue };
        tally.busy -= 1;
        tally.count(&SweepEvent::Skipped(Skip::of(result.status)));
    }
    match broken {
        Some(e) => Err(e),
        None if sweep.gives_up() && !interrupted && !stop.load(Ordering::Relaxed) => {
            tally.given_up = plan.runs.len() - tally.settled();
            Ok(tally)
        }
        None if tally.settled() < plan.runs.len() => Err(Error::Stopped),
        None => Ok(tally),
    }
}

type Events = Sender<(usize, Result<SweepEvent>)>;

struct Sweep<'a> {
    runs: &'a [RunConfig],
    next: AtomicUsize,
    failures: AtomicUsize,
    store: &'a Store,
    worker: &'a dyn Worker,
    options: &'a Options,
    stop: &'a AtomicBool,
}

impl Sweep<'_> {
    /// Trains runs on `device` until none is left.
    fn work_off(&self, device: &str, events: &Events) {
        while !self.stop.load(Ordering::Relaxed) && !self.gives_up() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = self.runs.get(index) else { return };
            let emit = |event| {
                // The receiver outlives every sender, so sending cannot fail.
                let _ = events.send((index, event));
            };
            let end = self.settle(run, device, &mut |event| emit(Ok(event)));
            if let Ok(SweepEvent::Failed(_)) = end {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
            if end.is_err() {
                self.stop.store(true, Ordering::Relaxed);
            }
            emit(end);
        }
    }

    /// Whether too many runs have failed.
    fn gives_up(&self) -> bool {
        let most = self.options.limits.max_failures;
        most.is_some_and(|most| self.failures.load(Ordering::Relaxed) as u64 >= most)
    }

    /// Trains one run until it ends, and returns its last event. Errors stop the sweep.
    fn settle(&self, run: &RunConfig, device: &str, emit: &mut dyn FnMut(SweepEvent)) -> Result<SweepEvent> {
        let id = run.id();
        let earlier = match self.store.result(&id) {
            Ok(earlier) => earlier,
            Err(e) => return Ok(broken(&e)),
        };
        match earlier.as_ref().map(|result| result.status) {
            Some(RunStatus::Done) => {
                // Leftovers that cannot be removed are harmless.
                let _ = self.store.tidy(&id);
                return Ok(SweepEvent::Skipped(Skip::Done));
            }
            Some(RunStatus::Failed) if !self.options.retry_failed => {
                return Ok(SweepEvent::Skipped(Skip::Failed));
            }
            _ => emit(SweepEvent::Launched),
        }
        let (mut retries, mut smaller) = (self.options.limits.retries, None);
        loop {
            let job = Job { run, device, micro_batch: smaller };
            let failure = match self.attempt(&job, emit)? {
                SweepEvent::Failed(failure) => failure,
                end => return Ok(end),
            };
            // Out of memory is retried once with half the micro-batch, regardless of `retries`.
            let half = (failure.cause == Cause::Oom && smaller.is_none()).then(|| half(run));
            match half.flatten() {
                Some(half) => smaller = Some(half),
                None if retries > 0 && is_worth_a_retry(failure.cause) => retries -= 1,
                None => return Ok(SweepEvent::Failed(failure)),
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(SweepEvent::Failed(failure));
            }
            emit(SweepEvent::Again(failure));
        }
    }

    /// Makes one attempt at a run, and returns its last event.
    fn attempt(&self, job: &Job, emit: &mut dyn FnMut(SweepEvent)) -> Result<SweepEvent> {
        let id = job.run.id();
        let earlier = self.store.result(&id)?;
        let mut began = false;
        let mut told = |message| {
            began |= message == WorkerMessage::Start;
            emit(SweepEvent::Message(message));
        };
        let mut found = false;
        let failure = match self.worker.work(job, self.stop, &mut told)? {
            Ending::Interrupted => return Ok(SweepEvent::Interrupted),
            Ending::Busy => return Ok(SweepEvent::Skipped(Skip::Busy)),
            Ending::Finished => {
                found = !began;
                Failure::new(Cause::Other, "the worker ended without a result")
            }
            Ending::Failed(failure) => failure,
        };
        Ok(match self.store.result(&id) {
            // Another process finished the run first.
            Ok(Some(result)) if found => SweepEvent::Skipped(Skip::of(result.status)),
            Ok(Some(result)) if Some(&result) != earlier.as_ref() => end(job.run, result),
            Ok(_) => self.record_failure(job, failure),
            Err(e) => broken(&e),
        })
    }

    /// Writes the result on behalf of a worker that could not.
    fn record_failure(&self, job: &Job, failure: Failure) -> SweepEvent {
        let run = job.run;
        let provenance = Provenance::collect(job.device, self.options.threads).in_precision(run.train.precision);
        let recorded = self.store.begin(run, &provenance).and_then(|dir| {
            if dir.result()?.is_some() {
                return Ok(());
            }
            let result = RunResult {
                micro_batch_used: job.micro_batch,
                ..RunResult::failed(failure.clone(), dir.started(), provenance)
            };
            dir.finish(&result)
        });
        match (recorded, self.store.result(&run.id())) {
            (Err(Error::Busy(_)), _) => SweepEvent::Skipped(Skip::Busy),
            (_, Ok(Some(result))) => end(run, result),
            (Err(e), _) | (_, Err(e)) => {
                let words = format!("{}; not recorded: {e}", failure.words);
                SweepEvent::Failed(Failure::new(failure.cause, words))
            }
            (Ok(()), Ok(None)) => SweepEvent::Failed(failure),
        }
    }
}

fn end(run: &RunConfig, result: RunResult) -> SweepEvent {
    match result.failure() {
        None => SweepEvent::Finished(Box::new(Record::new(run, &result))),
        Some(failure) => SweepEvent::Failed(failure),
    }
}

/// Event of a run whose record cannot be read.
fn broken(why: &Error) -> SweepEvent {
    SweepEvent::Failed(Failure::of(why))
}

/// Whether a run that failed by `cause` may succeed without changes.
fn is_worth_a_retry(cause: Cause) -> bool {
    !matches!(cause, Cause::Timeout | Cause::MissingData)
}

/// Half the micro-batch of `run`, if that is at least 1.
fn half(run: &RunConfig) -> Option<usize> {
    let train = &run.train;
    Some(train.micro_batch.unwrap_or(train.batch_size).min(train.batch_size) / 2).filter(|half| *half > 0)
}
