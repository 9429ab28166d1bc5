//! From groups of runs to grids: one way for each way of drawing, and what tables of models have in common.

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
use super::presets::{listed, said, Difference, Nearest, PresetsOf};
use super::score::{distinct_rates, Score, Status};
use super::{Asked, Figure, Group, RateChoice};
use crate::store::{Field, Metric, Record, SOURCE_DIGEST};
use serde_json::Value;
use std::collections::BTreeSet;

/// What is drawn, and of what.
pub(super) struct Selection<'a> {
    pub figure: &'static Figure,
    /// The metric that was asked for, or the figure's first.
    pub metric: &'static Metric,
    pub asked: &'a Asked,
    pub presets: PresetsOf<'a>,
    pub groups: Vec<Group<'a>>,
}

impl Selection<'_> {
    /// The files of `record`, as what tells it from other runs of its dataset, where these are of other files.
    fn other_files(&self, record: &Record) -> Option<Difference> {
        let dataset =
            |run: &Record| ["task", "dataset", "contour_length"].map(|name| run.get(name).clone());
        let files =
            |run: &Record| Some(run.get(SOURCE_DIGEST).clone()).filter(|f| *f != Field::Absent);
        let (wanted, own) = (dataset(record), files(record)?);
        let mut others = self.groups.iter().map(|group| group.record);
        let differ = others.any(|other| {
            dataset(other) == wanted && files(other).is_some_and(|others| others != own)
        });
        differ.then(|| Difference {
            name: SOURCE_DIGEST,
            value: said(&own),
            preset: String::new(),
        })
    }
}

impl tasks::Recorded for Group<'_> {
    fn record(&self) -> &Record {
        self.record
    }
}

/// Grids, and what is said around them.
pub(super) struct Selected {
    pub heading: String,
    pub facts: Facts,
    pub grids: Vec<Grid>,
    /// What the paper prints beside them.
    pub printed: Vec<PrintedNumber>,
    /// Notes in front of what the marks mean.
    pub before: Vec<String>,
    /// Notes behind it.
    pub after: Vec<String>,
    /// Results whose marks and rates are spoken of.
    pub results: Vec<Status>,
}

/// One model in one setting, in a table of models.
struct Place<'a> {
    record: &'a Record,
    runs: &'a [&'a Record],
    /// Of the columns that have runs of their own.
    column: usize,
    /// Whether the paper's numbers may stand in its table.
    beside: bool,
    /// The preset that it differs least from; empty for a mixer that this version does not know.
    preset: &'static str,
    preset_rate: Option<f64>,
    /// What puts it into another table.
    of_table: Vec<Difference>,
    /// What puts it on another line.
    differences: Vec<Difference>,
    /// Whether the examples are of our own making where the paper's were released files.
    generated: bool,
    /// What learning rates are chosen by.
    by: &'static Metric,
    /// How many learning rates there are.
    rates: usize,
    /// What they are chosen on.
    select: RateChoice,
}

impl<'a> Place<'a> {
    /// `group` beside the nearest of the `known` presets; `of_table` says which differences put it into another
    /// table, as other files do.
    fn of(
        of: &Selection,
        group: &'a Group,
        known: Vec<(&'static str, Record)>,
        of_table: impl Fn(&Difference) -> bool,
        by: &'static Metric,
    ) -> Self {
        let nearest = Nearest::of(group.record, known);
        let (mut of_table, differences): (Vec<Difference>, _) =
            nearest.differences.into_iter().partition(of_table);
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

/// `places` in the order of lines: by how much and in what they differ from their presets.
fn in_order(mut places: Vec<Place>) -> Vec<Place> {
    places.sort_by_cached_key(|p| (p.differences.len(), listed(&p.differences), p.generated));
    places
}

/// One setting of a model.
struct ModelLine<'a> {
    mixer: &'a str,
    /// By column.
    places: Vec<Option<&'a Place<'a>>>,
}

/// The lines of a table: the models that the paper prints, and of others those that there are runs of, by name. A
/// model has a line for its preset's settings, and one for every further setting of a column.
fn model_lines<'a>(
    of: &Selection,
    printed: &[&'static str],
    places: &[&'a Place<'a>],
    columns: &[usize],
) -> Vec<ModelLine<'a>> {
    let asked = printed.iter().filter(|name| of.asked.filter.names(name));
    let run: BTreeSet<&str> = places.iter().map(|place| place.text("mixer")).collect();
    let others = run.into_iter().filter(|name| !printed.contains(name));
    let mut lines = Vec::new();
    for mixer in asked.copied().chain(others) {
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

/// A warning for what the runs of a table should agree in and do not.
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

/// What a cell shows of `metric`, for programs.
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

/// The mean of `name` and its deviation, for programs.
fn mean_and_std(name: &str, score: Option<&Score>) -> [(String, Value); 2] {
    [
        fact(name, score.map(|score| score.mean)),
        fact(&format!("{name}_std"), score.and_then(|score| score.std)),
    ]
}
