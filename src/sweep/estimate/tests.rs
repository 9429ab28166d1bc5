//! Costs of runs, and the text of a dry run.

use super::cost::{makespan, CostModel, Probe};
use super::dry_run::describe;
use super::work::RunWork;
use super::{costs, dry_run, headline, sentence, Cost};
use crate::recipes::task;
use crate::recipes::testing::flags;
use crate::store::samples::{done, failed, provenance};
use crate::store::Store;
use crate::sweep::{Limits, Options, Plan, PlanStatus, Training};
use candle_core::Device;
use std::path::Path;

fn plan() -> Plan {
    Plan::of(task("mqar").unwrap(), &flags("--preset smoke --mixer ssd,qlstm --n 8,16 --seeds 3")).unwrap()
}

fn options() -> Options {
    Options {
        jobs: 2,
        retry_failed: false,
        threads: 1,
        devices: vec!["cpu".to_owned()],
        hosted: false,
        training: Training::default(),
        limits: Limits::default(),
    }
}

/// A store in which three runs of the plan were begun: one is done, one failed, one is unfinished.
fn store_with_some(plan: &Plan) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let begin = |index: usize| store.begin(&plan.runs[index], &provenance()).unwrap();
    begin(0).finish(&done(0.5)).unwrap();
    begin(1).finish(&failed("out of memory")).unwrap();
    drop(begin(2));
    (folder, store)
}

#[test]
fn finished_and_failed_runs_are_not_to_be_done_and_begun_ones_are() {
    let plan = plan();
    let (_folder, store) = store_with_some(&plan);
    let standing = PlanStatus::of(&plan.runs, Some(&store), false).unwrap();
    assert_eq!((standing.done, standing.failed, standing.begun), (1, 1, 1));
    assert_eq!(standing.to_do, plan.runs[2..]);
    let retried = PlanStatus::of(&plan.runs, Some(&store), true).unwrap();
    assert_eq!(retried.to_do, plan.runs[1..]);
}

#[test]
fn a_folder_that_is_not_there_holds_no_run() {
    let plan = plan();
    let standing = PlanStatus::of(&plan.runs, None, false).unwrap();
    assert_eq!(standing.to_do, plan.runs);
}

#[test]
fn a_dry_run_says_count_axes_work_time_memory_and_place() {
    let plan = plan();
    let (_folder, store) = store_with_some(&plan);
    let standing = PlanStatus::of(&plan.runs, Some(&store), false).unwrap();
    let cost = Cost { epoch_seconds: 2.0, seconds: 100.0, bytes: 3e8 };
    let small = Cost { bytes: 1e8, ..cost };
    let costs = [vec![small; 6], vec![cost]].concat();
    let text = describe(&plan, &standing, &costs, &options(), Path::new("results")).unwrap();
    let expected = "\
plan    9 runs: 1 done, 1 failed, 7 to do (1 of them begun); 3 duplicates left out
        mixer         ssd, qlstm
        protocol      reference
        d             16
        n             8, 16, 1
        L:k           16:2
        V             32
        examples      200
        lr            0.002
        epochs        1
        batch         32
        seed          123, 124, 125
work    at most 49 steps and 22,400 tokens
time    at most about 6 min 40 s on cpu with 2 jobs of 1 thread, less where a run learns sooner; 8.0 s for one epoch each
memory  about 300 MB for the largest run, 400 MB for the largest at once
out     results
";
    assert_eq!(text, expected);
}

#[test]
fn a_dry_run_of_the_arena_names_its_datasets_first_and_no_pairs() {
    let line = "--preset smoke --dataset listops,pathfinder --mixer ssd";
    let arena = Plan::of(task("lra").unwrap(), &flags(line)).unwrap();
    let text = describe(&arena, &PlanStatus::default(), &[], &options(), Path::new("out")).unwrap();
    let second = text.lines().nth(1).unwrap().trim();
    assert_eq!(second, "dataset       listops, pathfinder");
    assert!(text.contains("        L             2048, 1024\n"), "{text}");
    assert!(!text.contains("L:k"), "{text}");
    assert!(headline(&arena).starts_with("2 runs: dataset listops, pathfinder; L 2048, 1024"));
    let mixed = Plan { runs: [arena.runs, plan().runs].concat(), ..Plan::default() };
    let text = describe(&mixed, &PlanStatus::default(), &[], &options(), Path::new("out")).unwrap();
    assert!(text.contains("        L:k           16:2\n"), "{text}");
}

