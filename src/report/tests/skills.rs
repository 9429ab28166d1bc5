//! Scores of MAD.

use super::*;
use crate::recipes;
use crate::store::samples::done;

const NAMES: [&str; 6] = ["recall", "noisy-recall", "fuzzy-recall", "copying", "compression", "memorization"];

/// One run of a mixer in a task, with the settings of `change` in place of those of its preset.
fn run(mixer: &str, skill: &str, change: &[(&str, &str)], accuracy: f64) -> Record {
    let base = [("mixer", mixer), ("skill", skill), ("val-examples", "0")];
    let config = recipes::run("mad", &[&base[..], change].concat()).unwrap();
    let mut result = done(accuracy - 0.05);
    result.metrics = result.metrics.with(Column::MACRO_ACCURACY, accuracy);
    Record::new(&config, &result)
}

fn scored(rows: &[Record], options: &ReportOptions) -> Report {
    let none: PresetsOf = &|_| unreachable!("no figure asks a preset");
    report(figure(FigureSeries::Figure, "mad"), rows, None, none, options).unwrap()
}

/// Softmax in every task, and linear attention in all but one.
fn some() -> Vec<Record> {
    let softmax = NAMES.iter().enumerate().map(|(i, skill)| run("softmax", skill, &[], 0.5 + 0.05 * i as f64));
    let linear = NAMES[..5].iter().map(|skill| run("linear", skill, &[], 0.9));
    softmax.chain(linear).collect()
}

#[test]
fn mixers_are_in_the_order_of_their_scores_and_one_without_a_task_has_none() {
    let mut rows = some();
    rows.extend(NAMES.map(|skill| run("s6", skill, &[], 0.7)));
    let report = scored(&rows, &ReportOptions::default());
    shows!("mad", text(&report));
    let lines: Vec<&str> = report.grids[0].lines.iter().map(GridLine::name).collect();
    assert_eq!(lines, ["s6", "softmax", "linear", "without the skill"]);
    assert_eq!(drawn(&report, "csv").lines().count(), 1 + 3 * 6);
}

#[test]
fn a_score_of_two_seeds_has_their_deviation_and_one_of_a_single_seed_none() {
    let mut rows = some();
    let second = NAMES.iter().enumerate();
    rows.extend(second.map(|(i, skill)| run("softmax", skill, &[("seed", "124")], 0.52 + 0.05 * i as f64)));
    rows.extend(NAMES.map(|skill| run("s6", skill, &[], 0.7)));
    let report = scored(&rows, &ReportOptions::default());
    let scores = report.grids[0].lines.iter().map(|line| (line.name(), report.grids[0].label(&line.cells[0], 2)));
    let scores: Vec<(&str, String)> = scores.collect();
    let expected =
        [("s6", "70.0"), ("softmax", "63.5±1.4"), ("linear", "-")].map(|(name, said)| (name, said.to_owned()));
    assert_eq!(scores[..3], expected);
    let said = text(&report);
    assert!(said.contains("mean ± std over up to 2 seeds, in some cells over as many as are in parentheses"), "{said}");
}

#[test]
fn lines_with_the_same_numbers_are_named_and_others_are_not() {
    let mut rows = some();
    assert!(!text(&scored(&rows, &ReportOptions::default())).contains("same means"));
    rows.extend(NAMES.iter().enumerate().map(|(i, skill)| run("alibi", skill, &[], 0.5 + 0.05 * i as f64)));
    let report = scored(&rows, &ReportOptions::default());
    assert!(text(&report).contains("the same means to the last digit: alibi and softmax"), "{}", text(&report));
}

#[test]
fn a_caption_in_latex_explains_the_table_and_comments_the_runs() {
    let mut rows = some();
    rows[0].set(Column::VERSION, "0.1.9");
    let report = scored(&rows, &ReportOptions::default());
    let latex = drawn(&report, "latex");
    let caption = latex.lines().find(|line| line.contains("\\caption")).unwrap();
    assert!(caption.contains("mean over its settings") && !caption.contains(". ."), "{caption}");
    for about_runs in ["11 runs done", "warning: runs of several versions", "trained for"] {
        assert!(!caption.contains(about_runs), "{caption}");
        assert!(latex.lines().any(|line| line.starts_with(&format!("% {about_runs}"))), "{latex}");
    }
}

/// A task counts with the mean over its settings, a setting with its best rate and weight decay.
#[test]
fn a_setting_counts_with_its_best_run_and_a_task_with_all_settings() {
    let mut rows = some();
    rows.extend([
        run("softmax", "recall", &[("lr", "1e-3")], 0.8),
        run("softmax", "recall", &[("weight-decay", "0.1")], 0.9),
        run("softmax", "recall", &[("vocab-size", "32")], 0.3),
    ]);
    let report = scored(&rows, &ReportOptions::default());
    let softmax = report.grids[0].lines.iter().find(|line| line.name() == "softmax").unwrap();
    let number = |cell: &Cell| cell.number(Style::Percent).unwrap().0;
    assert!((number(&softmax.cells[1]) - 0.6).abs() < 1e-12, "{:?}", softmax.cells[1]);
    let expected = (0.6 + 0.55 + 0.6 + 0.65 + 0.7 + 0.75) / 6.0;
    assert!((number(&softmax.cells[0]) - expected).abs() < 1e-12);
}

#[test]
fn the_share_of_all_answers_can_be_reported_instead() {
    let report = scored(&some(), &by("accuracy"));
    let softmax = &report.grids[0].lines[0];
    assert!((softmax.cells[1].number(Style::Percent).unwrap().0 - 0.45).abs() < 1e-12);
    let svg = drawn(&report, "svg");
    assert!(NAMES.iter().all(|name| svg.contains(name)) && svg.contains("softmax"));
}
