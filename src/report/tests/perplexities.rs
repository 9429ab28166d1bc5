//! Table 1.

use super::*;
use crate::config::{Precision, Rotary, Schedule};
use crate::error::testing::Fails;
use crate::store::samples::{diverged, failed, read, text_config};
use crate::store::Column;

fn config(mixer: &str) -> RunConfig {
    let mut config = text_config();
    config.model.mixer = mixer.into();
    config
}

/// The run of `dsf wikitext` on the sample.
fn small(mixer: &str) -> RunConfig {
    let mut config = config(mixer);
    (config.model.d_model, config.model.d_state) = (128, 128);
    config.train.epochs = 2;
    config.task.set("corpus", "sample");
    config.task.remove("source_digest");
    config.task.set("tokenizer", "bytes");
    config.task.set("vocab_size", 256);
    config.task.set("seq_len", 256);
    config
}

/// Presets with the corpus and the precision of the row.
fn presets(row: &Record) -> Vec<(&'static str, Record)> {
    let named = [("paper", config(row.text(Column::MIXER))), ("quick", small(row.text(Column::MIXER)))];
    let planned = |(name, config): (&'static str, RunConfig)| {
        let mut usual = Record::planned(&config);
        for kept in [Column::DATASET, Column::PRECISION] {
            usual.set(kept, row.text(kept));
        }
        (name, usual)
    };
    named.map(planned).into()
}

/// A change that makes a run another one.
type Change = fn(&mut RunConfig);

fn changed(mixer: &str, ppl: f64, change: impl Fn(&mut RunConfig)) -> Record {
    let mut config = config(mixer);
    change(&mut config);
    Record::new(&config, &read(ppl))
}

/// A run of the preset `full`.
fn row(mixer: &str, ppl: f64) -> Record {
    changed(mixer, ppl, |_| {})
}

fn at(mixer: &str, lr: f64, result: &RunResult) -> Record {
    let mut config = config(mixer);
    config.train.lr = lr;
    Record::new(&config, result)
}

/// Runs that close half of the gap.
fn three() -> Vec<Record> {
    [("softmax", 13.0), ("linear", 17.0), ("normalized", 15.0)].map(|(mixer, ppl)| row(mixer, ppl)).into()
}

fn table(rows: &[Record], planned: Option<&[RunConfig]>, asked: &ReportOptions) -> Result<Report> {
    report(figure(FigureSeries::Table, "1"), rows, planned, &presets, asked)
}

fn report_with(rows: &[Record], asked: &ReportOptions) -> Report {
    table(rows, None, asked).unwrap()
}

fn first(rows: &[Record]) -> Report {
    report_with(rows, &ReportOptions::default())
}

fn text_of(rows: &[Record]) -> String {
    text(&first(rows))
}

fn is_beside(grid: &Grid) -> bool {
    of_grid(grid, "beside_paper") == true
}

/// The share of the gap that is closed, by `metric`.
fn gap(report: &Report, metric: &str) -> Option<f64> {
    of_grid(&report.grids[0], "gap_closed")[metric].as_f64()
}

#[test]
fn a_line_takes_the_rate_of_the_lowest_training_perplexity_and_shows_all_numbers_at_it() {
    let mut overfit = at("softmax", 3e-3, &read(12.0));
    overfit.set(Column::VAL_PPL, 90.0);
    overfit.set(Column::TEST_PPL, 91.0);
    let rows = [at("softmax", 1e-3, &read(13.0)), overfit];
    let softmax = |report: Report, name| fact_at(&report.grids[0], 2, name);
    assert_eq!(softmax(first(&rows), "train_ppl"), 12.0);
    assert_eq!(softmax(first(&rows), "val_ppl"), 90.0);
    assert_eq!(softmax(first(&rows), "lr"), 3e-3);
    let chosen = |name| softmax(report_with(&rows, &by("val_ppl")), name);
    assert_eq!(chosen("val_ppl"), 26.0);
    assert_eq!(chosen("lr"), 1e-3);
}

#[test]
fn a_choice_by_the_test_split_is_said() {
    let metrics = ["test_ppl", "test_word_ppl", "val_ppl"];
    let texts = metrics.map(|metric| (metric, text(&report_with(&three(), &by(metric)))));
    shows!("choice-by-a-split", sections(texts));
}

#[test]
fn a_rate_at_an_end_of_those_tried_is_a_hint() {
    let rows = [1e-3, 3e-3].map(|lr| at("linear", lr, &read(1.0 / lr)));
    shows!("rate-at-an-end", text_of(&rows));
}

