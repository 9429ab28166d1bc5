//! The figures of the paper, and reports of many runs.

use super::*;
use crate::error::testing::Fails;
use crate::report::figures::FigureForm;
use crate::store::samples::{config, done};
use crate::store::Column;
use std::time::Instant;

/// MQAR at (L, k) = (512, 64) unless `change` says otherwise.
fn run(mixer: &str, d: usize, n: usize, accuracy: f64, change: fn(&mut RunConfig)) -> Record {
    let mut config = config();
    config.model.mixer = mixer.into();
    (config.model.d_model, config.model.d_state) = (d, n);
    config.task.set("seq_len", 512);
    config.task.set("kv_pairs", 64);
    change(&mut config);
    Record::new(&config, &done(accuracy))
}

fn drawn_figure(number: &str, rows: &[Record]) -> Result<Report> {
    let none: PresetsOf = &|_| unreachable!("no figure asks a preset");
    report(figure(FigureSeries::Figure, number), rows, None, none, &ReportOptions::default())
}

#[test]
fn the_second_figure_has_mixers_down_and_widths_across() {
    let rows = [
        run("linear", 64, 128, 0.25, |_| {}),
        run("linear", 128, 128, 0.5, |_| {}),
        run("softmax", 128, 128, 0.995, |c| c.model.options.clear()),
        run("linear", 64, 64, 0.75, |_| {}),
        run("qlstm", 64, 128, 0.75, |_| {}),
    ];
    shows!("figure2", text(&drawn_figure("2", &rows).unwrap()));
}

#[test]
fn lines_of_one_mixer_say_what_tells_them_apart() {
    let rows = [run("linear", 64, 128, 0.25, |_| {}), run("linear", 64, 128, 0.5, |c| c.model.n_heads = 4)];
    let report = drawn_figure("2", &rows).unwrap();
    let names: Vec<&str> = report.grids[0].lines.iter().map(|l| l.name()).collect();
    assert_eq!(names, ["linear, heads=1", "linear, heads=4"]);
}

#[test]
fn lines_that_differ_in_options_name_those_that_differ() {
    fn option(config: &mut RunConfig, name: &str, value: &str) {
        let value = value.to_owned();
        config.model.options.insert(name.to_owned(), value);
    }
    let rows = [
        run("linear", 64, 128, 0.5, |c| {
            c.model.options.clear();
            option(c, "a", "1");
            option(c, "b", "2");
        }),
        run("linear", 64, 128, 0.5, |c| {
            c.model.options.clear();
            option(c, "a", "1");
            option(c, "b", "3");
        }),
        run("linear", 64, 128, 0.5, |c| {
            c.model.options.clear();
            option(c, "a", "1");
        }),
    ];
    let report = drawn_figure("2", &rows).unwrap();
    let names: Vec<&str> = report.grids[0].lines.iter().map(|l| l.name()).collect();
    assert_eq!(names, ["linear", "linear, b=2", "linear, b=3"]);
}

#[test]
fn the_first_figure_is_over_n_and_the_seventh_has_d_down() {
    let rows = [32, 64].map(|n| run("linear", 512, n, 0.5, |_| {}));
    let grid = drawn_figure("1", &rows).unwrap().grids.remove(0);
    assert_eq!((&*grid.corner(), &column_titles(&grid)[..]), ("mixer \\ n", &["32", "64"][..]));
    assert!(grid.title.ends_with("100000 examples, d=512"), "{}", grid.title);
    let grid = drawn_figure("7", &rows).unwrap().grids.remove(0);
    assert_eq!((&*grid.corner(), grid.lines[0].name()), ("d \\ n", "512"));
}

#[test]
fn figures_say_how_to_get_results_and_turn_only_where_d_and_n_are_the_axes() {
    let none = drawn_figure("3", &[run("linear", 64, 32, 0.5, |_| {})]);
    none.fails("refused").names(&["`dsf sweep experiments/figure3.toml`"]);
    let none: PresetsOf = &|_| Vec::new();
    let turned = ReportOptions { orient: Some(Orient::Paper), ..ReportOptions::default() };
    let rows = [run("linear", 512, 128, 0.5, |_| {})];
    let refused = report(figure(FigureSeries::Figure, "2"), &rows, None, none, &turned);
    refused.refuses("--orient").names(&["Figure 2"]);
}