#[test]
fn long_lists_are_shortened_and_other_settings_shown_once_they_vary() {
    let plan = Plan::of(task("mqar").unwrap(), &flags("--mixer ssd --seeds 10 --dropout 0,0.1 --layers 1,2")).unwrap();
    let standing = PlanStatus::default();
    let text = describe(&plan, &standing, &[], &options(), Path::new("out")).unwrap();
    for line in ["seed          123, 124, .. 132 (10 values)", "dropout       0, 0.1", "layers        1, 2"] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("heads"), "{text}");
}

#[test]
fn a_finished_plan_has_nothing_left_to_do() {
    let text =
        describe(&plan(), &PlanStatus { done: 9, ..PlanStatus::default() }, &[], &options(), Path::new("out")).unwrap();
    assert!(text.contains("9 done, 0 failed, 0 to do"), "{text}");
    assert!(text.contains("nothing is left to do"), "{text}");
}

#[test]
fn workers_take_the_next_run_as_soon_as_they_are_free() {
    assert_eq!(makespan([4.0, 1.0, 1.0, 1.0], 2), 4.0);
    assert_eq!(makespan([1.0, 1.0, 4.0], 2), 5.0);
    assert_eq!(makespan([1.0, 2.0], 8), 2.0);
    assert_eq!(makespan([], 2), 0.0);
}

#[test]
fn every_run_of_a_plan_gets_a_cost_and_larger_runs_a_larger_one() {
    let plan = Plan::of(task("mqar").unwrap(), &flags("--preset smoke --mixer ssd,softmax --d 16,128")).unwrap();
    let costs = costs(&plan.runs, &Device::Cpu).unwrap();
    assert_eq!(costs.len(), 4);
    assert!(costs.iter().all(|cost| cost.seconds > 0.0 && cost.seconds == cost.epoch_seconds));
    assert!(costs[1].bytes > costs[0].bytes && costs[3].bytes > costs[2].bytes);
}

#[test]
fn a_run_between_two_probes_is_timed_between_them() {
    let run = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap();
    let probe = |example: f64, seconds_per_flop: f64| Probe { example, seconds_per_flop };
    let model = CostModel { small: probe(1e6, 4e-11), large: probe(1e8, 2e-11) };
    let seconds = |example: f64| {
        let work = RunWork { example, update: 0.0, epoch: 1e11, bytes: 0.0 };
        model.cost(&run, &work).epoch_seconds
    };
    for (example, expected) in [(1e6, 4.0), (1e7, 3.0), (1e8, 2.0)] {
        assert!((seconds(example) - expected).abs() < 1e-9, "{example}");
    }
}

#[test]
fn the_sentence_of_a_run_says_that_it_is_an_upper_bound() {
    let run = crate::recipes::run("mqar", &[("preset", "smoke")]).unwrap();
    let said = sentence(&run, &run.task.sizes().unwrap(), &Device::Cpu).unwrap();
    assert!(said.contains("at most about") && said.contains("less if it"), "{said}");
    assert!(said.contains("1 epoch,") && said.contains(" MB of memory"), "{said}");
}

#[test]
fn a_dry_run_makes_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("none");
    let (plan, options) = (plan(), options());
    let forecast = dry_run(&plan, &out, &options, &Device::Cpu).unwrap();
    let text = forecast.text().unwrap();
    assert!(text.starts_with("plan    9 runs: 0 done, 0 failed, 9 to do"), "{text}");
    assert!(!out.exists());
}

#[test]
fn the_headline_names_the_count_and_what_varies() {
    let expected = "9 runs: mixer ssd, qlstm; n 8, 16, 1; seed 123, 124, 125";
    assert_eq!(headline(&plan()), expected);
    let of = |line: &str| headline(&Plan::of(task("mqar").unwrap(), &flags(line)).unwrap());
    assert_eq!(of("--mixer ssd"), "1 run");
    // A setting that configs omit at its neutral value counts as an axis if it varies.
    let variants = "--mixer ssd --seq-len 64 --passes 1,2 --overwrites 0,3 --test-seq-len 64,128";
    let expected = "8 runs: test-seq-len as L, 128; overwrites 0, 3; passes 1, 2";
    assert_eq!(of(variants), expected);
    let positions = "2 runs: positions true, false";
    assert_eq!(of("--mixer softmax --positions true,false"), positions);
}
