//! Tables 2 and 3.

use super::*;
use crate::error::testing::Fails;
use crate::recipes::{self, presets_of};
use crate::store::samples::done;
use crate::store::Column;
use crate::tasks::lra::LraDataset;
use LraDataset::{Image, Listops, Pathfinder, Retrieval, Text};

/// Settings as typed.
type Settings = &'static [(&'static str, &'static str)];

/// After the last epoch, chosen on validation data, best.
fn result(config: &RunConfig, [last, selected, best]: [f64; 3]) -> RunResult {
    let selects = Record::planned(config).count(Column::VAL_EXAMPLES) > 0;
    let mut result = done(last);
    let selected = Some(selected).filter(|_| selects);
    result.metrics = result
        .metrics
        .with(Column::BEST_ACCURACY, best)
        .with(Column::SELECTED_ACCURACY, selected)
        .with(Column::VAL_ACCURACY, selected)
        .with(Column::MAJORITY, 0.175);
    result
}

/// A run of the arena with `settings`.
fn run(mixer: &str, dataset: LraDataset, settings: &[(&str, &str)]) -> RunConfig {
    let base = [("mixer", mixer), ("dataset", dataset.name())];
    let mut config = recipes::run("lra", &[&base, settings].concat()).unwrap();
    if config.task.get("data").is_some_and(|data| data == "files") {
        config.task.set("source_digest", "5c7e0d1f2a3b");
    }
    config
}

fn row(config: &RunConfig, accuracies: [f64; 3]) -> Record {
    Record::new(config, &result(config, accuracies))
}

/// A run that reached 0.5, 0.6 and 0.7.
fn usual(mixer: &str, dataset: LraDataset) -> Record {
    row(&run(mixer, dataset, &[]), [0.5, 0.6, 0.7])
}

fn changed(dataset: LraDataset, settings: &[(&str, &str)]) -> Record {
    row(&run("softmax", dataset, settings), [0.5, 0.6, 0.7])
}

fn table(number: &str, rows: &[Record], planned: Option<&[RunConfig]>, asked: &ReportOptions) -> Result<Report> {
    let figure = figure(FigureSeries::Table, number);
    report(figure, rows, planned, &presets_of, asked)
}

fn report_with(rows: &[Record], asked: &ReportOptions) -> Report {
    table("3", rows, None, asked).unwrap()
}

fn third(rows: &[Record]) -> Report {
    report_with(rows, &ReportOptions::default())
}

fn is_whole(grid: &Grid) -> bool {
    of_grid(grid, "whole") == true
}

#[test]
fn runs_of_several_protocols_losses_inputs_or_pools_are_never_in_one_table() {
    let changes: [Settings; 9] = [
        &[("protocol", "paper")],
        &[("protocol", "matched")],
        &[("loss", "ce")],
        &[("input", "scalar")],
        &[("mask", "true")],
        &[("lambda-skip", "true")],
        &[("pool", "max")],
        &[("dual", "features")],
        &[("precision", "bf16")],
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let rows = [usual("softmax", Retrieval), changed(Retrieval, change)];
        let tables = third(&rows).grids;
        assert_eq!(tables.len(), 2, "change {i}");
        assert_ne!(tables[0].title, tables[1].title, "change {i}");
    }
}

#[test]
fn a_table_of_the_released_classifiers_says_what_their_skips_are() {
    let cases: [(&str, Settings); 3] = [
        ("as released", &[]),
        ("--lambda-skip true", &[("lambda-skip", "true")]),
        ("--protocol matched", &[("protocol", "matched")]),
    ];
    let notes = cases.map(|(name, settings)| {
        let notes = third(&[changed(Listops, settings)]).grids.remove(0).notes;
        (name, notes.join("\n"))
    });
    shows!("notes-of-skips", sections(notes));
}

#[test]
fn mixers_that_read_differently_by_design_share_a_table() {
    let rows = ["softmax", "s6", "mamba"].map(|mixer| usual(mixer, Listops));
    assert_eq!((rows[0].text(Column::INPUT), rows[1].text(Column::INPUT)), ("embedding", "scalar"));
    assert_eq!(third(&rows).grids.len(), 1);
}

