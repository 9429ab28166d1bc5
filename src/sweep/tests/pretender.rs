//! A worker that only pretends to train, and a small world to sweep in.

use super::flags;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::store::samples::{done, provenance};
use crate::store::{Cause, Failure, Store};
use crate::sweep::{run_all, Ending, Job, Limits, Options, Plan, SweepEvent, Tally, Training, Worker, WorkerMessage};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Action of a pretender on a run that it has claimed.
pub(super) type Act = fn(&RunConfig, &AtomicBool) -> Result<Ending>;

pub(super) struct Pretender {
    store: Store,
    act: Act,
    trained: Mutex<Vec<String>>,
    at_work: AtomicUsize,
    pub most_at_work: AtomicUsize,
    /// Number of runs at work at a time for which each run waits, ten seconds at most.
    awaited: usize,
    /// Devices that runs were sent to.
    pub devices: Mutex<BTreeSet<String>>,
    /// Requested micro-batch sizes, by attempt.
    pub micro_batches: Mutex<Vec<Option<usize>>>,
}

impl Pretender {
    pub fn new(store: &Store, act: Act) -> Self {
        Self {
            store: store.clone(),
            act,
            trained: Mutex::default(),
            at_work: AtomicUsize::new(0),
            most_at_work: AtomicUsize::new(0),
            awaited: 0,
            devices: Mutex::default(),
            micro_batches: Mutex::default(),
        }
    }

    pub fn awaiting(self, awaited: usize) -> Self {
        Self { awaited, ..self }
    }

    pub fn trained(&self) -> Vec<String> {
        let mut trained = self.trained.lock().unwrap().clone();
        trained.sort();
        trained
    }
}

impl Worker for Pretender {
    fn work(&self, job: &Job, stop: &AtomicBool, on: &mut dyn FnMut(WorkerMessage)) -> Result<Ending> {
        let run = job.run;
        let dir = match self.store.begin(run, &provenance()) {
            Err(Error::Busy(_)) => return Ok(Ending::Busy),
            dir => dir?,
        };
        if dir.result()?.is_some() {
            return Ok(Ending::Finished);
        }
        let at_work = self.at_work.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_work.fetch_max(at_work, Ordering::SeqCst);
        self.devices.lock().unwrap().insert(job.device.to_owned());
        self.micro_batches.lock().unwrap().push(job.micro_batch);
        on(WorkerMessage::Start);
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        while self.most_at_work.load(Ordering::SeqCst) < self.awaited && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ending = (self.act)(run, stop)?;
        if ending == Ending::Finished {
            self.trained.lock().unwrap().push(run.id());
            dir.finish(&done(0.5))?;
        }
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        Ok(ending)
    }
}

pub(super) fn train(_: &RunConfig, _: &AtomicBool) -> Result<Ending> {
    Ok(Ending::Finished)
}

/// Fails the run with seed 124.
pub(super) fn break_one(run: &RunConfig, _: &AtomicBool) -> Result<Ending> {
    Ok(match run.seed {
        124 => Ending::Failed(Failure::new(Cause::Signal, "killed by signal 9; out of memory?")),
        _ => Ending::Finished,
    })
}

/// Sets the stop flag while the run with seed 125 is trained.
pub(super) fn interrupt(run: &RunConfig, stop: &AtomicBool) -> Result<Ending> {
    stop.fetch_or(run.seed == 125, Ordering::Relaxed);
    Ok(if stop.load(Ordering::Relaxed) { Ending::Interrupted } else { Ending::Finished })
}

pub(super) fn vanish(_: &RunConfig, _: &AtomicBool) -> Result<Ending> {
    Ok(Ending::Interrupted)
}

pub(super) fn no_program(_: &RunConfig, _: &AtomicBool) -> Result<Ending> {
    Err(Error::usage("cannot start workers"))
}

pub(super) fn options(jobs: usize) -> Options {
    Options {
        jobs,
        retry_failed: false,
        threads: 1,
        devices: vec!["cpu".to_owned()],
        hosted: false,
        training: Training::default(),
        limits: Limits::default(),
    }
}

fn plan(runs: usize) -> Plan {
    Plan::of(crate::recipes::task("mqar").unwrap(), &flags(&format!("--preset smoke --mixer ssd --seeds {runs}")))
        .unwrap()
}

pub(super) fn ids(plan: &Plan) -> Vec<String> {
    let mut ids: Vec<String> = plan.runs.iter().map(RunConfig::id).collect();
    ids.sort();
    ids
}

pub(super) struct World {
    _folder: tempfile::TempDir,
    pub store: Store,
    pub plan: Plan,
}

pub(super) fn world(runs: usize) -> World {
    let folder = tempfile::tempdir().unwrap();
    World { store: Store::open(folder.path()).unwrap(), _folder: folder, plan: plan(runs) }
}

impl World {
    pub fn sweep(&self, worker: &Pretender, options: &Options) -> (Result<Tally>, Vec<(usize, SweepEvent)>) {
        let mut events = Vec::new();
        let stop = AtomicBool::new(false);
        let mut on = |index, event| events.push((index, event));
        let tally = run_all(&self.plan, &self.store, worker, options, &stop, &mut on);
        (tally, events)
    }

    pub fn tally(&self, act: Act, options: &Options) -> Tally {
        self.sweep(&Pretender::new(&self.store, act), options).0.unwrap()
    }
}
