//! The paper's tables: models down, tasks across, ours above the paper's.
//!
//! A place is one model on one task: the best over learning rates by validation accuracy, the mean over
//! seeds. Runs under several protocols, or that differ in loss, input, pooling or precision, are in tables
//! of their own. So are runs on part of the data: the paper's numbers never stand beside those. Any other
//! difference from the preset is said in a footnote, and never shares a place.

mod around;
mod export;
mod forms;
mod markdown;
mod paper;
mod place;
mod setting;
mod table;
#[cfg(test)]
mod tests;
mod text;

pub(super) use paper::{LONG_RANGE_ARENA, NORMALISERS};

use super::cell::Cell;
use super::difference::PresetsOf;
use super::{joined, listed, Asked, Coverage, Filter, Format, Metric};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::store::Record;
use paper::Paper;
use setting::Setting;
use std::collections::BTreeSet;
use table::Table;

/// A table of the paper, once for each protocol and setting that there are runs of.
pub struct Tables {
    paper: &'static Paper,
    metric: Option<Metric>,
    tables: Vec<Table>,
    coverage: Coverage,
}

/// The table `paper` from `rows`. With `planned`, it holds exactly the planned runs, done or not.
pub(super) fn accuracies(
    paper: &'static Paper,
    rows: &[Record],
    planned: Option<&[RunConfig]>,
    presets: PresetsOf,
    asked: &Asked,
) -> Result<Tables> {
    if let Some(metric) = asked.metric {
        metric.require_accuracy()?;
    }
    let rows: Vec<&Record> = rows.iter().filter(|row| paper.holds(row)).collect();
    if rows.is_empty() && planned.is_none() {
        return Err(Error::usage(format!(
            "there are no results for Table {} here yet; {}, and --out names the folder that holds them",
            paper.number, paper.remedy
        )));
    }
    let keep = |row: &Record| paper.holds(row) && asked.filter.passes(row);
    let found: Vec<&Record> = rows.iter().copied().filter(|row| keep(row)).collect();
    let (runs, coverage) = joined(&found, planned, &keep);
    if runs.is_empty() {
        return Err(paper.nothing_left(&rows));
    }
    let columns = paper.columns.iter().copied();
    let columns = columns.filter(|c| asked.filter.datasets.is_empty() || asked.filter.names(*c));
    let columns: Vec<_> = columns.collect();
    let setting = |row| {
        let column = columns.iter().find(|column| column.holds(row))?;
        Some(Setting::of(row, *column, presets))
    };
    let settings: Vec<Setting> = runs.values().filter_map(setting).collect();
    Ok(Tables {
        paper,
        metric: asked.metric,
        tables: table::tables(&settings, paper, &columns, &asked.filter),
        coverage,
    })
}

impl Tables {
    /// The whole report as text, with a newline at its end. Only `Text` knows colour.
    pub fn render(&self, format: Format, colour: bool) -> String {
        match format {
            Format::Text => text::render(self, colour),
            Format::Markdown => markdown::render(self),
            Format::Csv => export::csv(self),
            Format::Json => export::json(self),
        }
    }

    /// What is shown of every place.
    fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        let lines = self.tables.iter().flat_map(|table| &table.lines);
        let places = lines.flat_map(|line| &line.places);
        places.map(|place| match place {
            Some(place) => place.cell(self.metric),
            None => Cell::NotRun,
        })
    }
}

impl Paper {
    fn holds(&self, row: &Record) -> bool {
        let model = |model: &paper::Model| model.mixer == row.text("mixer");
        self.columns.iter().any(|column| column.holds(row))
            && (self.others || self.models.iter().any(model))
    }

    fn nothing_left(&self, rows: &[&Record]) -> Error {
        let mixers: BTreeSet<&str> = rows.iter().map(|row| row.text("mixer")).collect();
        let protocols: BTreeSet<&str> = rows.iter().map(|row| row.text("protocol")).collect();
        let columns = self.columns.iter().copied();
        let columns = columns.filter(|column| rows.iter().any(|row| column.holds(row)));
        Error::usage(format!(
            "no result for Table {} passes the filter or the plan; there are results of {}, for \
             --mixer {}, --protocol {}",
            self.number,
            listed(columns.map(paper::Column::name)),
            listed(mixers),
            listed(protocols)
        ))
    }
}

impl Filter {
    fn names(&self, column: paper::Column) -> bool {
        matches!(column, paper::Column::Arena(dataset) if self.datasets.contains(&dataset))
    }
}