#[test]
fn seeds_are_a_mean_and_a_deviation() {
    let rows = [(1, 13.0), (2, 14.0)].map(|(seed, ppl)| changed("softmax", ppl, |c| c.seed = seed));
    shows!("seeds", text_of(&rows));
}

#[test]
fn the_papers_numbers_stand_only_beside_its_text_its_tokens_and_its_sizes() {
    let beside = |change: Change| is_beside(&first(&[changed("linear", 17.0, change)]).grids[0]);
    let same: [Change; 8] = [
        |_| {},
        |c| c.task.set("corpus", "wikitext-103"),
        |c| c.task.set("test_examples", 4),
        |c| c.task.set("eos_between_articles", true),
        |c| c.train.precision = Precision::Bf16,
        |c| c.train.schedule = Schedule::Linear,
        |c| c.train.lr = 0.1,
        |c| c.train.micro_batch = Some(2),
    ];
    for (i, change) in same.into_iter().enumerate() {
        assert!(beside(change), "change {i}");
    }
    let other: [Change; 9] = [
        |c| c.task.set("corpus", "wikitext-2-raw"),
        |c| c.task.set("tokenizer", "bytes"),
        |c| c.task.set("seq_len", 512),
        |c| c.task.set("vocab_size", 50_277),
        |c| c.task.set("train_examples", 100),
        |c| c.train.epochs = 2,
        |c| c.train.batch_size = 64,
        |c| c.model.n_layers = 5,
        |c| c.model.language.as_mut().unwrap().mlp_width = 1024,
    ];
    for (i, change) in other.into_iter().enumerate() {
        assert!(!beside(change), "change {i}");
    }
}

#[test]
fn runs_as_the_presets_make_them_differ_in_nothing() {
    use crate::recipes::{self, presets_of};
    let of = |preset, mixer: &str| {
        let settings = [("preset", preset), ("mixer", mixer)];
        let mut config = recipes::run("wikitext", &settings).unwrap();
        if config.task.get("corpus").is_some_and(|corpus| corpus != "sample") {
            config.task.set("source_digest", "5c7e0d1f2a3b");
        }
        Record::new(&config, &read(17.0))
    };
    for preset in ["paper", "quick", "smoke"] {
        let rows = ["softmax", "linear", "normalized", "s6", "ssd"].map(|mixer| of(preset, mixer));
        let figure = figure(FigureSeries::Table, "1");
        let report = report(figure, &rows, None, &presets_of, &ReportOptions::default()).unwrap();
        assert_eq!(report.grids.len(), 1);
        let grid = &report.grids[0];
        assert_eq!(is_beside(grid), preset == "paper");
        assert_eq!(grid.records.len(), 5);
        for line in 0..5 {
            assert_eq!(fact_at(grid, line, "settings"), "", "{}", grid.title);
            assert_eq!(fact_at(grid, line, "differences"), "");
        }
    }
}

#[test]
fn without_the_papers_numbers_a_line_says_why() {
    let short = changed("linear", 40.0, |c| c.train.epochs = 2);
    let report = first(&[short, Record::new(&small("linear"), &read(8.0))]);
    assert!(!report.grids.iter().any(is_beside));
    shows!("others-than-the-papers-runs", text(&report));
}

#[test]
fn texts_and_settings_make_tables_of_their_own_and_those_beside_the_paper_come_first() {
    let changes: [Change; 6] = [
        |c| c.task.set("corpus", "wikitext-2"),
        |c| c.task.set("tokenizer", "0123456789ab"),
        |c| c.task.set("eos_between_articles", true),
        |c| c.train.weight_decay = 0.0,
        |c| c.train.adam.as_mut().unwrap().clip = None,
        |c| c.train.precision = Precision::Bf16,
    ];
    let mut rows: Vec<Record> = changes.map(|change| changed("linear", 17.0, change)).into();
    rows.extend(three());
    let report = first(&rows);
    assert_eq!(
        titles(&report),
        [
            "wikitext-103-raw, tokenizer gpt-neox, preset paper, bf16",
            "wikitext-103-raw, tokenizer gpt-neox, preset paper, f32",
            "wikitext-103-raw, tokenizer gpt-neox, preset paper, f32, clip=0.0",
            "wikitext-103-raw, tokenizer gpt-neox, preset paper, f32, eos_between_articles=true",
            "wikitext-103-raw, tokenizer gpt-neox, preset paper, f32, weight_decay=0.0",
            "wikitext-103-raw, tokenizer 0123456789ab, preset paper, f32",
            "wikitext-2, tokenizer gpt-neox, preset paper, f32",
        ]
    );
    let beside: Vec<bool> = report.grids.iter().map(is_beside).collect();
    assert_eq!(beside, [true, true, true, true, true, false, false]);
}