#[test]
fn any_other_setting_has_a_place_of_its_own_and_a_footnote() {
    let changes: [Settings; 8] = [
        &[("d", "64")],
        &[("layers", "2")],
        &[("heads", "2")],
        &[("epochs", "3")],
        &[("batch-size", "4")],
        &[("weight-decay", "0.0")],
        &[("data-seed", "7")],
        &[("val-examples", "0")],
    ];
    let footnotes = changes.map(|change| {
        let tables = third(&[usual("softmax", Listops), changed(Listops, change)]);
        let lines = tables.grids[0].lines.iter();
        let softmax = lines.filter(|line| line.name() == "softmax");
        assert_eq!(softmax.count(), 2, "{change:?}");
        let text = text(&tables);
        let notes = text.lines().filter(|line| line.starts_with("  †"));
        (change[0].0, notes.collect::<Vec<_>>().join("\n"))
    });
    shows!("footnotes-of-settings", sections(footnotes));
}

#[test]
fn a_run_on_part_of_the_data_never_stands_beside_the_papers_numbers() {
    let parts: [Settings; 5] = [
        &[("train-examples", "1000")],
        &[("test-examples", "1000")],
        &[("seq-len", "600"), ("data", "files")],
        &[("preset", "quick")],
        &[("preset", "smoke")],
    ];
    for part in parts {
        let tables = third(&[changed(Listops, part)]);
        let grid = &tables.grids[0];
        assert!(!is_whole(grid), "{part:?}");
        let mut cells = grid.lines.iter().flat_map(|line| &line.cells);
        let printed = cells.any(|cell| matches!(cell.content, Content::Printed(_)));
        assert!(!printed, "{part:?}");
        assert!(fact_at(grid, 0, "paper").is_null(), "{part:?}");
    }
    shows!("part-of-the-data", text(&third(&[changed(Listops, parts[0])])));
}

#[test]
fn an_easier_pathfinder_never_stands_beside_the_papers_numbers() {
    let of = |settings: &[_]| is_whole(&third(&[changed(Pathfinder, settings)]).grids[0]);
    assert!(of(&[]) && of(&[("contour-length", "14")]));
    assert!(!of(&[("contour-length", "9")]));
}

#[test]
fn runs_on_all_and_on_part_of_the_data_are_in_two_tables() {
    let part = changed(Listops, &[("train-examples", "95999")]);
    let tables = third(&[part, usual("softmax", Listops)]).grids;
    assert_eq!([&tables[0], &tables[1]].map(is_whole), [true, false]);
}

#[test]
fn a_tenth_of_text_may_serve_as_validation_split_under_matched_alone() {
    let held_out = |protocol, train, val| {
        let sizes = [("train-examples", train), ("val-examples", val)];
        let row = changed(Text, &[&[("protocol", protocol)], &sizes[..]].concat());
        is_whole(&third(&[row]).grids[0])
    };
    for protocol in ["reference", "paper"] {
        assert!(held_out(protocol, "25000", "0"), "{protocol}");
        assert!(!held_out(protocol, "22500", "2500"), "{protocol}");
    }
    assert!(held_out("matched", "22500", "2500") && held_out("matched", "25000", "0"));
    assert!(!held_out("matched", "22500", "0") && !held_out("matched", "12500", "12500"));
    for protocol in ["reference", "paper", "matched"] {
        let own = changed(Text, &[("protocol", protocol)]);
        assert!(is_whole(&third(&[own]).grids[0]), "{protocol}");
    }
}

#[test]
fn the_rate_is_chosen_on_validation_data_and_not_on_the_test_split() {
    let at = |lr, validation: f64, test: f64| {
        let mut row = changed(Image, &[("lr", lr)]);
        row.set(Column::VAL_ACCURACY, validation);
        row.set(Column::SELECTED_ACCURACY, test);
        row
    };
    let tables = third(&[at("1e-3", 0.4, 0.35), at("1e-2", 0.3, 0.45)]);
    let row = csv_rows(&tables).into_iter();
    let mut row = row.filter(|row| (&*row["mixer"], &*row["task"]) == ("softmax", "image"));
    let row = row.next().unwrap();
    assert_eq!(["selected_accuracy", "lr", "lr_tried"].map(|name| &*row[name]), ["0.35", "0.001", "2"]);
    shows!("rate-of-validation", text(&tables));
}

#[test]
fn without_validation_split_the_best_test_accuracy_is_shown_and_said() {
    let rows = [usual("softmax", Text)];
    let of = |metric| (metric, text(&report_with(&rows, &by(metric))));
    let usual = [("no metric asked for", text(&third(&rows)))];
    let by = ["selected_accuracy", "accuracy", "best_accuracy"].map(of);
    shows!("no-validation-split", sections(usual.into_iter().chain(by)));
}

#[test]
fn released_and_generated_examples_share_no_place_and_the_latter_are_marked() {
    let released = changed(Listops, &[("data", "files")]);
    let generated = usual("softmax", Listops);
    let both = [generated.clone(), released.clone()];
    let texts = [
        ("generated", text(&third(&[generated]))),
        ("both", text(&third(&both))),
        ("released", text(&third(&[released]))),
    ];
    shows!("released-and-generated", sections(texts));
}

