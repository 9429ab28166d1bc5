//! Summaries as they are written and read back.

mod spellings;

use super::*;
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::store::samples::{config, diverged, done, failed, provenance, read, text_config};
use std::path::PathBuf;

pub(super) fn summary_of(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mqar.csv");
    fs::write(&path, text).unwrap();
    (dir, path)
}

pub(super) fn text_of(rows: &[Record]) -> String {
    String::from_utf8(records_csv(rows, Path::new("mqar.csv")).unwrap()).unwrap()
}

/// Asserts that a summary is refused for a line, and gives the error.
pub(super) fn refused(text: &str, line: u64) -> Diagnostic {
    let (_dir, path) = summary_of(text);
    let at = read_summary(&path).fails("data");
    at.is_at("mqar.csv", Position::Line(line));
    at
}

#[test]
fn a_row_is_put_among_those_that_are_there_as_if_all_were_made_anew() {
    let record = |seed, accuracy| Record::new(&RunConfig { seed, ..config() }, &done(accuracy));
    let mut rows: Vec<Record> = (0..5).map(|seed| record(seed, 0.5)).collect();
    rows.sort_by(|a, b| a.run_id().cmp(b.run_id()));
    let ids = |rows: &[Record]| rows.iter().map(|row| row.run_id().to_owned()).collect();
    let all: HashSet<String> = ids(&rows);
    let added = |rows: &[Record], row: &Record, there| {
        let text = with_row(text_of(rows).as_bytes(), row, there)?;
        Some(String::from_utf8(text).unwrap())
    };
    for at in 0..rows.len() {
        let others = [&rows[..at], &rows[at + 1..]].concat();
        assert_eq!(added(&others, &rows[at], &all).unwrap(), text_of(&rows));
        let mut changed = rows.clone();
        changed[at].set(Column::ACCURACY, 0.75);
        assert_eq!(added(&rows, &changed[at], &all).unwrap(), text_of(&changed));
    }
    let gone: HashSet<String> = ids(&rows[1..]);
    assert_eq!(added(&rows, &rows[4], &gone).unwrap(), text_of(&rows[1..]));
    // Any other text is rebuilt from the folders.
    let backwards: Vec<Record> = rows.iter().rev().cloned().collect();
    assert_eq!(added(&backwards, &rows[0], &all), None);
    let text = text_of(&rows);
    for other in [String::new(), text.replace("checksum", "sum"), text[..text.len() - 20].to_owned()] {
        assert_eq!(with_row(other.as_bytes(), &rows[0], &all), None);
    }
}

#[test]
fn a_row_that_was_changed_is_refused_until_the_column_of_checksums_is_taken_out() {
    let text = text_of(&[Record::new(&config(), &done(0.5))]);
    let changed = text.replacen(",0.5,", ",0.6,", 1);
    assert_ne!(text, changed);
    refused(&changed, 2).names(&["`checksum`"]);
    // In another order, and without a column that is empty, it is the same row.
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let row = reader.records().next().unwrap().unwrap();
    let mut cells: Vec<_> = header.iter().zip(&row).filter(|(_, cell)| !cell.is_empty()).collect();
    assert!(cells.len() < header.len());
    cells.reverse();
    let (names, values): (Vec<&str>, Vec<&str>) = cells.into_iter().unzip();
    let mut turned = csv::Writer::from_writer(Vec::new());
    turned.write_record(names).unwrap();
    turned.write_record(values).unwrap();
    let turned = String::from_utf8(turned.into_inner().unwrap()).unwrap();
    let (_dir, path) = summary_of(&turned);
    assert_eq!(read_summary(&path).unwrap(), [Record::new(&config(), &done(0.5))]);
    // A deliberate change.
    let sum = &row[row.len() - 1];
    assert_eq!(sum.len(), 12);
    refused(&changed.replace(sum, ""), 2).names(&["`checksum`"]);
    let without = changed.replace(sum, "").replace(",checksum", "");
    let (_dir, path) = summary_of(&without.replace(",\n", "\n"));
    assert_eq!(read_summary(&path).unwrap()[0].number(Column::ACCURACY), Some(0.6));
}

