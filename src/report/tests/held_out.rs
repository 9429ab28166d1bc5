//! Rates that are chosen on numbers that are not reported, and what should not be mixed.

use super::*;
use crate::store::samples::{config, diverged, done, read, text_config};
use crate::store::Column;

fn at(lr: f64, seed: u64) -> RunConfig {
    let mut config = config();
    (config.train.lr, config.seed) = (lr, seed);
    config
}

fn rows(lr: f64, accuracies: &[f64]) -> Vec<Record> {
    let seeds = (0..).zip(accuracies);
    seeds.map(|(seed, a)| Record::new(&at(lr, seed), &done(*a))).collect()
}

fn held_out(rows: &[Record]) -> Report {
    let none: PresetsOf = &|_| unreachable!("the grid asks no preset");
    let asked = ReportOptions { select: RateChoice::HeldOut, ..ReportOptions::default() };
    report(figure(FigureSeries::Grid, ""), rows, None, none, &asked).unwrap()
}

fn only(report: &Report) -> GroupStatus {
    match report.grids[0].lines[0].cells[0].content {
        Content::Result(status) => status,
        ref other => panic!("{other:?}"),
    }
}

/// Seeds 0 and 2 choose for 1 and 3, and the reverse.
#[test]
fn each_half_of_the_seeds_is_reported_at_the_rate_that_is_best_on_the_other() {
    let mut runs = rows(1e-3, &[0.9, 0.1, 0.7, 0.3]);
    runs.extend(rows(1e-2, &[0.2, 0.8, 0.4, 0.6]));
    let report = held_out(&runs);
    let score = *only(&report).score().unwrap();
    // The even half prefers 1e-3, at which the odd one has 0.1 and 0.3; the odd one 1e-2: 0.2 and 0.4.
    assert!((score.mean - 0.25).abs() < 1e-12, "{score:?}");
    assert_eq!(score.seeds, 4);
    assert!(score.lr.is_nan());
    shows!("halves-of-seeds", text(&report));
    assert_eq!(json(&report)["panels"][0]["cells"][0]["lr"], serde_json::Value::Null);
}

#[test]
fn where_both_halves_agree_the_rate_is_said_and_the_number_is_that_of_all_seeds() {
    let mut runs = rows(1e-3, &[0.9, 0.8, 0.7]);
    runs.extend(rows(1e-2, &[0.2, 0.1, 0.3]));
    let score = *only(&held_out(&runs)).score().unwrap();
    assert!((score.mean - 0.8).abs() < 1e-12);
    assert_eq!((score.lr, score.seeds), (1e-3, 3));
}

#[test]
fn a_single_seed_has_no_held_out_number_unless_there_was_no_choice() {
    let mut runs = rows(1e-3, &[0.9]);
    assert_eq!(only(&held_out(&runs)).score().unwrap().mean, 0.9);
    runs.extend(rows(1e-2, &[0.2]));
    assert_eq!(only(&held_out(&runs)), GroupStatus::NoNumber);
}

#[test]
fn a_seed_that_diverges_at_the_rate_that_others_chose_is_no_number() {
    let mut runs = rows(1e-3, &[0.5, 0.5, 0.5, 0.5]);
    runs.extend(rows(1e-2, &[0.9, 0.9, 0.9]));
    runs.push(Record::new(&at(1e-2, 3), &diverged()));
    assert_eq!(only(&held_out(&runs)), GroupStatus::Diverged);
}

#[test]
fn texts_choose_their_rate_on_the_validation_split() {
    let run = |lr: f64, train: f64, validation: f64| {
        let mut config = text_config();
        config.train.lr = lr;
        let mut row = Record::new(&config, &read(train));
        row.set(Column::BEST_VAL_PPL, validation);
        row
    };
    let runs = [run(1e-3, 15.0, 20.0), run(3e-3, 14.0, 25.0)];
    let presets: PresetsOf = &|_| vec![("paper", Record::planned(&text_config()))];
    let mut asked = ReportOptions::default();
    let table = figure(FigureSeries::Table, "1");
    let ppl = |asked: &ReportOptions| {
        let drawn = report(table, &runs, None, presets, asked).unwrap();
        fact_at(&drawn.grids[0], 0, "train_ppl").as_f64()
    };
    assert_eq!(ppl(&asked), Some(14.0));
    asked.select = RateChoice::HeldOut;
    assert_eq!(ppl(&asked), Some(15.0));
}

