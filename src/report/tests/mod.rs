//! Small results and their exact reports.

mod accuracies;
mod claims;
mod compare;
mod curves;
mod figures;
mod grid;
mod held_out;
mod perplexities;
mod pictures;

use super::*;
use crate::store::RunResult;

fn figure(series: Series, number: &str) -> &'static Figure {
    Figure::find(series, number).unwrap()
}

/// The titles of the columns.
fn column_titles(grid: &Grid) -> Vec<&str> {
    grid.columns.iter().map(|tick| &*tick.title).collect()
}

/// ReportOptions with only a `metric`.
fn by(metric: &str) -> ReportOptions {
    ReportOptions {
        metric: Some(metric.into()),
        ..ReportOptions::default()
    }
}

fn filtered(filter: Filter) -> ReportOptions {
    ReportOptions {
        filter,
        ..ReportOptions::default()
    }
}

fn bytes(report: &Report, format: &str) -> Vec<u8> {
    let format = Format::find(format).unwrap();
    format.render(report, Screen::default()).unwrap()
}

fn drawn(report: &Report, format: &str) -> String {
    String::from_utf8(bytes(report, format)).unwrap()
}

/// The report as text on a screen of `width` characters, or in a file.
fn shown(report: &Report, colour: bool, width: Option<usize>) -> String {
    let screen = Screen { colour, width };
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

/// The fact `name` of a record of `grid`, by line.
fn fact_at(grid: &Grid, line: usize, name: &str) -> serde_json::Value {
    let mut facts = grid.records[line].iter();
    let fact = facts.find(|(known, _)| known == name);
    fact.unwrap_or_else(|| panic!("no {name}")).1.clone()
}

/// The fact `name` of the whole grid.
fn of_grid(grid: &Grid, name: &str) -> serde_json::Value {
    let mut facts = grid.facts.iter();
    let fact = facts.find(|(known, _)| known == name);
    fact.unwrap_or_else(|| panic!("no {name}")).1.clone()
}
