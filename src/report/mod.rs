//! Rows of a summary become grids of accuracy, one panel a setting, or tables of the paper.
//!
//! A cell is one (d, n): the best over learning rates of the mean over seeds. Runs that differ in
//! anything but d, n, learning rate and seed are never in one panel.

mod cell;
mod coverage;
mod difference;
mod export;
mod markdown;
mod metric;
mod panel;
mod perplexity;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod text;

pub use cell::{Cell, Edge, Score};
pub use coverage::Coverage;
pub use difference::PresetsOf;
pub use export::SCHEMA;
pub use metric::Metric;
pub use panel::Panel;
pub use perplexity::Perplexities;
pub use tables::Tables;

use crate::config::{Protocol, RunConfig};
use crate::error::{Error, Result};
use crate::store::{Row, RunStatus};
use crate::tasks::lra::LraDataset;
use clap::ValueEnum;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

const TASK: &str = "mqar";

/// What `dsf report` prints.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the cells hold.
    pub metric: Metric,
    /// The grids, ordered by protocol, task size and mixer.
    pub panels: Vec<Panel>,
    /// What the grids rest on.
    pub coverage: Coverage,
}

/// A table of the paper (Sieber et al. 2024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaperTable {
    /// Perplexities of three attentions in the body of Pythia-70M, on WikiText-103.
    #[value(name = "1")]
    Language,
    /// Three normalisers of normalized attention, on LRA Image and on MQAR with L = 512, k = 64.
    #[value(name = "2")]
    Normalisers,
    /// Models on the five tasks of the Long Range Arena.
    #[value(name = "3")]
    LongRangeArena,
}

/// What is asked of a table.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Which runs.
    pub filter: Filter,
    /// Of accuracies, the one that is shown: `None` is that of the epoch chosen on validation data, and the
    /// best test accuracy where there are none. Of perplexities, the one that learning rates are chosen by.
    pub metric: Option<Metric>,
}

/// A table of the paper from results.
pub enum PaperReport {
    /// Table 1.
    Perplexities(Perplexities),
    /// Tables 2 and 3.
    Accuracies(Tables),
}

/// What runs down and what runs across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Orient {
    /// Rows n, columns d.
    #[default]
    Brief,
    /// Rows d, columns n, as in the paper's figure 7.
    Paper,
}

/// In which form a report is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a terminal.
    #[default]
    Text,
    /// A table a panel.
    Markdown,
    /// A line a cell.
    Csv,
    /// One object.
    Json,
}

/// Which runs are reported. An empty list lets all pass.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Names of mixers.
    pub mixers: Vec<String>,
    /// Sequence lengths.
    pub seq_lens: Vec<usize>,
    /// Protocols.
    pub protocols: Vec<Protocol>,
    /// Datasets of the Long Range Arena.
    pub datasets: Vec<LraDataset>,
}

/// The accuracy grids of MQAR. With `planned`, they hold exactly the planned runs, done or not.
pub fn mqar(
    rows: &[Row],
    planned: Option<&[RunConfig]>,
    filter: &Filter,
    metric: Metric,
) -> Result<Report> {
    if matches!(metric, Metric::SelectedAccuracy | Metric::ValAccuracy) {
        return Err(Error::usage(
            "--metric selected_accuracy needs a validation split, which MQAR does not have: \
             take accuracy or best_accuracy",
        ));
    }
    metric.require_accuracy()?;
    let other = |task: &str| rows.iter().any(|row| row.task == task);
    let (arena, text) = (other("lra"), other("wikitext"));
    let rows: Vec<&Row> = rows.iter().filter(|row| row.task == TASK).collect();
    if rows.is_empty() {
        return Err(Error::usage(if arena {
            "there are no MQAR results here, but some of the Long Range Arena: \
             type `dsf report --table 3`"
        } else if text {
            "there are no MQAR results here, but some of WikiText: type `dsf report --table 1`"
        } else {
            "there are no MQAR results here yet; `dsf mqar` makes one, `dsf sweep` a grid of them, \
             and --out names the folder that holds them"
        }));
    }
    let found: Vec<&Row> = rows.iter().copied().filter(|r| filter.passes(r)).collect();
    if found.is_empty() {
        return Err(filter.nothing_left(&rows));
    }
    let keep = |row: &Row| row.task == TASK && filter.passes(row);
    let (runs, coverage) = joined(&found, planned, &keep);
    let listed: Vec<&Row> = runs.values().collect();
    let panels = panel::panels(&listed, metric);
    Ok(Report {
        metric,
        panels,
        coverage,
    })
}

