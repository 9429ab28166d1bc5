//! Small results and the exact reports they must give: texts are files of `snapshots/`.

/// Compares a text with the file `snapshots/dsf__report__tests__MODULE__NAME.snap`.
macro_rules! shows {
    ($name:expr, $text:expr) => {
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!($name, $text)
        })
    };
}

mod accuracies;
mod claims;
mod compare;
mod curves;
mod figures;
mod frontier;
mod grid;
mod held_out;
mod perplexities;
mod pictures;
mod skills;

use super::*;
use crate::store::RunResult;
use std::collections::BTreeMap;

fn figure(series: FigureSeries, number: &str) -> &'static Figure {
    Figure::find(series, number).unwrap()
}

/// The titles of the columns.
fn column_titles(grid: &Grid) -> Vec<&str> {
    grid.columns.iter().map(|tick| &*tick.title).collect()
}

/// Options of a report that set `metric` alone.
fn by(metric: &str) -> ReportOptions {
    ReportOptions { metric: Some(metric.into()), ..ReportOptions::default() }
}

fn filtered(filter: Filter) -> ReportOptions {
    ReportOptions { filter, ..ReportOptions::default() }
}

fn bytes(report: &Report, format: &str) -> Vec<u8> {
    let format = Format::find(format).unwrap();
    format.render(report, TextTarget::default()).unwrap()
}

fn drawn(report: &Report, format: &str) -> String {
    String::from_utf8(bytes(report, format)).unwrap()
}

/// The text of a report on a screen of `width` characters, or in a file.
fn shown(report: &Report, colour: bool, width: Option<usize>) -> String {
    let screen = TextTarget { colour, width };
    String::from_utf8(FORMATS[0].render(report, screen).unwrap()).unwrap()
}

fn coloured(report: &Report) -> String {
    shown(report, true, None)
}

fn text(report: &Report) -> String {
    drawn(report, "text")
}

fn json(report: &Report) -> serde_json::Value {
    serde_json::from_str(&drawn(report, "json")).unwrap()
}

fn titles(report: &Report) -> Vec<&str> {
    report.grids.iter().map(|grid| &*grid.title).collect()
}

/// The fact `name` of a line of `grid`, for programs.
fn fact_at(grid: &Grid, line: usize, name: &str) -> serde_json::Value {
    let mut facts = grid.records[line].iter();
    let fact = facts.find(|(known, _)| known == name);
    fact.unwrap_or_else(|| panic!("no {name}")).1.clone()
}

/// The same of the whole grid.
fn of_grid(grid: &Grid, name: &str) -> serde_json::Value {
    let mut facts = grid.facts.iter();
    let fact = facts.find(|(known, _)| known == name);
    fact.unwrap_or_else(|| panic!("no {name}")).1.clone()
}

/// Several texts as one, each below what it is of.
fn sections<N: AsRef<str>, T: AsRef<str>>(texts: impl IntoIterator<Item = (N, T)>) -> String {
    let each = texts.into_iter();
    let each = each.map(|(name, text)| format!("== {}\n{}\n", name.as_ref(), text.as_ref()));
    each.collect::<Vec<_>>().join("\n")
}

/// The words of a picture or a page, a line each, in the order in which they stand in its file.
fn words(drawn: &str) -> String {
    let parts = drawn.split('<').filter(|part| !part.starts_with("style"));
    let texts = parts.filter_map(|part| Some(part.split_once('>')?.1.trim()));
    let texts = texts.filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

/// The rows of a CSV text as maps from column to text.
fn csv_rows(report: &Report) -> Vec<BTreeMap<String, String>> {
    let csv = drawn(report, "csv");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    reader.deserialize().map(|row| row.unwrap()).collect()
}

/// The counts of printed numbers that a checked report holds, misses and lacks.
fn checked(report: &Report) -> [usize; 3] {
    let json = json(report);
    let count = |list: &str| json["check"][list].as_array().unwrap().len();
    ["held", "missed", "absent"].map(count)
}