#[test]
fn a_check_counts_no_number_of_generated_examples() {
    let held = |data| {
        let rows = LraDataset::ALL.map(|dataset| match dataset {
            Listops | Pathfinder => changed(dataset, &[("data", data)]),
            dataset => usual("softmax", dataset),
        });
        let mut report = third(&rows);
        report.check(100.0);
        checked(&report)
    };
    // Five tasks and their average, of five lines.
    assert_eq!(held("files"), [6, 0, 24]);
    assert_eq!(held("native"), [3, 0, 27]);
}

#[test]
fn an_average_needs_all_five_tasks_in_one_setting() {
    let average = |rows: &[Record]| {
        let grid = third(rows).grids.remove(0);
        let line = grid.lines.iter().find(|line| line.name() == "softmax");
        match line.unwrap().cells[5].content {
            Content::Value(average) => Some(average),
            _ => None,
        }
    };
    let rows = LraDataset::ALL.map(|dataset| usual("softmax", dataset));
    // Four of 0.6, and 0.7 on Text.
    assert!((average(&rows).unwrap() - 0.62).abs() < 1e-12);
    assert_eq!(average(&rows[1..]), None);
    let own = || changed(Listops, &[("d", "64")]);
    let other = changed(Image, &[("layers", "1")]);
    let mixed = [&rows[1..3], &rows[4..], &[own(), other]].concat();
    assert_eq!(average(&mixed), None, "two settings of their own");
    shows!("average-with-marks", text(&third(&[&rows[1..], &[own()]].concat())));
    let some = filtered(Filter { datasets: vec!["listops".into(), "image".into()], ..Filter::default() });
    let some = report_with(&rows, &some);
    assert_eq!(column_titles(&some.grids[0]), ["ListOps", "Image"]);
}

#[test]
fn a_mixer_beyond_the_paper_has_a_line_without_its_numbers() {
    let tables = third(&[usual("rg-lru", Image), usual("ssd", Image)]);
    let grid = &tables.grids[0];
    let mixers: Vec<_> = (0..7).map(|i| fact_at(grid, 6 * i, "mixer")).collect();
    assert_eq!(mixers, ["softmax", "linear", "normalized", "s6", "mamba", "rg-lru", "ssd"]);
    let paper = |line: usize| (0..6).map(move |task| fact_at(grid, 6 * line + task, "paper"));
    assert!(paper(5).all(|number| number.is_null()));
    assert!(paper(3).all(|number| number.is_number()));
    assert!(paper(3).eq(paper(4)), "the paper's S6 stands beside both");
}

#[test]
fn a_mixer_that_this_version_does_not_know_has_all_its_settings_said() {
    let mut row = usual("softmax", Image);
    row.set(Column::MIXER, "telepathy");
    shows!("unknown-mixer", text(&third(&[row])));
}

#[test]
fn without_results_one_sentence_says_how_to_get_some() {
    let none = ReportOptions::default();
    let third = table("3", &[], None, &none).fails("refused");
    third.names(&["`dsf sweep experiments/table3.toml`"]);
    let image = [usual("softmax", Image)];
    let second = table("2", &image, None, &none).fails("refused");
    second.names(&["`dsf sweep experiments/table2.toml`"]);
    let matched = filtered(Filter { protocols: vec![Protocol::Matched], ..Filter::default() });
    let filtered = table("3", &image, None, &matched).fails("refused");
    filtered.names(&["image", "--task lra", "--mixer softmax", "--protocol reference"]);
}

#[test]
fn perplexities_are_refused_with_what_to_take() {
    let refused = table("3", &[], None, &by("val_ppl")).refuses("--metric");
    refused.gives("val_ppl").names(&["--table 1"]);
}

#[test]
fn a_plan_shows_what_is_missing_and_leaves_out_the_rest() {
    let planned = ["softmax", "linear"].map(|mixer| run(mixer, Image, &[]));
    let rows = [usual("softmax", Image), usual("s6", Image)];
    let of = |rows: &[Record]| text(&table("3", rows, Some(&planned), &ReportOptions::default()).unwrap());
    let texts = [("some", of(&rows)), ("none", of(&[]))];
    shows!("plan", sections(texts));
}

fn whole() -> Vec<Record> {
    let mut rows = LraDataset::ALL.map(|dataset| usual("softmax", dataset)).to_vec();
    for (seed, accuracy) in [("1", 0.62), ("2", 0.64)] {
        let config = run("mamba", Image, &[("seed", seed)]);
        rows.push(row(&config, [accuracy; 3]));
    }
    rows
}

