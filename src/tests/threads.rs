//! The number of threads is no part of a run.

use crate::training::{trace, Trace};
use crate::world::run;
use dsf::config::Protocol;
use dsf::mixers::MIXERS;
use dsf::tasks;
use std::process::Command;

/// A run wide enough for its work to be split between threads.
fn wide(mixer: &str) -> Trace {
    let changes = [
        ("d", "64"),
        ("n", "16"),
        ("seq-len", "64"),
        ("vocab-size", "512"),
        ("train-examples", "32"),
        ("test-examples", "16"),
        ("batch-size", "32"),
        ("epochs", "1"),
    ];
    let config = run(mixer, Protocol::Reference, &changes);
    trace(&config, &tasks::load(&config.task, None).unwrap())
}

#[test]
#[ignore = "an errand of the next test"]
fn wide_runs_of_this_process() {
    for entry in MIXERS {
        println!("trace {} {:?}", entry.name, wide(entry.name));
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    // A process each: the pools of rayon and of the matrix products are made once in its life.
    let on = |threads: &str| -> Vec<String> {
        let errand = ["--exact", "threads::wide_runs_of_this_process"];
        let output = Command::new(std::env::current_exe().unwrap())
            .args(errand)
            .args(["--ignored", "--nocapture"])
            .env("RAYON_NUM_THREADS", threads)
            .env("CANDLE_NUM_THREADS", threads)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let traces = text.lines().filter_map(|l| l.split_once("trace "));
        traces.map(|(_, trace)| trace.to_owned()).collect()
    };
    let one = on("1");
    assert_eq!(one.len(), MIXERS.len());
    assert_eq!(one, on("2"));
}