#[test]
fn what_belongs_to_a_mixer_alone_makes_a_line() {
    let after = changed("linear", 18.0, |c| {
        c.model.language.as_mut().unwrap().rotary = Rotary::Post;
    });
    let mut rows = three();
    rows.extend([after, changed("linear", 19.0, |c| c.model.n_heads = 4)]);
    let report = first(&rows);
    let lines = &report.grids[0].lines[..5];
    let lines: Vec<(&str, &Content)> = lines.iter().map(|line| (line.name(), &line.cells[0].content)).collect();
    let paper = Content::Printed;
    assert_eq!(
        lines,
        [
            ("linear", &paper(17.42)),
            ("linear, heads=4", &Content::Text("-".to_owned())),
            ("linear, rotary=post", &paper(17.42)),
            ("normalized", &paper(16.43)),
            ("softmax", &paper(13.15)),
        ]
    );
    assert_eq!(gap(&report, "train_ppl"), Some(0.5), "of like lines");
}

#[test]
fn a_mixer_beyond_the_paper_has_a_line_without_its_number() {
    let mut rows = three();
    rows.push(row("s6", 14.0));
    let texts = [("beside the paper's", text_of(&rows)), ("alone", text_of(&[Record::new(&small("s6"), &read(8.0))]))];
    shows!("mixer-beyond-the-paper", sections(texts));
}

#[test]
fn a_mixer_that_this_version_does_not_know_has_all_its_settings_said() {
    let none = |_: &Record| Vec::new();
    let figure = figure(FigureSeries::Table, "1");
    let rows = [row("telepathy", 9.0)];
    let report = report(figure, &rows, None, &none, &ReportOptions::default());
    shows!("unknown-mixer", text(&report.unwrap()));
}

#[test]
fn without_results_one_sentence_says_how_to_get_some() {
    let none = table(&[], None, &ReportOptions::default()).fails("refused");
    none.names(&["`dsf sweep experiments/table1.toml`"]);
    let recall = crate::store::samples::record(0.5);
    let other = table(&[recall], None, &ReportOptions::default());
    assert_eq!(other.fails("refused"), none);
    let s6 = Filter { mixers: vec!["s6".into()], ..Filter::default() };
    let filtered = table(&three(), None, &filtered(s6)).fails("refused");
    filtered.names(&["wikitext-103-raw", "--task wikitext", "--mixer linear,normalized,softmax"]);
    let other_plan = table(&[], Some(&[]), &ReportOptions::default());
    other_plan.fails("refused").names(&["wikitext"]);
}

#[test]
fn accuracies_are_refused_with_what_to_take() {
    let refused = table(&three(), None, &by("best_accuracy")).refuses("--metric");
    refused.gives("best_accuracy").names(&["train_ppl"]);
}
fn whole() -> Vec<Record> {
    let mut rows = three();
    rows.push(at("linear", 3e-3, &read(17.5)));
    rows.push(row("s6", 700.0));
    rows
}

#[test]
fn the_first_table_reads_like_this() {
    let text = text_of(&whole());
    assert!(text.lines().all(|line| line.chars().count() <= 100));
    shows!("first-table", text);
}

#[test]
fn markdown_has_the_same_numbers() {
    shows!("markdown", drawn(&first(&whole()), "markdown"));
}

#[test]
fn csv_has_a_line_a_mixer_with_every_number_unrounded() {
    let csv = drawn(&first(&whole()), "csv");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    let lines: Vec<csv::StringRecord> = reader.records().map(|line| line.unwrap()).collect();
    assert_eq!(lines.len(), 4);
    let value = |line: usize, name: &str| {
        let column = header.iter().position(|column| column == name).unwrap();
        lines[line][column].to_owned()
    };
    assert_eq!(value(0, "mixer"), "linear");
    assert_eq!((value(0, "lr_tried"), value(0, "lr")), ("2".into(), "0.001".into()));
    assert_eq!(value(0, "paper"), "17.42");
    assert_eq!(value(0, "val_word_ppl"), "68.0");
    assert_eq!(value(0, "gap_closed_train_ppl"), "");
    assert_eq!((value(1, "mixer"), value(1, "gap_closed_train_ppl")), ("normalized".into(), "0.5".into()));
    assert_eq!(value(1, "gap_closed_val_ppl"), "0.5");
    assert_eq!((value(3, "mixer"), value(3, "paper")), ("s6".into(), String::new()));
    assert_eq!(value(2, "test_bits_per_byte"), "1.25");
    assert_eq!(value(2, "status"), "done");
}

