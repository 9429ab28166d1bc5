//! Plans from flags.

use super::flags;
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::mixers::MIXERS;
use crate::recipes::task;
use crate::sweep::Plan;
use proptest::prelude::*;

fn plan(line: &str) -> Plan {
    Plan::of(task("mqar").unwrap(), &flags(line)).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn refuses(line: &str, flag: &str) -> Diagnostic {
    Plan::of(task("mqar").unwrap(), &flags(line)).refuses(flag)
}

#[test]
fn the_command_of_the_readme_plans_five_mixers_at_four_sizes() {
    let plan = plan("--d 64,128 --n 32,64");
    assert_eq!((plan.runs.len(), plan.duplicates), (20, 0));
}

#[test]
fn mixers_vary_slowest_and_seeds_fastest() {
    let plan = plan("--mixer ssd,s6 --d 64,128 --lr 1e-3,2e-3 --seeds 2");
    let of = |i: usize| {
        let run = &plan.runs[i];
        (run.model.mixer.as_str(), run.model.d_model, run.train.lr, run.seed)
    };
    assert_eq!(of(0), ("ssd", 64, 1e-3, 123));
    assert_eq!(of(1), ("ssd", 64, 1e-3, 124));
    assert_eq!(of(2), ("ssd", 64, 2e-3, 123));
    assert_eq!(of(4), ("ssd", 128, 1e-3, 123));
    assert_eq!(of(8), ("s6", 64, 1e-3, 123));
}

#[test]
fn all_is_the_whole_registry() {
    let plan = plan("--mixer all");
    let mixers: Vec<&str> = plan.runs.iter().map(|r| r.model.mixer.as_str()).collect();
    let registry: Vec<&str> = MIXERS.iter().map(|e| e.name).collect();
    assert_eq!(mixers, registry);
}

#[test]
fn where_the_paper_swept_no_rate_its_rates_are_refused() {
    for task in ["lra", "recall", "induction", "selective-copying"] {
        let task = crate::recipes::task(task).unwrap();
        let refused = Plan::of(task, &flags("--lr paper")).refuses("--lr");
        refused.gives("paper").names(&["--lr 1e-3,3e-3"]);
    }
}

#[test]
fn paper_is_four_learning_rates() {
    let rates: Vec<f64> = plan("--mixer ssd --lr paper").runs.iter().map(|r| r.train.lr).collect();
    assert_eq!(rates, [1e-4, 4.641_588_833_612_779e-4, 2.154_434_690_031_884e-3, 1e-2]);
}

#[test]
fn combinations_that_mean_the_same_run_are_planned_once_and_counted() {
    let plan = plan("--mixer qlstm,ssd --n 32,64,128 --d 64,64");
    assert_eq!((plan.runs.len(), plan.duplicates), (4, 8));
}

#[test]
fn values_of_one_option_are_alternatives_and_options_combine() {
    let plan = plan("--mixer s6 --option dt_init=zero,dt_init=mamba");
    let values: Vec<&str> = plan.runs.iter().map(|r| r.model.options["dt_init"].as_str()).collect();
    assert_eq!(values, ["zero", "mamba"]);
}

#[test]
fn one_size_that_cannot_be_trained_refuses_the_whole_plan() {
    let at = refuses("--seq-len 64,32 --kv-pairs 4,16", "--kv-pairs");
    at.gives("16").names(&["--seq-len 32"]);
}

#[test]
fn a_variant_that_one_mixer_lacks_refuses_the_whole_plan() {
    let at = refuses("--mixer softmax,mamba --variant paper", "--variant");
    at.gives("paper").names(&["mamba"]);
}

#[test]
fn a_plan_beyond_all_measure_is_refused_before_it_is_built() {
    for line in ["--seeds 100001", "--seeds 0"] {
        refuses(line, "--seeds");
    }
    let many = Plan::of(task("mqar").unwrap(), &flags("--seeds 90000 --d 64,128"));
    many.fails("refused").names(&["--seeds 90000", "--d 64,128"]);
    let last = u64::MAX;
    refuses(&format!("--seed {last} --seeds 3"), "--seeds").names(&[&format!("--seed {last}")]);
}

#[test]
fn a_list_of_seeds_and_a_count_of_seeds_exclude_each_other() {
    refuses("--seed 1,2 --seeds 3", "--seed").gives("1,2").names(&["--seeds"]);
}

#[test]
fn an_unknown_task_is_refused_with_the_known_ones() {
    task("mqra").refuses("--task").gives("mqra").names(&["`mqar`"]);
}

fn numbers(most: usize) -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::btree_set(1..=64usize, 1..=most).prop_map(|set| set.into_iter().collect())
}

fn joined<T: ToString>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    texts.join(",")
}

proptest! {
    #[test]
    fn the_size_of_a_grid_is_the_product_of_its_axes(
        d in numbers(3),
        n in numbers(3),
        layers in numbers(2),
        seeds in 1..4u64,
        lr in proptest::sample::subsequence(vec![1e-4, 1e-3, 1e-2], 1..=3),
    ) {
        let size = 5 * d.len() * n.len() * layers.len() * seeds as usize * lr.len();
        let line = format!("--d {} --n {} --layers {} --lr {} --seeds {seeds}",
                           joined(&d), joined(&n), joined(&layers), joined(&lr));
        let plan = Plan::of(task("mqar").unwrap(), &flags(&line)).unwrap();
        prop_assert_eq!((plan.runs.len(), plan.duplicates), (size, 0));
    }

    #[test]
    fn a_list_is_taken_from_the_highest_layer_that_gives_it(
        top in proptest::collection::vec(1..9usize, 0..3),
        middle in proptest::collection::vec(1..9usize, 0..3),
        bottom in proptest::collection::vec(1..9usize, 0..3),
    ) {
        let of = |d: &[usize]| match d {
            [] => flags(""),
            d => flags(&format!("--d {}", joined(d))),
        };
        let overlaid = of(&top).over(&of(&middle).over(&of(&bottom)));
        let highest = [top, middle, bottom].into_iter().find(|d| !d.is_empty());
        prop_assert_eq!(overlaid.list("d").join(","), joined(&highest.unwrap_or_default()));
    }
}
