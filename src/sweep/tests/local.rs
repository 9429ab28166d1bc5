//! Sweeps with a worker that only pretends to train.

use super::pretender::{break_one, ids, interrupt, no_program, options, train, vanish, world, Pretender};
use crate::error::testing::Fails;
use crate::error::{Error, Result};
use crate::store::samples::{failed, provenance};
use crate::store::{read_summary, Cause, Column, Failure, RunStatus, Status, Store};
use crate::sweep::{run_all, Ending, Job, Limits, Options, Skip, SweepEvent, Tally, Worker, WorkerMessage};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn every_run_is_launched_heard_and_finished() {
    let world = world(3);
    let worker = Pretender::new(&world.store, train);
    let (tally, events) = world.sweep(&worker, &options(1));
    assert_eq!(tally.unwrap(), Tally { finished: 3, ..Tally::default() });
    assert_eq!(events.len(), 9);
    for (index, chunk) in events.chunks(3).enumerate() {
        assert!(chunk.iter().all(|(i, _)| *i == index));
        let [(_, SweepEvent::Launched), (_, SweepEvent::Message(WorkerMessage::Start)), (_, SweepEvent::Finished(row))] =
            chunk
        else {
            panic!("{chunk:?}");
        };
        assert_eq!((row.run_id(), row.number(Column::ACCURACY)), (&*world.plan.runs[index].id(), Some(0.5)));
    }
}

#[test]
fn a_failing_run_is_a_row_with_its_reason_and_does_not_stop_the_rest() {
    let world = world(4);
    let tally = world.tally(break_one, &options(2));
    assert_eq!(tally, Tally { finished: 3, failed: 1, ..Tally::default() });
    let rows = read_summary(&world.store.summary_path("mqar")).unwrap();
    let failed: Vec<_> = rows.iter().filter(|r| r.status() == Some(RunStatus::Failed)).collect();
    assert_eq!((rows.len(), failed.len(), failed[0].count(Column::SEED)), (4, 1, 124));
    assert_eq!(failed[0].text(Column::REASON), "killed by signal 9; out of memory?");
    assert_eq!(failed[0].text(Column::CAUSE), "signal");
}

#[test]
fn what_is_done_or_failed_is_left_alone_until_a_retry_is_asked_for() {
    let world = world(4);
    world.tally(break_one, &options(2));
    let again = world.tally(train, &options(2));
    assert_eq!(again, Tally { done_before: 3, failed_before: 1, ..Tally::default() });
    let retry = Options { retry_failed: true, ..options(2) };
    assert_eq!(world.tally(train, &retry), Tally { done_before: 3, finished: 1, ..Tally::default() });
}

#[test]
fn a_retry_that_fails_again_records_its_own_reason() {
    let world = world(2);
    world.tally(|_, _| Ok(Ending::Failed(Failure::new(Cause::Other, "first"))), &options(1));
    let retry = Options { retry_failed: true, ..options(1) };
    world.tally(|_, _| Ok(Ending::Failed(Failure::new(Cause::Other, "second"))), &retry);
    let scan = world.store.rows(&["mqar"]).unwrap();
    assert!(scan.rows.iter().all(|row| row.text(Column::REASON) == "second"));
}

#[test]
fn an_interrupted_sweep_resumes_only_what_is_missing() {
    let world = world(6);
    let first = Pretender::new(&world.store, interrupt);
    let (end, events) = world.sweep(&first, &options(1));
    assert!(matches!(end, Err(Error::Stopped)));
    assert!(matches!(events.last(), Some((2, SweepEvent::Interrupted))));
    assert_eq!(first.trained().len(), 2);
    let second = Pretender::new(&world.store, train);
    let (end, _) = world.sweep(&second, &options(2));
    assert_eq!(end.unwrap(), Tally { done_before: 2, finished: 4, ..Tally::default() });
    let mut all = [first.trained(), second.trained()].concat();
    all.sort();
    assert_eq!(all, ids(&world.plan));
}