#[test]
fn json_is_one_versioned_object() {
    let whole = json(&first(&whole()));
    assert_eq!((&whole["schema"], &whole["table"]), (&1.into(), &1.into()));
    assert_eq!(whole["metric"], "train_ppl");
    let table = &whole["tables"][0];
    assert_eq!(table["beside_paper"], true);
    assert_eq!(table["gap_closed"]["train_ppl"], 0.5);
    let paper = table["gap_closed"]["paper"].as_f64().unwrap();
    assert!((paper - 0.231_850_117_096).abs() < 1e-9, "{paper}");
    let cell = &table["cells"][2];
    assert_eq!((&cell["mixer"], &cell["train_ppl"]), (&"softmax".into(), &13.0.into()));
    assert_eq!((&cell["paper"], &cell["seeds"]), (&13.15.into(), &1.into()));
    assert_eq!(whole["coverage"]["done"], 5);
}

#[test]
fn large_perplexities_have_fewer_decimals() {
    let shown = |ppl: f64| {
        let mut row = row("linear", 17.0);
        row.set(Column::TRAIN_PPL, ppl);
        text_of(&[row])
    };
    let texts = [99.994, 123.456, 50_304.4, 1.5e9].map(|ppl| (ppl.to_string(), shown(ppl)));
    shows!("large-perplexities", sections(texts));
}

#[test]
fn failed_and_diverged_runs_have_marks_for_numbers() {
    let mut rows = three();
    rows[0] = at("softmax", 1e-2, &diverged());
    rows[2] = at("normalized", 1e-2, &failed("out of memory"));
    shows!("failed-and-diverged", text_of(&rows));
}

#[test]
fn the_gap_is_of_like_lines() {
    let heads = |mixer, ppl| changed(mixer, ppl, |c| c.model.n_heads = 4);
    let mut rows = vec![heads("linear", 20.0), heads("softmax", 16.0)];
    rows.push(row("normalized", 18.0));
    assert_eq!(gap(&first(&rows), "train_ppl"), None);
    shows!("unlike-lines", text_of(&rows));
    rows.push(heads("normalized", 19.0));
    assert_eq!(gap(&first(&rows), "train_ppl"), Some(0.25));
}

#[test]
fn a_missing_attention_has_a_line_beside_the_paper_and_no_share() {
    shows!("missing-attention", text_of(&three()[..2]));
    let short = |mixer| changed(mixer, 40.0, |c| c.train.epochs = 2);
    let part = first(&[short("linear"), short("softmax")]).grids.remove(0);
    assert_eq!(part.records.len(), 2, "without the paper a mixer without runs is of no interest");
}

#[test]
fn where_linear_is_no_worse_than_softmax_there_is_no_gap_to_close() {
    let mut rows = three();
    rows[0].set(Column::VAL_PPL, 50.0);
    let report = first(&rows);
    shows!("no-gap-to-close", text(&report));
    assert_eq!(gap(&report, "val_ppl"), None);
    assert_eq!(gap(&report, "train_ppl"), Some(0.5));
}

#[test]
fn a_number_that_runs_lack_is_neither_a_failure_nor_missing_runs() {
    let mut rows = three();
    for row in &mut rows {
        row.set(Column::TEST_WORD_PPL, None::<f64>);
    }
    let texts = [
        ("by the usual number", text_of(&rows)),
        ("by the missing one", text(&report_with(&rows, &by("test_word_ppl")))),
    ];
    shows!("number-that-runs-lack", sections(texts));
}

#[test]
fn only_the_mixers_asked_for_are_shown() {
    let linear = Filter { mixers: vec!["linear".into()], ..Filter::default() };
    let report = report_with(&three(), &filtered(linear));
    assert_eq!(report.grids[0].records.len(), 1);
    assert_eq!(report.coverage.done, 1);
}

#[test]
fn a_plan_shows_what_is_missing_and_leaves_out_the_rest() {
    let mut planned = ["softmax", "linear", "linear"].map(config);
    planned[2].train.lr = 3e-3;
    let of = |rows: &[Record]| text(&table(rows, Some(&planned), &ReportOptions::default()).unwrap());
    let some = of(&[row("softmax", 13.0), row("s6", 14.0)]);
    shows!("plan", sections([("some", some), ("none", of(&[]))]));
}

#[test]
fn one_attention_of_other_runs_than_the_papers_has_no_gap_to_speak_of() {
    let alone = text_of(&[Record::new(&small("linear"), &read(8.0))]);
    let two = ["linear", "softmax"].map(|mixer| Record::new(&small(mixer), &read(8.0)));
    let texts = [("linear alone", alone), ("with softmax", text_of(&two))];
    shows!("gap-of-other-runs", sections(texts));
}