/// A hundred thousand runs: 25,000 settings at two rates and two seeds.
#[test]
fn a_hundred_thousand_runs_are_read_and_reported_in_seconds() {
    let mut row = crate::store::samples::record(0.5);
    // Without checksums, as earlier versions wrote.
    let columns = crate::store::COLUMNS.iter().map(|c| c.name);
    let header: Vec<&str> = columns.filter(|name| *name != "checksum").collect();
    let mut file = header.join(",") + "\n";
    for run in 0..100_000usize {
        row.set(Column::RUN_ID, format!("{run:012x}").as_str());
        row.set(Column::MIXER, ["softmax", "linear", "s6", "ssd", "gla"][run / 4 % 5]);
        row.set(Column::SEED, run % 2);
        row.set(Column::LR, [1e-3, 1e-2][run / 2 % 2]);
        row.set(Column::D, 8 * (run / 20 % 50));
        row.set(Column::N, run / 1000);
        row.set(Column::ACCURACY, (run % 977) as f64 / 977.0);
        let columns = header.iter().map(|name| Column::find(name).unwrap());
        let cells = columns.map(|column| row.get(column).to_string().replace(',', " "));
        file += &(cells.collect::<Vec<_>>().join(",") + "\n");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mqar.csv");
    std::fs::write(&path, file).unwrap();
    let start = Instant::now();
    let rows = crate::store::read_summary(&path).unwrap();
    let read = start.elapsed();
    let none: PresetsOf = &|_| Vec::new();
    let grids = report(figure(FigureSeries::Grid, ""), &rows, None, none, &ReportOptions::default());
    let report = grids.unwrap();
    text(&report);
    let whole = start.elapsed();
    println!("read in {read:?}, reported after {whole:?}");
    assert_eq!(report.coverage.done, 100_000);
    // Under 2 s where the crate is optimised; tests may run unoptimised on a busy machine.
    assert!(whole.as_secs() < 60, "{whole:?}");
}

/// A figure that the program does not have.
static MADE_UP: Figure = Figure {
    number: "99",
    series: FigureSeries::Figure,
    about: "rates of learning over lengths",
    runs: &[(Column::TASK, &["mqar"]), (Column::D, &["64"])],
    metrics: &["test_loss", "accuracy"],
    drawn: FigureForm::Axes { lines: &["mixer"], columns: "seq_len" },
    remedy: "`dsf sweep --d 64` trains what it needs",
};

#[test]
fn a_row_of_a_figure_is_drawn_in_every_format_and_says_what_it_lacks() {
    let rows = [
        run("linear", 64, 32, 0.25, |_| {}),
        run("linear", 64, 32, 0.5, |c| c.task.set("seq_len", 256)),
        run("linear", 128, 32, 0.75, |_| {}),
    ];
    let none: PresetsOf = &|_| Vec::new();
    let asked = by("accuracy");
    let drawn = report(&MADE_UP, &rows, None, none, &asked).unwrap();
    let accuracies = drawn.grids[0].lines[0].cells.iter().map(|cell| match cell.content {
        Content::Result(status) => status.score().map(|score| score.mean),
        _ => None,
    });
    assert_eq!(accuracies.collect::<Vec<_>>(), [Some(0.5), Some(0.25)]);
    let lines = csv_rows(&drawn).into_iter();
    let means: Vec<String> = lines.map(|mut row| row.remove("mean").unwrap()).collect();
    assert_eq!(means, ["0.5", "0.25"]);
    let cells = &json(&drawn)["panels"][0]["cells"];
    assert_eq!([0, 1].map(|i| cells[i]["mean"].as_f64()), [Some(0.5), Some(0.25)]);
    let texts = FORMATS.iter().filter(|format| format.is_text());
    let texts = texts.map(|format| (format.name, super::drawn(&drawn, format.name)));
    let texts = texts.filter_map(|(name, text)| match name {
        "csv" | "json" => None,
        "svg" | "html" => Some((name, words(&text))),
        _ => Some((name, text)),
    });
    shows!("made-up-figure", sections(texts));
    let title = &drawn.grids[0].title;
    assert_eq!(title, "matched, k=64 V=8192, 100000 examples, d=64, n=32", "L is an axis");
    let refused = report(&MADE_UP, &rows[2..], None, none, &asked);
    refused.fails("refused").names(&[MADE_UP.remedy]);
    let unknown = report(&MADE_UP, &rows, None, none, &by("test_ppl"));
    unknown.refuses("--metric").gives("test_ppl").names(&["Figure 99", "test_loss", "accuracy"]);
}

/// Three rates by three seeds, of which two seeds stop, at the last rate.
fn tuned() -> Vec<Record> {
    let mut rows = Vec::new();
    for (lr, accuracies) in [(1e-3, [0.2, 0.2, 0.2]), (3e-3, [0.3, 0.4, 0.5]), (1e-2, [0.995, 0.996, 0.6])] {
        for (seed, accuracy) in accuracies.into_iter().enumerate() {
            let mut row = run("ssd", 64, 32, accuracy, |_| {});
            row.set(Column::LR, lr);
            row.set(Column::SEED, seed);
            row.set(Column::RUN_ID, format!("{:012x}", rows.len()).as_str());
            row.set(Column::EPOCHS_RUN, if accuracy > 0.99 { 4 + 2 * seed } else { row.count(Column::EPOCHS_MAX) });
            rows.push(row);
        }
    }
    rows
}

#[test]
fn times_are_the_share_of_all_runs_that_have_stopped() {
    let mut rows = tuned();
    let report = drawn_figure("times", &rows).unwrap();
    let grid = &report.grids[0];
    assert_eq!(column_titles(grid), ["0", "400000", "600000"]);
    let shares = grid.lines[0].cells.iter().map(|cell| match cell.content {
        Content::Value(share) => (9.0 * share).round(),
        _ => f64::NAN,
    });
    assert_eq!(shares.collect::<Vec<_>>(), [0.0, 1.0, 2.0]);
    assert!(matches!(grid.form, PanelForm::Lines { steps: true, .. }));
    rows.iter_mut().for_each(|row| row.set(Column::STOP_ABOVE, Field::Absent));
    drawn_figure("times", &rows).fails("refused").names(&["Figure times"]);
}

#[test]
fn tuning_is_the_expected_best_of_the_rates() {
    let report = drawn_figure("tuning", &tuned()).unwrap();
    let means = [0.2, 0.4, (0.995 + 0.996 + 0.6) / 3.0];
    let wanted = [means.iter().sum::<f64>() / 3.0, (means[1] + 2.0 * means[2]) / 3.0, means[2]];
    let found = report.grids[0].lines[0].cells.iter().map(|cell| match cell.content {
        Content::Between(value, [low, high]) if low <= value && value <= high => value,
        _ => f64::NAN,
    });
    for (found, wanted) in found.zip(wanted) {
        assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
    }
    for format in FORMATS.iter().filter(|format| format.is_text()) {
        assert!(!drawn(&report, format.name).is_empty(), "{}", format.name);
    }
    shows!("tuning", text(&report));
    let cells = &json(&report)["panels"][0]["cells"];
    let ends = ["low", "value", "high"].map(|name| cells[1][name].as_f64().unwrap());
    assert!(ends[0] < ends[1] && ends[1] < ends[2], "{ends:?}");
}

#[test]
fn rates_with_one_seed_have_no_band() {
    let mut rows = tuned();
    rows.retain(|row| row.count(Column::SEED) == 0);
    let report = drawn_figure("tuning", &rows).unwrap();
    let mut cells = report.grids[0].lines[0].cells.iter();
    assert!(cells.all(|cell| matches!(cell.content, Content::Value(_))));
}

/// Pairs that are shown again with another value can be answered less often by position.
#[test]
fn a_baseline_has_both_ends_where_lines_differ_in_it() {
    let mut rows = tuned();
    rows[0].set(Column::OVERWRITES, 32usize);
    let baselines = drawn_figure("tuning", &rows).unwrap().grids.remove(0).baselines;
    let [low, high] = baselines[0].levels[0][..] else {
        panic!("one level: {baselines:?}");
    };
    assert!(low < high);
}
