//! Successive halving of learning rates.

use super::flags;
use crate::config::RunConfig;
use crate::store::samples::{done, failed, provenance};
use crate::store::Store;
use crate::sweep::{Halving, Plan};

fn plan(line: &str) -> Plan {
    let task = crate::recipes::task("mqar").unwrap();
    Plan::of(task, &flags(&format!("--preset smoke --epochs 16 {line}"))).unwrap()
}

/// Publishes a result for every run of `plan` with the given accuracy; `None` publishes a failure.
fn publish(plan: &Plan, store: &Store, accuracy: impl Fn(&RunConfig) -> Option<f64>) {
    for run in &plan.runs {
        let dir = store.begin(run, &provenance()).unwrap();
        let result = match accuracy(run) {
            Some(accuracy) => done(accuracy),
            None => failed("lost"),
        };
        dir.finish(&result).unwrap();
    }
}

#[test]
fn each_round_has_twice_the_epochs_and_seeds_for_half_the_rates() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let whole = plan("--mixer ssd,softmax --lr 1e-3,2e-3,3e-3,4e-3 --seeds 3");
    assert_eq!(whole.runs.len(), 24);
    let mut halving = Halving::of(whole.clone(), 2);
    assert_eq!(halving.rounds, 2);
    assert_eq!(halving.outline(), [(8, 4), (8, 8)]);
    // 3e-3 is best for ssd and 1e-3 for softmax; in the first round 4e-3 looks good.
    let accuracy = |round: usize| {
        move |run: &RunConfig| {
            let best = if run.model.mixer == "ssd" { 3e-3 } else { 1e-3 };
            let near = 0.5 - (run.train.lr - best).abs() * 50.0;
            Some(near + if round == 0 && run.train.lr == 4e-3 { 0.2 } else { 0.0 })
        }
    };
    for (round, epochs, seeds, rates) in [(0, 4, 1, 4), (1, 8, 2, 2)] {
        let short = halving.round(round);
        assert_eq!(short.runs.len(), 2 * rates * seeds, "round {round}");
        assert!(short.runs.iter().all(|run| run.train.epochs == epochs));
        publish(&short, &store, accuracy(round));
        halving.give_up(round, &store).unwrap();
    }
    let left = halving.left;
    assert_eq!(left.runs.len(), 2 * 3);
    for run in &left.runs {
        let best = if run.model.mixer == "ssd" { 3e-3 } else { 1e-3 };
        assert_eq!((run.train.lr, run.train.epochs), (best, 16));
        assert!(whole.runs.contains(run), "whole runs are those of the grid");
    }
}

#[test]
fn what_failed_or_diverged_is_given_up_first_and_one_rate_always_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let whole = plan("--mixer ssd --lr 1e-3,2e-3,3e-3");
    let mut halving = Halving::of(whole.clone(), 3);
    assert_eq!(halving.rounds, 1);
    publish(&halving.round(0), &store, |run| match run.train.lr {
        2e-3 => Some(0.1),
        3e-3 => Some(f64::NAN),
        _ => None,
    });
    halving.give_up(0, &store).unwrap();
    let left = halving.left;
    assert_eq!(left.runs.len(), 1);
    assert_eq!(left.runs[0].train.lr, 2e-3);
    // If no rate has a result, the lowest is trained in full.
    let other = tempfile::tempdir().unwrap();
    let store = Store::open(other.path()).unwrap();
    let mut halving = Halving::of(whole, 3);
    publish(&halving.round(0), &store, |_| None);
    halving.give_up(0, &store).unwrap();
    assert_eq!(halving.left.runs[0].train.lr, 1e-3);
}

#[test]
fn a_cell_with_one_rate_is_not_tried_first() {
    let halving = Halving::of(plan("--mixer ssd,softmax --lr 1e-3"), 2);
    assert_eq!(halving.rounds, 0);
    assert_eq!(halving.left.runs.len(), 2);
}

#[test]
fn seeds_that_draw_their_own_data_are_of_one_cell() {
    let whole = plan("--protocol matched --mixer ssd --lr 1e-3,2e-3 --seed 0,1,2");
    let of_data: Vec<_> = whole.runs.iter().map(|run| run.task.get("data_seed").cloned()).collect();
    assert!(of_data.contains(&Some(2.into())), "{of_data:?}");
    // One seed per rate, then all seeds at the better rate.
    assert_eq!(Halving::of(whole, 2).outline(), [(2, 8)]);
}
