//! Turns groups of runs into grids, with one function per kind of drawing, and holds what tables of models share.

mod accuracies;
mod axes;
mod chance;
mod naming;
mod outcomes;
mod perplexities;
mod points;
mod tasks;
mod traced;

pub(super) use accuracies::accuracies;
pub(super) use axes::axes;
pub(super) use outcomes::{times, tuning};
pub(super) use perplexities::perplexities;
pub(super) use points::points;
pub use traced::Traced;
pub(super) use traced::{curves, slices};

use super::grid::{fact, Facts, Grid, PrintedNumber};
use super::mixed;
use super::presets::{formatted, listed, Difference, Nearest, PresetsOf};
use super::score::{distinct_rates, Score, Status};
use super::{Figure, Group, RateChoice, ReportOptions};
use crate::store::{Field, Metric, Record, COLUMNS, SOURCE_DIGEST};
use serde_json::Value;
use std::collections::BTreeSet;

/// A figure, the runs that it shows, and the options.
pub(super) struct Selection<'a> {
    pub figure: &'static Figure,
    /// The requested metric, or the figure's first.
    pub metric: &'static Metric,
    pub options: &'a ReportOptions,
    pub presets: PresetsOf<'a>,
    pub groups: Vec<Group<'a>>,
}

impl Selection<'_> {
    /// The files of `record` as a difference, if other runs of its dataset used other files.
    fn other_files(&self, record: &Record) -> Option<Difference> {
        let dataset = |run: &Record| ["task", "dataset", "contour_length"].map(|name| run.get(name).clone());
        let files = |run: &Record| Some(run.get(SOURCE_DIGEST).clone()).filter(|f| *f != Field::Absent);
        let (wanted, own) = (dataset(record), files(record)?);
        let mut others = self.groups.iter().map(|group| group.record);
        let differ = others.any(|other| dataset(other) == wanted && files(other).is_some_and(|others| others != own));
        differ.then(|| Difference { name: SOURCE_DIGEST, value: formatted(&own), preset: String::new() })
    }
}

impl tasks::Recorded for Group<'_> {
    fn record(&self) -> &Record {
        self.record
    }
}

/// Grids with heading and notes.
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
    pub results: Vec<Status>,
}

/// One model in one setting, in a table of models.
struct Place<'a> {
    record: &'a Record,
    runs: &'a [&'a Record],
    /// Index of its column, among columns with separate runs.
    column: usize,
    /// Whether the paper's numbers may be shown in its table.
    beside: bool,
    /// The nearest preset; empty for a mixer that this version does not know.
    preset: &'static str,
    preset_rate: Option<f64>,
    /// Differences that put it into a separate table.
    of_table: Vec<Difference>,
    /// Differences that put it on a separate line.
    differences: Vec<Difference>,
    /// Whether its examples were generated, where the paper's were released files.
    generated: bool,
    /// Metric by which learning rates are chosen.
    by: &'static Metric,
    /// Number of learning rates.
    rates: usize,
    /// Data on which learning rates are chosen.
    select: RateChoice,
}

impl<'a> Place<'a> {
    /// Returns the place of `group`, compared with the nearest of the `known` presets. Differences that satisfy
    /// `of_table` put it into a separate table, and so do other files.
    fn of(
        of: &Selection,
        group: &'a Group,
        known: Vec<(&'static str, Record)>,
        of_table: impl Fn(&Difference) -> bool,
        by: &'static Metric,
    ) -> Self {
        let nearest = Nearest::of(group.record, known);
        let (mut of_table, differences): (Vec<Difference>, _) = nearest.differences.into_iter().partition(of_table);
        of_table.extend(of.other_files(group.record));
        Self {
            record: group.record,
            runs: &group.runs,
            column: 0,
            beside: true,
            preset: nearest.preset,
            preset_rate: nearest.lr,
            of_table,
            differences,
            generated: false,
            by,
            rates: distinct_rates(group.runs.iter().copied()).len(),
            select: RateChoice::Best,
        }
    }

    fn text(&self, name: &str) -> &'a str {
        self.record.text(name)
    }
}

/// Sorts `places` in the order of lines: by number and text of their differences from the presets.
fn in_order(mut places: Vec<Place>) -> Vec<Place> {
    places.sort_by_cached_key(|p| (p.differences.len(), listed(&p.differences), p.generated));
    places
}

/// One setting of a model.
struct ModelLine<'a> {
    mixer: &'a str,
    /// Places by column.
    places: Vec<Option<&'a Place<'a>>>,
}

/// The lines of a table: the models that the paper lists, then other models with runs, by name. A model has one line
/// for its preset's settings and one for every further setting of a column.
fn model_lines<'a>(
    of: &Selection,
    printed: &[&'static str],
    places: &[&'a Place<'a>],
    columns: &[usize],
) -> Vec<ModelLine<'a>> {
    let listed = printed.iter().filter(|name| of.options.filter.names(name));
    let run: BTreeSet<&str> = places.iter().map(|place| place.text("mixer")).collect();
    let others = run.into_iter().filter(|name| !printed.contains(name));
    let mut lines = Vec::new();
    for mixer in listed.copied().chain(others) {
        let of_column = |column: &usize| {
            let column = *column;
            let places = places.iter().copied();
            places.filter(move |p| p.text("mixer") == mixer && p.column == column)
        };
        let mut next: Vec<_> = columns.iter().map(of_column).collect();
        let mut first = places[0].beside;
        loop {
            let places: Vec<Option<&Place>> = next.iter_mut().map(Iterator::next).collect();
            if places.iter().all(Option::is_none) && !first {
                break;
            }
            lines.push(ModelLine { mixer, places });
            first = false;
        }
    }
    lines
}

/// Warnings about settings in which the runs of a table should agree and do not.
fn mixed_in(lines: &[ModelLine]) -> Vec<String> {
    let places = || lines.iter().flat_map(|line| line.places.iter().flatten());
    let runs = places().flat_map(|place| place.runs.iter().copied());
    let mut warnings = mixed::warnings(runs);
    warnings.extend(mixed::sizes(places().map(|place| &place.differences[..])));
    warnings
}

fn metric(name: &str) -> &'static Metric {
    Metric::find(name).expect("a name of METRICS")
}

/// The number of a table, for programs.
fn number(figure: &Figure) -> (String, Value) {
    let number = figure.number.parse::<u64>();
    fact("table", number.map_or(Value::Null, Value::from))
}

/// Facts on a cell of `metric`.
fn numbers(metric: &Metric, status: Status) -> [(String, Value); 6] {
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

/// The values of `record` at `places`, by the names of their columns, for programs.
fn facts_at(record: &Record, places: &[usize]) -> Facts {
    places.iter().map(|i| fact(COLUMNS[*i].name, record.at(*i).json())).collect()
}

/// Facts on the mean and the deviation of `name`.
fn mean_and_std(name: &str, score: Option<&Score>) -> [(String, Value); 2] {
    [fact(name, score.map(|score| score.mean)), fact(&format!("{name}_std"), score.and_then(|score| score.std))]
}
