//! Small results and the exact reports they must give.

mod accuracies;
mod claims;
mod compare;
mod figures;
mod grid;
mod held_out;
mod perplexities;

use super::*;
use crate::store::RunResult;

fn figure(series: Series, number: &str) -> &'static Figure {
    Figure::find(series, number).unwrap()
}

/// What a table asked with `metric` alone.
fn by(metric: &str) -> Asked {
    Asked {
        metric: Some(metric.into()),
        ..Asked::default()
    }
}

fn filtered(filter: Filter) -> Asked {
    Asked {
        filter,
        ..Asked::default()
    }
}

fn drawn(report: &Report, format: &str) -> String {
    Format::find(format).unwrap().render(report, false)
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

/// What programs are told, by line of `grid` and name.
fn told(grid: &Grid, line: usize, name: &str) -> serde_json::Value {
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
