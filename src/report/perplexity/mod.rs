//! Table 1: perplexities of language models, ours beside the paper's.
//!
//! A line is one mixer: the best over learning rates by one perplexity, by default the paper's, of the mean
//! over seeds. Runs on several texts, in several tokens, sizes or settings are in tables of their own; what
//! belongs to the mixer alone, such as its rotary positions, makes a line of its own. The paper's numbers
//! stand only beside runs of its size on its text.

mod export;
mod forms;
mod gap;
mod line;
mod markdown;
mod setting;
mod table;
#[cfg(test)]
mod tests;
mod text;

use super::cell::Cell;
use super::difference::PresetsOf;
use super::{joined, listed, Asked, Coverage, Format, Metric};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::store::Record;
use setting::Setting;
use std::collections::BTreeSet;
use table::Table;

const TASK: &str = "wikitext";

/// Perplexities of the paper, as printed.
const PAPER: [(&str, f64); 3] = [("linear", 17.42), ("normalized", 16.43), ("softmax", 13.15)];

/// What of a run is exported.
const ALL: [Metric; 10] = [
    Metric::TrainPpl,
    Metric::TrainPplEval,
    Metric::ValPpl,
    Metric::BestValPpl,
    Metric::TestPpl,
    Metric::SelectedTestPpl,
    Metric::ValWordPpl,
    Metric::TestWordPpl,
    Metric::ValBitsPerByte,
    Metric::TestBitsPerByte,
];

/// Table 1, once for each text and setting that there are runs of.
pub struct Perplexities {
    /// What learning rates are chosen by.
    by: Metric,
    tables: Vec<Table>,
    coverage: Coverage,
}

/// Table 1 from `rows`. With `planned`, it holds exactly the planned runs, done or not.
pub(super) fn perplexities(
    rows: &[Record],
    planned: Option<&[RunConfig]>,
    presets: PresetsOf,
    asked: &Asked,
) -> Result<Perplexities> {
    let by = asked.metric.unwrap_or(Metric::TrainPpl);
    by.require_perplexity()?;
    let rows: Vec<&Record> = rows.iter().filter(|row| row.text("task") == TASK).collect();
    if rows.is_empty() && planned.is_none() {
        return Err(Error::usage(
            "there are no results for Table 1 here yet; `dsf wikitext` makes a small one, \
             `dsf sweep experiments/table1.toml` all of them, and --out names the folder that holds them",
        ));
    }
    let keep = |row: &Record| row.text("task") == TASK && asked.filter.passes(row);
    let found: Vec<&Record> = rows.iter().copied().filter(|row| keep(row)).collect();
    let (runs, coverage) = joined(&found, planned, &keep);
    if runs.is_empty() {
        return Err(nothing_left(&rows));
    }
    let settings: Vec<Setting> = runs.values().map(|row| Setting::of(row, presets)).collect();
    Ok(Perplexities {
        by,
        tables: table::tables(&settings, by, &asked.filter),
        coverage,
    })
}

fn nothing_left(rows: &[&Record]) -> Error {
    let distinct = |name: fn(&Record) -> &str| -> BTreeSet<&str> {
        rows.iter().map(|row| name(row)).collect()
    };
    if rows.is_empty() {
        return Error::usage(
            "the plan and the filter leave no run for Table 1: its task is wikitext",
        );
    }
    Error::usage(format!(
        "no result for Table 1 passes the filter or the plan; there are results of {}, for --mixer {}",
        listed(distinct(|row| row.text("dataset"))),
        listed(distinct(|row| row.text("mixer")))
    ))
}

impl Perplexities {
    /// The whole report as text, with a newline at its end.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Text => text::render(self),
            Format::Markdown => markdown::render(self),
            Format::Csv => export::csv(self),
            Format::Json => export::json(self),
        }
    }

    /// Of each line the cell that its rate was chosen by.
    fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        let lines = self.tables.iter().flat_map(|table| &table.lines);
        lines.filter_map(|line| line.cell(self.by))
    }
}