#[test]
fn rows_come_back_from_a_summary_as_they_were() {
    let mut awkward = failed("out of memory, \"really\"\nat step 3");
    awkward.metrics.set(Column::SECONDS, 0.1 + 0.2);
    let rows = [(0, done(1.0 / 3.0)), (1, awkward), (2, done(1e-12))].map(|(seed, result)| {
        let config = RunConfig { seed, ..config() };
        Record::new(&config, &result)
    });
    let rows = [&rows[..], &[Record::new(&text_config(), &read(17.42))]].concat();
    let (_dir, path) = summary_of(&text_of(&rows));
    assert_eq!(read_summary(&path).unwrap(), rows);
}

#[test]
fn a_summary_has_no_empty_column_of_another_task() {
    let header = |row: Record| {
        let text = text_of(&[row]);
        let columns = text.lines().next().unwrap().split(',');
        columns.map(str::to_owned).collect::<HashSet<_>>()
    };
    let recall = header(Record::new(&config(), &done(0.5)));
    for name in ["tokenizer", "contour_length", "unigram_ppl", "val_examples", "clip"] {
        assert!(!recall.contains(name), "{name}: {recall:?}");
    }
    for name in ["kv_pairs", "outcome", "reason", "accuracy", "micro_batch_used"] {
        assert!(recall.contains(name), "{name}: {recall:?}");
    }
    let text = header(Record::new(&text_config(), &read(17.42)));
    let has = |name: &str| text.contains(name);
    assert!(has("tokenizer") && has("unigram_ppl") && !has("contour_length"));
}

#[test]
fn a_loss_that_is_not_a_number_survives_the_summary() {
    let (_dir, path) = summary_of(&text_of(&[Record::new(&config(), &diverged())]));
    let rows = read_summary(&path).unwrap();
    assert!(rows[0].number(Column::TRAIN_LOSS).unwrap().is_nan());
    assert_eq!(rows[0].number(Column::TEST_LOSS), None);
}

#[test]
fn an_empty_summary_has_no_rows() {
    let (_dir, path) = summary_of("");
    assert_eq!(read_summary(&path).unwrap(), []);
}

#[test]
fn a_column_added_later_does_not_disturb() {
    let text = text_of(&[Record::new(&config(), &done(0.5))]);
    let wider: String = text.lines().map(|line| format!("{line},new\n")).collect();
    let (_dir, path) = summary_of(&wider);
    assert_eq!(read_summary(&path).unwrap().len(), 1);
}