#[test]
fn the_third_table_reads_like_this() {
    let text = text(&third(&whole()));
    assert!(text.lines().all(|line| line.chars().count() <= 100));
    shows!("third-table", text);
}

#[test]
fn markdown_has_all_three_numbers_in_a_place_and_one_by_a_metric() {
    let rows = [usual("softmax", Listops), usual("softmax", Text)];
    let side_by_side = ReportOptions { side_by_side: true, ..ReportOptions::default() };
    let all = drawn(&report_with(&rows, &side_by_side), "markdown");
    let best = ReportOptions { side_by_side: true, ..by("best_accuracy") };
    let best = drawn(&report_with(&rows, &best), "markdown");
    shows!("markdown", sections([("side by side", all), ("by the best accuracy", best)]));
}

#[test]
fn markdown_explains_the_mark_of_an_average() {
    let rows = LraDataset::ALL.map(|dataset| usual("softmax", dataset));
    let side_by_side = ReportOptions { side_by_side: true, ..ReportOptions::default() };
    shows!("markdown-average", drawn(&report_with(&rows, &side_by_side), "markdown"));
}

#[test]
fn rates_that_have_not_been_run_were_not_tried() {
    let rates = ["1e-4", "1e-3"].map(|lr| run("softmax", Listops, &[("lr", lr)]));
    let rows = [row(&rates[0], [0.5, 0.6, 0.7])];
    let report = table("3", &rows, Some(&rates), &ReportOptions::default()).unwrap();
    assert_eq!(json(&report)["tables"][0]["cells"][0]["lr_tried"], 1);
}

#[test]
fn a_run_that_finished_without_the_metric_has_not_failed() {
    let mut rows = [usual("softmax", Listops)];
    rows[0].set(Column::SELECTED_ACCURACY, Field::Absent);
    shows!("no-number", text(&third(&rows)));
}

#[test]
fn csv_has_a_line_a_task_and_one_for_the_average() {
    let csv = drawn(&third(&whole()), "csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 5 * 6, "{csv}");
    let listops = "3,whole,reference,paper,double-softmax,,softmax,listops,,true,done,0.5,,0.6,,0.7,,1,\
                   0.0005,1,val_accuracy,0.175,0.175,0.3572";
    assert_eq!(lines[1], listops);
    let text = "3,whole,reference,paper,double-softmax,,softmax,text,,false,done,0.5,,,,0.7,,1,\
                0.0002,1,best_accuracy,0.175,0.175,0.631";
    assert_eq!(lines[2], text);
    let rows = csv_rows(&third(&whole()));
    let names = ["mixer", "task", "generated", "status", "accuracy", "best_accuracy"];
    for (row, wanted) in
        [(5, ["softmax", "average", "true", "done", "0.5", "0.7"]), (6, ["linear", "listops", "", "not_run", "", ""])]
    {
        assert_eq!(names.map(|name| &*rows[row][name]), wanted);
    }
}

#[test]
fn json_is_one_versioned_object() {
    let whole = json(&third(&whole()));
    assert_eq!((&whole["schema"], &whole["table"]), (&1.into(), &3.into()));
    assert_eq!(whole["tables"][0]["whole"], true);
    let cell = &whole["tables"][0]["cells"][0];
    assert_eq!((&cell["mixer"], &cell["task"]), (&"softmax".into(), &"listops".into()));
    assert_eq!((&cell["selected_accuracy"], &cell["paper"]), (&0.6.into(), &0.3572.into()));
    assert_eq!(whole["coverage"]["done"], 7);
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    let tables = third(&whole());
    let coloured = coloured(&tables);
    assert!(coloured.contains("\u{1b}["));
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), text(&tables));
}

#[test]
fn the_second_table_has_image_and_recall_and_says_at_which_d_and_n() {
    let recall = |mixer: &str, seq_len, kv_pairs| {
        let settings = [
            ("preset", "paper"),
            ("mixer", mixer),
            ("d", "512"),
            ("n", "256"),
            ("seq-len", seq_len),
            ("kv-pairs", kv_pairs),
        ];
        Record::new(&recipes::run("mqar", &settings).unwrap(), &done(0.855))
    };
    let rows = [
        recall("normalized", "512", "64"),
        recall("normalized", "256", "16"),
        recall("softmax", "512", "64"),
        usual("normalized", Image),
        usual("normalized", Listops),
    ];
    let second = table("2", &rows, None, &ReportOptions::default()).unwrap();
    assert_eq!(second.coverage.done, 2);
    shows!("second-table", text(&second));
}