#[test]
fn what_is_mixed_in_one_grid_is_warned_of() {
    let mut runs = rows(1e-3, &[0.9, 0.8]);
    runs[1].set(Column::SIMD, "baseline");
    runs[1].set(Column::VERSION, "0.2.0");
    let none: PresetsOf = &|_| unreachable!("the grid asks no preset");
    let drawn = |rows: &[Record]| {
        text(&report(figure(FigureSeries::Grid, ""), rows, None, none, &ReportOptions::default()).unwrap())
    };
    let mixed = drawn(&runs);
    let alike = drawn(&rows(1e-3, &[0.9, 0.8]));
    // A file that does not say is not another one.
    runs[1].set(Column::SIMD, "");
    runs[1].set(Column::VERSION, "");
    assert_eq!(drawn(&runs), alike);
    shows!("mixed", sections([("mixed", mixed), ("alike", alike)]));
}

#[test]
fn the_grid_says_what_only_tables_show() {
    let mut runs = rows(1e-3, &[0.9]);
    runs.push(Record::new(&text_config(), &read(16.0)));
    let none: PresetsOf = &|_| unreachable!("the grid asks no preset");
    let drawn = report(figure(FigureSeries::Grid, ""), &runs, None, none, &ReportOptions::default()).unwrap();
    shows!("what-only-tables-show", text(&drawn));
}

/// Table 1 with a run of linear and one of softmax attention.
fn table(linear: f64) -> Report {
    let run = |mixer: &str, ppl: f64| {
        let mut config = text_config();
        config.model.mixer = mixer.to_owned();
        Record::new(&config, &read(ppl))
    };
    let runs = [run("linear", linear), run("softmax", 13.2)];
    let presets: PresetsOf = &|_| vec![("paper", Record::planned(&text_config()))];
    report(figure(FigureSeries::Table, "1"), &runs, None, presets, &ReportOptions::default()).unwrap()
}

#[test]
fn printed_numbers_are_held_missed_or_absent() {
    let mut close = table(17.5);
    assert!(close.check(1.0));
    assert_eq!(checked(&close), [2, 0, 1]);
    shows!("check", text(&close));
    let mut far = table(18.0);
    assert!(!far.check(1.0));
    let json = json(&far);
    let missed = json["check"]["missed"].as_array().unwrap();
    assert_eq!(missed.len(), 1);
    assert!(missed[0]["what"].as_str().unwrap().starts_with("linear in wikitext-103-raw"));
    assert!((missed[0]["apart"].as_f64().unwrap() - 100.0 * 0.58 / 17.42).abs() < 1e-9);
    assert!(table(18.0).check(4.0), "a wider tolerance holds it");
}

/// A validation set of a generated task chooses the rate without being asked.
#[test]
fn validation_examples_of_a_generated_task_choose_the_rate() {
    let run = |lr: f64, val: f64, accuracy: f64, examples: usize| {
        let mut config = config();
        config.train.lr = lr;
        if examples > 0 {
            config.task.set("val_examples", examples);
        }
        let mut result = done(accuracy);
        result.metrics.set(Column::VAL_ACCURACY, val);
        Record::new(&config, &result)
    };
    let mean = |examples: usize| {
        let rows = [run(1e-3, 0.5, 0.9, examples), run(1e-2, 0.6, 0.7, examples)];
        let none: PresetsOf = &|_| unreachable!("the grid asks no preset");
        let grid = figure(FigureSeries::Grid, "");
        let report = super::super::report(grid, &rows, None, none, &ReportOptions::default()).unwrap();
        (fact_at(&report.grids[0], 0, "mean"), text(&report))
    };
    let [(with, said), (without, silent)] = [mean(100), mean(0)];
    assert_eq!((with, without), (0.7.into(), 0.9.into()));
    let texts = [("with validation examples", said), ("without", silent)];
    shows!("validation-examples", sections(texts));
}