#[test]
fn a_run_stopped_from_elsewhere_leaves_the_sweep_unfinished_but_not_the_others() {
    let world = world(3);
    let (end, events) = world.sweep(&Pretender::new(&world.store, vanish), &options(1));
    assert!(matches!(end, Err(Error::Stopped)));
    let interrupted = events.iter().filter(|(_, e)| matches!(e, SweepEvent::Interrupted));
    assert_eq!(interrupted.count(), 3);
}

#[test]
fn two_sweeps_in_one_folder_never_train_a_run_twice() {
    let world = world(24);
    let workers = [train, train].map(|act| Pretender::new(&world.store, act));
    let tallies = std::thread::scope(|scope| {
        let sweeps = [0, 1].map(|i| {
            let (world, worker) = (&world, &workers[i]);
            scope.spawn(move || world.sweep(worker, &options(2)).0.unwrap())
        });
        sweeps.map(|sweep| sweep.join().unwrap())
    });
    let mut trained = [workers[0].trained(), workers[1].trained()].concat();
    trained.sort();
    assert_eq!(trained, ids(&world.plan));
    assert!(tallies.iter().all(|tally| tally.settled() == 24), "{tallies:?}");
}

#[test]
fn a_run_that_another_process_holds_is_left_to_it() {
    let world = world(2);
    let held = world.store.begin(&world.plan.runs[0], &provenance()).unwrap();
    let (tally, events) = world.sweep(&Pretender::new(&world.store, train), &options(1));
    assert_eq!(tally.unwrap(), Tally { finished: 1, busy: 1, ..Tally::default() });
    assert!(matches!(events[1], (0, SweepEvent::Skipped(Skip::Busy))));
    assert_eq!(world.store.status(held.id()).unwrap(), Status::Started);
}

#[test]
fn no_more_runs_than_jobs_are_in_work_at_once() {
    let world = world(12);
    let worker = Pretender::new(&world.store, train).awaiting(3);
    world.sweep(&worker, &options(3)).0.unwrap();
    assert_eq!(worker.most_at_work.load(Ordering::SeqCst), 3);
}

#[test]
fn runs_are_spread_over_the_devices() {
    let world = world(12);
    let worker = Pretender::new(&world.store, train).awaiting(4);
    let devices = vec!["cuda:0".to_owned(), "cuda:1".to_owned()];
    let options = Options { devices: devices.clone(), ..options(4) };
    world.sweep(&worker, &options).0.unwrap();
    let used: Vec<_> = worker.devices.lock().unwrap().iter().cloned().collect();
    assert_eq!(used, devices);
    assert_eq!(worker.most_at_work.load(Ordering::SeqCst), 4);
}

#[test]
fn a_damaged_result_fails_its_run_only() {
    let world = world(3);
    let folder = world.store.run_folder(&world.plan.runs[0].id());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("result.json"), "{").unwrap();
    let (tally, events) = world.sweep(&Pretender::new(&world.store, train), &options(1));
    assert_eq!(tally.unwrap(), Tally { finished: 2, failed: 1, ..Tally::default() });
    let (0, SweepEvent::Failed(failure)) = &events[0] else { panic!("{events:?}") };
    assert!(failure.words.contains("result.json"), "{failure}");
}

/// Ends successfully without a result, or with a record of a failure.
struct Careless<'a>(&'a Store);

impl Worker for Careless<'_> {
    fn work(&self, job: &Job, _: &AtomicBool, _: &mut dyn FnMut(WorkerMessage)) -> Result<Ending> {
        if job.run.seed == 123 {
            return Ok(Ending::Finished);
        }
        let dir = self.0.begin(job.run, &provenance())?;
        dir.finish(&failed("a tensor operation failed"))?;
        Ok(Ending::Failed(Failure::new(Cause::Other, "exit code 1")))
    }
}