/// Returns `text` without the columns called `names`.
fn without(text: &str, names: &[&str]) -> String {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let lines: Vec<StringRecord> = reader.records().map(|line| line.unwrap()).collect();
    let kept: Vec<usize> = (0..lines[0].len()).filter(|i| !names.contains(&&lines[0][*i])).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in &lines {
        writer.write_record(kept.iter().map(|i| &line[*i])).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

#[test]
fn a_missing_column_is_what_its_format_meant() {
    let row = Record::new(&config(), &done(0.5));
    let later = COLUMNS.iter().enumerate().filter(|(_, column)| column.absent != Absent::Required);
    let lacks = |place: usize| *row.at(place) == Field::Absent || place == Column::PRECISION.place();
    let later: Vec<&str> = later.filter(|(place, _)| lacks(*place)).map(|(_, column)| column.name).collect();
    let old = without(&text_of(std::slice::from_ref(&row)), &later);
    assert!(!old.contains("precision") && !old.contains("tokenizer"), "{old}");
    let (_dir, path) = summary_of(&old);
    assert_eq!(read_summary(&path).unwrap(), [row]);
}

#[test]
fn pathfinder_without_a_contour_length_is_the_hard_set() {
    let mut row = Record::new(&config(), &done(0.5));
    for (dataset, hard) in [("pathfinder", true), ("path-x", true), ("path-x-256", true), ("image", false)] {
        let paddles = if hard { Field::Count(14) } else { Field::Absent };
        row.set(Column::DATASET, dataset);
        let (_dir, path) = summary_of(&text_of(std::slice::from_ref(&row)));
        assert_eq!(*read_summary(&path).unwrap()[0].get(Column::CONTOUR_LENGTH), paddles);
    }
}

#[test]
fn every_committed_summary_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    // Other summaries in this folder belong to the person who runs the tests.
    for name in [
        "figure1-small.csv",
        "figure2-small.csv",
        "figure2-small-matched.csv",
        "figure2-small-steps.csv",
        "figure3-small.csv",
        "figure7-cell.csv",
        "figure7-init.csv",
        "frontier-small.csv",
        "h3-table1.csv",
        "hybrids-small.csv",
        "copying-small.csv",
        "heads-small.csv",
        "states-small.csv",
        "hippo-small.csv",
        "lra-small.csv",
        "mad-small.csv",
        "mad-small-seed124.csv",
        "mqar-paper-cell.csv",
        "mqar-gpu-cell.csv",
        "mqar-quick.csv",
        "lra-listops.csv",
        "mqar-small.csv",
        "recall-parts-small.csv",
        "state-tracking-small.csv",
        "survey.csv",
        "wikitext-small.csv",
    ] {
        let path = folder.join(name);
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        let records = read_summary(&path).unwrap();
        assert_eq!(records.len() + 1, lines, "{name}");
        assert!(records.iter().all(|r| !r.text(Column::PRECISION).is_empty()));
    }
}

#[test]
fn a_value_that_its_column_cannot_have_is_refused_with_line_and_column() {
    for (column, value, said) in [
        (Column::ACCURACY, "45.9", "`45.9`"),
        (Column::MAJORITY, "-0.5", "`-0.5`"),
        (Column::TRAIN_PPL, "-3", "`-3`"),
        (Column::STATUS, "finished", "`finished`"),
        (Column::POSITIONS, "yes", "`yes`"),
        (Column::D, "", ""),
        (Column::RUN_ID, "", ""),
    ] {
        let mut row = Record::new(&config(), &done(0.5));
        row.set(column, value);
        let text = text_of(&[Record::new(&config(), &done(0.5)), row]);
        refused(&text, 3).names(&[&format!("`{}`", column.name()), said]);
    }
}

#[test]
fn a_column_that_is_misspelt_or_missing_or_twice_is_refused_by_its_name() {
    let text = text_of(&[Record::new(&config(), &done(0.5))]);
    let misspelt = refused(&text.replace(",accuracy,", ",acuracy,"), 1);
    misspelt.names(&["`acuracy`", "`accuracy`"]);
    refused(&without(&text, &["epochs_max"]), 1).names(&["`epochs_max`"]);
    refused(&text.replace(",accuracy,", ",score,"), 1).names(&["`accuracy`"]);
    refused(&text.replace(",best_accuracy,", ",accuracy,"), 1).names(&["`accuracy`"]);
}

#[test]
fn two_results_of_one_run_are_refused_with_both_lines_unless_they_agree() {
    let row = |result| Record::new(&config(), &result);
    let other = refused(&text_of(&[row(done(0.5)), row(done(0.25))]), 3);
    other.names(&["line 2", "accuracy 0.25", "0.5"]);
    let mut slower = done(0.5);
    slower.metrics.set(Column::SECONDS, 99.0);
    let (_dir, path) = summary_of(&text_of(&[row(done(0.5)), row(slower), row(failed("disk"))]));
    assert_eq!(read_summary(&path).unwrap().len(), 3);
}

#[test]
fn another_schema_is_refused_with_its_line() {
    let text = text_of(&[Record::new(&config(), &done(0.5))]).replace("\n1,", "\n2,");
    refused(&text, 2).names(&["`2`"]);
}

#[test]
fn a_broken_value_is_refused_with_its_line_and_column() {
    let row = Record::new(&config(), &done(0.5));
    let text = text_of(&[row.clone(), row]);
    let last = text.rfind(",64,32,").unwrap();
    let broken = format!("{},64,many,{}", &text[..last], &text[last + 7..]);
    refused(&broken, 3).names(&["`n`", "`many`"]);
}

#[test]
fn a_torn_line_is_refused() {
    let text = text_of(&[Record::new(&config(), &done(0.5))]);
    refused(&text[..text.len() - 60], 2);
}

#[test]
fn another_table_is_refused() {
    refused("a,b\n1,2\n", 1).names(&["`schema`"]);
}

#[test]
fn runs_that_finish_together_are_all_in_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let finish = |worker: u64| {
        for run in 0..8 {
            let config = RunConfig { seed: 8 * worker + run, ..config() };
            let run = store.begin(&config, &provenance()).unwrap();
            run.finish(&done(0.5)).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || finish(worker));
        }
    });
    let rows = read_summary(&store.summary_path("mqar")).unwrap();
    assert_eq!(rows.len(), 32);
    assert!(rows.is_sorted_by(|a, b| a.run_id() < b.run_id()));
}
