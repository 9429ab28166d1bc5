//! Processes with many runs, replaced by shell scripts.

use super::pretender::{world, World};
use crate::config::RunConfig;
use crate::store::{Cause, Failure};
use crate::sweep::program::Program;
use crate::sweep::{Ending, Hosts, Job, Worker, WorkerMessage};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A script that ends every run successfully and reports its process id; `$own` is inserted first.
fn script(own: &str) -> String {
    format!(
        r#"say() {{ printf '{{"event":"warning","run":"%s","text":"%s"}}\n' "$1" "$2"; }}
        end() {{ printf '{{"event":"ended","schema":1,"run":"%s","code":%s,"words":"%s","last":%s}}\n' "$1" "$2" "$3" "${{4-false}}"; }}
        while read -r line; do
            case "$line" in
                *'"train"'*) ;;
                *) id=${{line#*'"stop":"'}}; end "${{id%%'"'*}}" 75 'stopped\n'; continue ;;
            esac
            id=${{line#*'"run":"'}}
            id=${{id%%'"'*}}
            seed=${{line#*'\"seed\":'}}
            seed=${{seed%%[!0-9]*}}
            {own}
            say "$id" "$$"
            end "$id" 0 ''
        done"#
    )
}

fn hosts(world: &World, own: &str, limit: Option<Duration>) -> Hosts {
    Hosts::new(Program::script(&script(own), &world.store, limit))
}

/// Ending of a run, and the texts of its warnings.
fn work(hosts: &Hosts, run: &RunConfig, device: &str, stop: &AtomicBool) -> (Ending, Vec<String>) {
    let job = Job { run, device, micro_batch: None };
    let mut told = Vec::new();
    let ending = hosts.work(&job, stop, &mut |message| {
        if let WorkerMessage::Warning { text } = message {
            told.push(text);
        }
    });
    (ending.unwrap(), told)
}

fn alone(hosts: &Hosts, run: &RunConfig) -> (Ending, Vec<String>) {
    work(hosts, run, "cpu", &AtomicBool::new(false))
}

fn failed(cause: Cause, words: &str) -> Ending {
    Ending::Failed(Failure::new(cause, words))
}

fn log(world: &World, run: &RunConfig) -> String {
    std::fs::read_to_string(world.store.run_folder(&run.id()).join("worker.log")).unwrap()
}

#[test]
fn the_runs_of_a_device_share_a_process() {
    let world = world(3);
    let hosts = hosts(&world, "", None);
    let stop = AtomicBool::new(false);
    let told = [("cuda:0", 0), ("cuda:0", 1), ("cuda:1", 2)].map(|(device, run)| {
        let (ending, told) = work(&hosts, &world.plan.runs[run], device, &stop);
        assert_eq!(ending, Ending::Finished);
        told
    });
    assert_eq!(told[0], told[1]);
    assert_ne!(told[0], told[2]);
}

#[test]
fn a_run_that_breaks_off_does_so_alone_and_its_words_are_in_its_log() {
    let world = world(2);
    let own = r#"case $seed in 123) end "$id" 1 'error: no way\n'; continue ;; esac"#;
    let hosts = hosts(&world, own, None);
    let [a, b] = [&world.plan.runs[0], &world.plan.runs[1]];
    let failure = failed(Cause::Other, "no way (exit code 1)");
    assert_eq!(alone(&hosts, a).0, failure);
    assert_eq!(alone(&hosts, b).0, Ending::Finished);
    assert_eq!(log(&world, a), "error: no way\n");
    assert_eq!(log(&world, b), "");
}

#[test]
fn when_a_process_dies_each_of_its_runs_ends_so_and_the_next_gets_another() {
    let world = world(3);
    let own = r#"case $seed in
            123) say "$id" here; continue ;;
            124) say "$id" here; echo 'it broke' >&2; kill -ABRT $$ ;;
        esac"#;
    let hosts = hosts(&world, own, None);
    let runs = &world.plan.runs;
    thread::scope(|scope| {
        let waits = scope.spawn(|| alone(&hosts, &runs[0]));
        let log = world.store.run_folder(&runs[0].id()).join("worker.log");
        while !log.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(200));
        let failure = failed(Cause::Signal, "killed by signal 6: it broke");
        assert_eq!(alone(&hosts, &runs[1]).0, failure);
        assert_eq!(waits.join().unwrap().0, failure);
    });
    assert_eq!(log(&world, &runs[0]), "it broke\n");
    assert_eq!(alone(&hosts, &runs[2]).0, Ending::Finished);
}

#[test]
fn a_raised_stop_is_a_line_for_every_run() {
    let world = world(2);
    let hosts = hosts(&world, "continue", None);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let runs = world.plan.runs.iter();
        let (hosts, stop) = (&hosts, &stop);
        let start = |run| scope.spawn(move || work(hosts, run, "cpu", stop).0);
        let runs: Vec<_> = runs.map(start).collect();
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        for run in runs {
            assert_eq!(run.join().unwrap(), Ending::Interrupted);
        }
    });
}