#[test]
fn a_worker_without_a_result_failed_and_its_own_record_of_a_failure_stands() {
    let world = world(2);
    let (stop, mut reasons) = (AtomicBool::new(false), Vec::new());
    let mut on = |_, event| {
        if let SweepEvent::Failed(failure) = event {
            reasons.push(failure.words);
        }
    };
    let worker = Careless(&world.store);
    run_all(&world.plan, &world.store, &worker, &options(1), &stop, &mut on).unwrap();
    assert_eq!(reasons, ["the worker ended without a result", "a tensor operation failed"]);
}

#[test]
fn workers_that_cannot_be_started_end_the_sweep_at_once() {
    let world = world(4);
    let (end, events) = world.sweep(&Pretender::new(&world.store, no_program), &options(1));
    end.fails("refused");
    assert!(events.iter().all(|(index, _)| *index == 0), "{events:?}");
}

fn limits(limits: Limits) -> Options {
    Options { limits, ..options(1) }
}

fn fail(cause: Cause) -> Result<Ending> {
    Ok(Ending::Failed(Failure::new(cause, "it broke")))
}

#[test]
fn a_failing_run_is_tried_again_as_often_as_is_asked_for() {
    let world = world(1);
    let worker = Pretender::new(&world.store, |_, _| fail(Cause::Panic));
    let twice = limits(Limits { retries: 2, ..Limits::default() });
    let (tally, events) = world.sweep(&worker, &twice);
    assert_eq!(tally.unwrap().failed, 1);
    assert_eq!(worker.micro_batches.lock().unwrap().len(), 3);
    let again = |event: &&(usize, SweepEvent)| matches!(event, (0, SweepEvent::Again(_)));
    assert_eq!(events.iter().filter(again).count(), 2);
}

#[test]
fn a_timeout_and_missing_data_are_no_reason_to_try_again() {
    let twice = limits(Limits { retries: 2, ..Limits::default() });
    for act in [(|_, _| fail(Cause::Timeout)) as super::pretender::Act, |_, _| fail(Cause::MissingData)] {
        let world = world(1);
        let worker = Pretender::new(&world.store, act);
        world.sweep(&worker, &twice).0.unwrap();
        assert_eq!(worker.micro_batches.lock().unwrap().len(), 1);
    }
}

#[test]
fn a_run_that_runs_out_of_memory_is_tried_once_at_half_the_micro_batch() {
    let world = world(1);
    let worker = Pretender::new(&world.store, |_, _| fail(Cause::Oom));
    let tally = world.sweep(&worker, &options(1)).0.unwrap();
    assert_eq!(tally.failed, 1);
    let half = world.plan.runs[0].train.batch_size / 2;
    assert_eq!(*worker.micro_batches.lock().unwrap(), [None, Some(half)]);
    let result = world.store.result(&world.plan.runs[0].id()).unwrap().unwrap();
    assert_eq!((result.cause, result.micro_batch_used), (Some(Cause::Oom), Some(half)));
}

#[test]
fn a_sweep_gives_up_after_so_many_failures() {
    let world = world(6);
    let two = limits(Limits { max_failures: Some(2), ..Limits::default() });
    assert_eq!(world.tally(|_, _| fail(Cause::Nan), &two), Tally { failed: 2, given_up: 4, ..Tally::default() });
}

#[test]
fn eight_sweeps_in_one_folder_train_every_run_once_with_and_without_locks() {
    for locks in [true, false] {
        let world = world(100);
        let store = if locks { world.store.clone() } else { world.store.clone().without_locks() };
        let workers: Vec<Pretender> = (0..8).map(|_| Pretender::new(&store, train)).collect();
        std::thread::scope(|scope| {
            for worker in &workers {
                let (plan, store) = (&world.plan, &store);
                scope.spawn(move || {
                    let stop = AtomicBool::new(false);
                    run_all(plan, store, worker, &options(1), &stop, &mut |_, _| ()).unwrap()
                });
            }
        });
        let mut trained: Vec<String> = workers.iter().flat_map(Pretender::trained).collect();
        trained.sort();
        assert_eq!(trained, ids(&world.plan), "locks: {locks}");
    }
}
