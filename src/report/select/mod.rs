//! Turns groups of runs into grids, with one function per kind of drawing.

mod axes;
mod chance;
mod frontier;
mod models;
mod outcomes;
mod panel;
mod points;
mod skills;
mod traced;

pub(super) use axes::axes;
pub(super) use frontier::frontier;
pub(super) use models::models;
pub(super) use outcomes::{times, tuning};
pub(super) use points::points;
pub(super) use skills::skills;
pub use traced::Traced;
pub(super) use traced::{curves, slices};

use super::grid::{fact, rates_won, Facts, Grid, PrintedNumber};
use super::presets::{formatted, PresetDifference, PresetsOf};
use super::score::GroupStatus;
use super::{Figure, FigureSeries, ReportOptions, RunGroup, SCHEMA};
use crate::store::{places, Column, Field, Metric, Record, Role, COLUMNS};
use panel::tasks;
use serde_json::Value;

/// A figure, the runs that it shows, and the options.
pub(super) struct Selection<'a> {
    pub figure: &'static Figure,
    /// The requested metric, or the figure's first.
    pub metric: &'static Metric,
    pub options: &'a ReportOptions,
    pub presets: PresetsOf<'a>,
    pub groups: Vec<RunGroup<'a>>,
}

/// Grids with heading and notes.
#[derive(Default)]
pub(super) struct Selected {
    pub heading: String,
    pub facts: Facts,
    pub grids: Vec<Grid>,
    /// Numbers that the paper prints, each with ours.
    pub printed: Vec<PrintedNumber>,
    /// Notes before the legend of the marks.
    pub before: Vec<String>,
    /// Notes after the legend.
    pub after: Vec<String>,
    /// Results for the legend and for the note on rates.
    pub results: Vec<GroupStatus>,
}

impl Selection<'_> {
    /// Result of `group` by `metric`, by which its learning rate is chosen.
    fn status(&self, group: &RunGroup, metric: &Metric) -> GroupStatus {
        GroupStatus::of(&group.runs, metric, metric, self.options.select)
    }

    /// The files of `record` as a difference, if other runs of its dataset used other files.
    fn other_files(&self, record: &Record) -> Option<PresetDifference> {
        let dataset = |run: &Record| {
            [Column::TASK, Column::DATASET, Column::CONTOUR_LENGTH].map(|column| run.get(column).clone())
        };
        let files = |run: &Record| Some(run.get(Column::SOURCE_DIGEST).clone()).filter(|f| *f != Field::Absent);
        let (wanted, own) = (dataset(record), files(record)?);
        let mut others = self.groups.iter().map(|group| group.record);
        let differ = others.any(|other| dataset(other) == wanted && files(other).is_some_and(|others| others != own));
        differ.then(|| PresetDifference {
            name: Column::SOURCE_DIGEST.name(),
            value: formatted(&own),
            preset: String::new(),
        })
    }

    /// Note on the runs that a figure of the paper selects; `None` if it selects all runs of its tasks.
    fn chosen(&self) -> Option<String> {
        let runs = self.figure.runs;
        let settings: Vec<String> =
            runs.iter().map(|(column, values)| format!("{} {}", column.name(), values.join(", "))).collect();
        let all = matches!(runs, [] | [(Column::TASK, _)]);
        (!all).then(|| format!("runs of {}", settings.join("; ")))
    }
}

/// Selection of `grids`, with heading and notes for grids of one metric.
fn selected(of: &Selection, grids: Vec<Grid>) -> Selected {
    let figure = of.figure;
    let [names, tasks] = tasks(&of.groups);
    let about = match figure.series {
        FigureSeries::Grid => names,
        _ => format!("{}, {}: {names}", figure.title(), figure.about),
    };
    let number = (figure.series == FigureSeries::Figure).then(|| fact("figure", figure.number));
    let facts = [fact("task", tasks), fact("metric", of.metric.name)];
    Selected {
        heading: format!("{about}: {}, at the best rate", in_percent(of.metric)),
        facts: [fact("schema", SCHEMA)].into_iter().chain(number).chain(facts).collect(),
        results: grids.iter().flat_map(Grid::results).collect(),
        grids,
        before: of.chosen().into_iter().collect(),
        ..Selected::default()
    }
}

/// [`selected`] for numbers that are not those of one best rate in each cell.
fn selected_of_all_rates(of: &Selection, grids: Vec<Grid>) -> Selected {
    Selected {
        results: Vec::new(),
        heading: format!("{}: {}", of.figure.title(), of.figure.about),
        ..selected(of, grids)
    }
}

/// Note on the best rates and on the averaging of cells; `None` without a number.
fn caption(grid: &Grid) -> Option<String> {
    let marked =
        if grid.has_cells_of_fewer_seeds() { ", in some cells over as many as are in parentheses; " } else { "; " };
    let seeds = grid.about_seeds().map_or(String::new(), |seeds| seeds + marked);
    rates_won(grid.results()).map(|rates| seeds + &rates)
}

fn metric(name: &str) -> &'static Metric {
    Metric::find(name).expect("a name of METRICS")
}

/// Meaning of `metric`, with the unit in which accuracies are shown.
fn in_percent(metric: &Metric) -> String {
    metric.meaning.replacen("accuracy", "accuracy (%)", 1)
}

/// Facts on a cell of `metric`.
fn numbers(metric: &Metric, status: GroupStatus) -> [(String, Value); 6] {
    let score = status.score();
    [
        fact("metric", metric.name),
        fact("mean", score.map(|s| s.mean)),
        fact("std", score.and_then(|s| s.std)),
        fact("seeds", score.map(|s| s.seeds)),
        fact("lr", score.map(|s| s.lr)),
        fact("status", status.name()),
    ]
}

/// Indices of the columns of all settings but the learning rate and the seed.
fn settings() -> Vec<usize> {
    places(&[Role::Setting, Role::Cell])
}

/// The values of `record` at `places`, by the names of their columns, for programs.
fn facts_at(record: &Record, places: &[usize]) -> Facts {
    places.iter().map(|i| fact(COLUMNS[*i].name, record.at(*i).json())).collect()
}
