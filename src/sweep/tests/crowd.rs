//! A thousand workers on one folder whose hosts crash, in scaled time.

use super::pretender::{ids, options, world};
use crate::error::{Error, Result};
use crate::store::samples::{done, provenance};
use crate::store::{read_summary, Status, Store, TestTiming};
use crate::sweep::{run_all, Ending, Job, Plan, Worker, WorkerMessage};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Duration;

/// A twentieth of the real times: a heartbeat every quarter of a second, and a timeout of three seconds.
const TIMING: TestTiming = TestTiming { interval: Duration::from_millis(250), timeout: Duration::from_secs(3) };

/// Host of a cluster, which may crash.
struct Host<'a> {
    store: Store,
    /// Number of published results by run.
    published: &'a Mutex<HashMap<String, usize>>,
    random: Mutex<fastrand::Rng>,
    crashes: &'a AtomicUsize,
    crashed: AtomicBool,
}

impl Worker for Host<'_> {
    fn work(&self, job: &Job, _: &AtomicBool, on: &mut dyn FnMut(WorkerMessage)) -> Result<Ending> {
        let dir = match self.store.begin(job.run, &provenance()) {
            Err(Error::Busy(_)) => return Ok(Ending::Busy),
            dir => dir?,
        };
        if dir.result()?.is_some() {
            return Ok(Ending::Finished);
        }
        on(WorkerMessage::Start);
        let (pause, fate) = {
            let mut random = self.random.lock().unwrap();
            (random.u64(1..20), random.u8(0..20))
        };
        std::thread::sleep(Duration::from_millis(pause));
        if fate == 0 {
            // The host crashes in the middle of the run.
            self.crashes.fetch_add(1, Ordering::Relaxed);
            self.crashed.store(true, Ordering::Relaxed);
            dir.crash();
            return Ok(Ending::Interrupted);
        }
        let id = job.run.id();
        dir.finish(&done(0.5))?;
        *self.published.lock().unwrap().entry(id).or_default() += 1;
        Ok(Ending::Finished)
    }
}

/// Trains the shard of host `index` of `hosts` whenever its job is requeued. There are half as many shards as hosts, so
/// that two hosts share each.
fn host(index: usize, hosts: usize, plan: &Plan, store: &Store, log: (&Mutex<HashMap<String, usize>>, &AtomicUsize)) {
    let parts = hosts / 2;
    let own = plan.runs.iter().skip(index % parts).step_by(parts);
    let part = Plan { runs: own.cloned().collect(), ..plan.clone() };
    for queued in 0.. {
        let worker = Host {
            store: store.clone(),
            published: log.0,
            random: Mutex::new(fastrand::Rng::with_seed((index + hosts * queued) as u64)),
            crashes: log.1,
            crashed: AtomicBool::new(false),
        };
        let stop = AtomicBool::new(false);
        let tally = run_all(&part, store, &worker, &options(1), &stop, &mut |_, _| ());
        let crashed = worker.crashed.load(Ordering::Relaxed);
        match tally {
            Ok(tally) if tally.busy == 0 && !crashed => return,
            Ok(_) | Err(Error::Stopped) => std::thread::sleep(Duration::from_millis(500)),
            Err(e) => panic!("{e}"),
        }
    }
}

fn crowd(hosts: usize, locks: bool) {
    let world = world(2 * hosts);
    let store = if locks { world.store.clone() } else { world.store.clone().without_locks() };
    let store = store.with_timing(TIMING);
    let (published, crashes) = (Mutex::default(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for index in 0..hosts {
            let (plan, store, log) = (&world.plan, &store, (&published, &crashes));
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            let work = move || host(index, hosts, plan, store, log);
            thread.spawn_scoped(scope, work).unwrap();
        }
    });
    let crashes = crashes.into_inner();
    assert!(crashes > hosts / 20, "{crashes}");
    let published = published.into_inner().unwrap();
    assert!(published.values().all(|times| *times == 1), "a run was done twice");
    let mut found: Vec<String> = published.into_keys().collect();
    found.sort();
    assert_eq!(found, ids(&world.plan));
    for id in &found {
        assert_eq!(store.status(id).unwrap(), Status::Done);
    }
    // Every sweep does this at its end.
    store.refresh_summary("mqar").unwrap();
    let rows = read_summary(&store.summary_path("mqar")).unwrap();
    assert_eq!(rows.len(), found.len());
}

#[test]
fn a_crowd_of_hosts_that_crash_loses_no_run_and_does_none_twice_with_and_without_locks() {
    let hosts = if std::env::var("DSF_FAULTS").is_ok_and(|value| value == "all") { 1000 } else { 60 };
    for locks in [true, false] {
        crowd(hosts, locks);
    }
}