#[test]
fn a_run_whose_time_is_up_is_asked_to_stop_alone() {
    let world = world(2);
    let own = r#"case $seed in 123) continue ;; esac"#;
    let hosts = hosts(&world, own, Some(Duration::from_millis(300)));
    let runs = &world.plan.runs;
    let Ending::Failed(Failure { cause, words }) = alone(&hosts, &runs[0]).0 else {
        panic!("it did not fail");
    };
    assert_eq!(cause, Cause::Timeout);
    assert!(words.contains("checkpoint is kept"), "{words}");
    assert_eq!(alone(&hosts, &runs[1]).0, Ending::Finished);
}

/// One run hangs; runs in the same process must not be affected.
#[test]
fn a_run_that_does_not_stop_is_killed_with_its_process_and_the_others_begin_again() {
    let world = world(2);
    let hang = world.store.run_folder("hang");
    let hang = hang.display();
    let own =
        format!(r#"case $seed in 123) mkdir -p '{hang}'; mkfifo '{hang}/pipe'; read -r line < '{hang}/pipe' ;; esac"#);
    // The process reads no input while it has the first run, so it never receives the second.
    let hosts = hosts(&world, &own, Some(Duration::from_secs(1)));
    let runs = &world.plan.runs;
    let (hung, other) = thread::scope(|scope| {
        let hung = scope.spawn(|| alone(&hosts, &runs[0]).0);
        thread::sleep(Duration::from_millis(1500));
        let other = alone(&hosts, &runs[1]);
        (hung.join().unwrap(), other)
    });
    let Ending::Failed(Failure { cause, words }) = hung else {
        panic!("it did not fail");
    };
    assert_eq!(cause, Cause::Timeout);
    assert!(words.contains("was killed"), "{words}");
    assert_eq!(other.0, Ending::Finished);
    assert!(other.1[0].contains("not the cause"), "{:?}", other.1);
}

#[test]
fn a_run_that_comes_to_a_dying_process_goes_to_the_next() {
    let world = world(2);
    let hosts = hosts(&world, r#"case $seed in 124) [ "$seen" ] && exit 1 ;; esac; seen=1"#, None);
    let runs = &world.plan.runs;
    assert_eq!(alone(&hosts, &runs[0]).0, Ending::Finished);
    let (ending, told) = alone(&hosts, &runs[1]);
    assert_eq!(ending, Ending::Finished);
    assert!(told[0].contains("not the cause"), "{told:?}");
}

#[test]
fn a_process_whose_device_failed_gets_no_more_runs() {
    let world = world(2);
    let own = r#"case $seed in 123) say "$id" $$; end "$id" 1 'error: illegal address\n' true; continue ;; esac"#;
    let hosts = hosts(&world, own, None);
    let [a, b] = [0, 1].map(|run| alone(&hosts, &world.plan.runs[run]));
    assert_eq!(a.0, failed(Cause::Other, "illegal address (exit code 1)"));
    assert_eq!(b.0, Ending::Finished);
    assert_ne!(a.1, b.1);
}

#[test]
fn a_process_that_cannot_begin_fails_its_run_with_the_reason() {
    let world = world(1);
    let program = Program::script("echo 'error: no such GPU' >&2; exit 2", &world.store, None);
    let failure = failed(Cause::Other, "no such GPU (exit code 2)");
    assert_eq!(alone(&Hosts::new(program), &world.plan.runs[0]).0, failure);
}