/// The table `which` from `rows`. With `planned`, it holds exactly the planned runs, done or not.
pub fn paper_table(
    which: PaperTable,
    rows: &[Row],
    planned: Option<&[RunConfig]>,
    presets: PresetsOf,
    asked: &Asked,
) -> Result<PaperReport> {
    let accuracies = |paper| {
        let tables = tables::accuracies(paper, rows, planned, presets, asked);
        tables.map(PaperReport::Accuracies)
    };
    match which {
        PaperTable::Language => {
            let tables = perplexity::perplexities(rows, planned, presets, asked);
            tables.map(PaperReport::Perplexities)
        }
        PaperTable::Normalisers => accuracies(&tables::NORMALISERS),
        PaperTable::LongRangeArena => accuracies(&tables::LONG_RANGE_ARENA),
    }
}

impl PaperReport {
    /// The whole report as text, with a newline at its end. Only `Text` knows colour.
    pub fn render(&self, format: Format, colour: bool) -> String {
        match self {
            Self::Perplexities(tables) => tables.render(format),
            Self::Accuracies(tables) => tables.render(format, colour),
        }
    }
}

/// One row a run, by run id: of two results for one run, one with a number wins over a failure. With
/// `planned`, exactly the planned runs that `keep` passes.
fn joined(
    found: &[&Row],
    planned: Option<&[RunConfig]>,
    keep: &dyn Fn(&Row) -> bool,
) -> (BTreeMap<String, Row>, Coverage) {
    let mut runs: BTreeMap<String, Row> = planned
        .unwrap_or_default()
        .iter()
        .map(Row::planned)
        .filter(|row| keep(row))
        .map(|row| (row.run_id.clone(), row))
        .collect();
    for &row in found {
        match runs.entry(row.run_id.clone()) {
            Entry::Occupied(mut known) if known.get().status != Some(RunStatus::Done) => {
                known.insert(row.clone());
            }
            Entry::Vacant(free) if planned.is_none() => {
                free.insert(row.clone());
            }
            _ => {}
        }
    }
    let mut coverage = Coverage::of(&runs.values().collect::<Vec<_>>());
    coverage.planned = planned.map(|_| runs.len());
    let outside: BTreeSet<&str> = found.iter().map(|row| row.run_id.as_str()).collect();
    coverage.outside_plan = outside.iter().filter(|id| !runs.contains_key(**id)).count();
    (runs, coverage)
}

impl Report {
    /// Every cell of every panel.
    fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        let cells = self.panels.iter().flat_map(Panel::cells);
        cells.map(|(_, _, cell)| cell)
    }

    /// The whole report as text, with a newline at its end. Only `Text` knows colour.
    pub fn render(&self, format: Format, orient: Orient, colour: bool) -> String {
        match format {
            Format::Text => text::render(self, orient, colour),
            Format::Markdown => markdown::render(self, orient),
            Format::Csv => export::csv(self),
            Format::Json => export::json(self),
        }
    }
}

impl Filter {
    fn passes(&self, row: &Row) -> bool {
        let protocol = |p: &Protocol| p.as_str() == row.protocol;
        (self.mixers.is_empty() || self.mixers.contains(&row.mixer))
            && (self.seq_lens.is_empty() || self.seq_lens.contains(&row.seq_len))
            && (self.protocols.is_empty() || self.protocols.iter().any(protocol))
            && (self.datasets.is_empty() || self.datasets.iter().any(|d| d.name() == row.dataset))
    }

    fn nothing_left(&self, rows: &[&Row]) -> Error {
        let mixers: BTreeSet<&str> = rows.iter().map(|row| row.mixer.as_str()).collect();
        let seq_lens: BTreeSet<usize> = rows.iter().map(|row| row.seq_len).collect();
        let protocols: BTreeSet<&str> = rows.iter().map(|row| row.protocol.as_str()).collect();
        Error::usage(format!(
            "no MQAR result passes the filter; there are results for --mixer {}, --seq-len {}, \
             --protocol {}",
            listed(mixers),
            listed(seq_lens),
            listed(protocols)
        ))
    }
}

fn listed<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|v| v.to_string()).collect();
    values.join(",")
}
