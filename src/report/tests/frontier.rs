//! The number of pairs recalled, over the size of the state.

use super::*;
use crate::recipes;
use crate::store::samples::done;

/// Runs of `mixer` with n at 4, 8 and 16 pairs, one for each of the accuracies, which are by seed.
fn runs(mixer: &str, n: &str, state: usize, accuracies: [&[f64]; 3]) -> Vec<Record> {
    let each = ["64:4", "64:8", "64:16"].into_iter().zip(accuracies).flat_map(|(sizes, seeds)| {
        let (length, pairs) = sizes.split_once(':').unwrap();
        seeds.iter().enumerate().map(move |(seed, accuracy)| {
            let seed = seed.to_string();
            let settings = [
                ("protocol", "matched"),
                ("preset", "quick"),
                ("mixer", mixer),
                ("n", n),
                ("seq-len", length),
                ("kv-pairs", pairs),
                ("seed", &seed),
                ("val-examples", "0"),
            ];
            let config = recipes::run("mqar", &settings).unwrap();
            let mut result = done(*accuracy);
            result.metrics = result.metrics.with(Column::STATE_SIZE, state as f64);
            Record::new(&config, &result)
        })
    });
    each.collect()
}

/// Mixers of three families with states of two sizes, and softmax attention with one.
fn some() -> Vec<Record> {
    let (all, half, none): (&[f64], &[f64], &[f64]) = (&[0.99, 0.95], &[0.99, 0.3], &[0.4, 0.3]);
    let each = [
        runs("softmax", "64", 16_384, [all, all, all]),
        runs("linear", "8", 1_030, [none, none, none]),
        runs("linear", "16", 2_054, [all, none, none]),
        runs("ssd", "8", 1_024, [all, half, none]),
        runs("ssd", "16", 2_048, [all, all, half]),
        runs("s6", "8", 1_024, [all, none, none]),
        runs("s6", "16", 2_048, [half, none, none]),
    ];
    each.concat()
}

fn drawn_frontier(rows: &[Record]) -> Report {
    let none: PresetsOf = &|_| unreachable!("no figure asks a preset");
    report(figure(FigureSeries::Figure, "frontier"), rows, None, none, &ReportOptions::default()).unwrap()
}

#[test]
fn families_have_a_line_each_and_their_mixers_a_panel() {
    let report = drawn_frontier(&some());
    shows!("frontier", text(&report));
    shows!("frontier-picture", words(&drawn(&report, "svg")));
    let titles: Vec<&str> = report.grids.iter().map(|grid| &*grid.place[0]).collect();
    assert_eq!(titles, ["families", "attention", "linear-attention", "state-space"]);
    let csv = drawn(&report, "csv");
    assert_eq!(csv.lines().count(), 1 + 7, "one line a mixer and size");
    assert!(csv.lines().next().unwrap().ends_with("family,state_size,k_half,bound"), "{csv}");
    assert!(csv.contains(",state-space,1024.0,8.0,at") && csv.contains(",state-space,2048.0,16.0,at_least"), "{csv}");
}

/// A curve is named at its end, so that the picture needs no legend, and what was not measured is shaded.
#[test]
fn curves_are_named_at_their_ends() {
    let report = drawn_frontier(&some());
    let svg = drawn(&report, "svg");
    for name in ["softmax", "linear", "ssd", "s6", "state-space"] {
        assert!(svg.contains(&format!("\n{name}\n")), "{name}");
    }
    assert_eq!(svg.matches("\nmost pairs tried 16\n").count(), 4);
}

/// A run that is missing leaves the number of pairs out, and a mixer without runs has no line.
#[test]
fn only_the_pairs_that_ran_count() {
    let mut rows = some();
    rows.retain(|run| run.text(Column::MIXER) == "ssd" && run.count(Column::KV_PAIRS) != 16);
    let report = drawn_frontier(&rows);
    let ssd = &report.grids[1].lines[0];
    let labels: Vec<String> = ssd.cells.iter().map(|cell| report.grids[1].label(cell, 1)).collect();
    assert_eq!(labels, ["≥8", "≥8"]);
}
