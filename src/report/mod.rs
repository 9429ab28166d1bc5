//! Turns the rows of a summary into grids: a figure or table of the paper, or the grid of every other task.
//!
//! One pipeline makes every report; only its last step makes text:
//!
//! 1. select: [`report`] takes the runs that a row of [`FIGURES`], the filter and the plan name;
//! 2. group: runs that differ in learning rate and seed only are one group; runs that differ in any other setting are
//!    never in one cell (`grouped`);
//! 3. score: a group becomes the mean over its seeds at the best learning rate (`score`);
//! 4. pivot: cells become a [`Grid`] with typed axes, lines and numbers, and records for programs (`select`);
//! 5. render: a format of [`FORMATS`] writes it, or [`picture`] draws it, without access to the runs.

mod check;
mod claims;
mod compare;
mod coverage;
mod figures;
mod grid;
mod mixed;
mod own_data;
mod panels;
mod picture;
mod presets;
mod render;
mod score;
mod select;
mod solved;
mod stats;
#[cfg(test)]
mod tests;
mod tuning;

pub use claims::{Claim, Verdict, CLAIMS};
pub use compare::{compare, Change, Comparison};
pub use coverage::Coverage;
pub use figures::{Figure, FigureSeries, FIGURES};
pub use grid::{Baseline, Cell, Content, Facts, Grid, GridLine, PanelForm, PrintedNumber, Report, Style, Tick};
pub use presets::{PresetDifference, PresetsOf};
pub use render::{index, Format, TextTarget, FORMATS};
pub use score::{Edge, GroupStatus, RateChoice, Score};
pub use select::Traced;

use crate::config::{Protocol, RunConfig};
use crate::error::{refuse, Error, Result};
use crate::store::{places, Column, EpochRow, Field, Record, Role, RunStatus, SliceRow};
use crate::tasks::TASKS;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use figures::FigureForm;
use own_data::OwnData;
use select::{Selected, Selection};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Version of the JSON and CSV forms. New fields keep it; renaming a field or changing its meaning raises it.
pub const SCHEMA: u32 = 1;

/// Options of a report.
#[derive(Clone, Debug, Default, Args)]
pub struct ReportOptions {
    /// Orientation of grids [default: brief, and paper for figure 7].
    #[arg(long, value_enum, conflicts_with = "table", hide_short_help = true)]
    pub orient: Option<Orient>,
    /// Draw one line per mixer over d or n.
    ///
    /// Replaces the grid over both.
    #[arg(long, value_enum, value_name = "AXIS", conflicts_with_all = ["table", "figure", "orient"])]
    pub over: Option<Over>,
    /// Metric to report.
    ///
    /// The default is `accuracy`. For tables 2 and 3 it is `selected_accuracy`, or the best accuracy if there is no
    /// validation split; Markdown, CSV and JSON have all three. Table 1 shows all perplexities, and its metric selects
    /// the learning rate; the default is `train_ppl`.
    #[arg(long, value_parser = figures::metrics(), hide_possible_values = true)]
    pub metric: Option<String>,
    /// Numbers that select learning rates [default: best].
    ///
    /// Runs of synthetic tasks with validation examples (--val-examples) use validation accuracy with either value. For
    /// tasks without a validation split, `held-out` cross-fits: each half of the seeds is reported at the rate that is
    /// best for the other half.
    #[arg(long, value_enum, value_name = "HOW", default_value = "best", hide_default_value = true)]
    pub select: RateChoice,
    /// Names of the claims to judge; empty for all.
    #[arg(skip)]
    pub claims: Vec<String>,
    /// Filter of the runs.
    #[command(flatten)]
    pub filter: Filter,
    /// Ids of runs whose lines are marked in the scores of MAD.
    #[arg(skip)]
    pub marked: BTreeSet<String>,
    /// Whether cells may show several metrics side by side.
    #[arg(skip)]
    pub side_by_side: bool,
}

impl ReportOptions {
    /// Whether the claim `name` is to be judged.
    fn is_about(&self, name: &str) -> bool {
        self.claims.is_empty() || self.claims.iter().any(|claim| claim == name)
    }
}

/// Orientation of d and n in a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Orient {
    /// Rows n, columns d.
    Brief,
    /// Rows d, columns n, as in the paper's figure 7.
    Paper,
}

/// Axis over which mixers are drawn as lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// The embedding width.
    D,
    /// The state expansion.
    N,
}

impl Over {
    /// Name of the axis's column.
    fn column(self) -> &'static str {
        match self {
            Self::D => "d",
            Self::N => "n",
        }
    }
}

/// Filter of the reported runs. An empty list lets all runs pass.
#[derive(Clone, Debug, Default, Args)]
pub struct Filter {
    /// Report only these tasks.
    #[arg(long = "task", value_delimiter = ',', value_name = "NAME", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(TASKS.iter().map(|task| task.name)))]
    pub tasks: Vec<String>,
    /// Report only these mixers.
    #[arg(long = "mixer", value_delimiter = ',', value_name = "NAME")]
    pub mixers: Vec<String>,
    /// Report only these sequence lengths.
    #[arg(long = "seq-len", value_delimiter = ',', value_name = "L", conflicts_with = "table")]
    pub seq_lens: Vec<usize>,
    /// Report only these datasets of table 3.
    #[arg(long = "dataset", value_delimiter = ',', value_name = "NAME",
          value_parser = PossibleValuesParser::new(figures::datasets()))]
    pub datasets: Vec<String>,
    /// Report only these protocols.
    #[arg(long = "protocol", value_delimiter = ',', value_enum, value_name = "PROTOCOL")]
    pub protocols: Vec<Protocol>,
}

/// Runs that differ in learning rate and seed only.
struct RunGroup<'a> {
    /// Any one of the runs, for their common settings.
    record: &'a Record,
    runs: Vec<&'a Record>,
}

impl AsRef<Record> for RunGroup<'_> {
    fn as_ref(&self) -> &Record {
        self.record
    }
}

/// The values of some columns.
type Key<'a> = Vec<&'a Field>;

/// The values of `run` at `places`.
fn key<'a>(run: &'a Record, places: &[usize]) -> Key<'a> {
    places.iter().map(|place| run.at(*place)).collect()
}

/// Groups `runs` by their values at `places`, in the order of their first runs.
fn grouped<'a, T: AsRef<Record>>(
    runs: impl IntoIterator<Item = &'a T>,
    places: &[usize],
) -> Vec<(Key<'a>, Vec<&'a T>)> {
    let mut known: HashMap<Key, usize> = HashMap::new();
    let mut groups: Vec<(Key, Vec<&T>)> = Vec::new();
    for run in runs {
        let key = key(run.as_ref(), places);
        let index = known.get(&key).copied().unwrap_or(groups.len());
        if index == groups.len() {
            known.insert(key.clone(), index);
            groups.push((key, Vec::new()));
        }
        groups[index].1.push(run);
    }
    groups
}

/// Reports `figure` from `rows`. If `planned` is given, the report contains exactly the planned runs, done or not.
///
/// # Errors
///
/// No row belongs to the figure, no run passes the filter, or the figure does not have the requested metric.
pub fn report(
    figure: &'static Figure,
    rows: &[Record],
    planned: Option<&[RunConfig]>,
    presets: PresetsOf,
    options: &ReportOptions,
) -> Result<Report> {
    let metric = figure.metric(options.metric.as_deref())?;
    let mut planned: Option<Vec<Record>> = planned.map(|runs| runs.iter().map(Record::planned).collect());
    let own_data = OwnData::of(rows.iter().chain(planned.iter().flatten()));
    let planned_runs = planned.iter_mut().flatten();
    planned_runs.for_each(|run| own_data.mark(run));
    let rows = &own_data.marked(rows);
    let rows_of: Vec<&Record> = rows.iter().filter(|run| figure.holds(run)).collect();
    if rows_of.is_empty() && planned.is_none() {
        return Err(nothing_yet(figure, rows));
    }
    let keep = |run: &&Record| figure.holds(run) && options.filter.passes(run);
    let found: Vec<&Record> = rows_of.iter().copied().filter(keep).collect();
    let planned = planned.as_ref().map(|runs| runs.iter().filter(keep).collect());
    let planned = planned.map(|planned| with_files(planned, &found));
    let (runs, coverage) = joined(found, planned);
    if runs.is_empty() {
        return Err(nothing_left(figure, &rows_of));
    }
    let selection = Selection { figure, metric, options, presets, groups: groups(&runs) };
    let selected = match &figure.drawn {
        FigureForm::Axes { lines, columns } => select::axes(&selection, lines, columns)?,
        FigureForm::Points(across) => select::points(&selection, across),
        FigureForm::Times => select::times(&selection),
        FigureForm::Tuning => select::tuning(&selection),
        FigureForm::Frontier => select::frontier(&selection),
        FigureForm::Models(table) => select::models(&selection, table),
        FigureForm::Skills(skills) => select::skills(&selection, skills),
    };
    let mut report = finished(figure, selected, coverage);
    if figure.series == FigureSeries::Grid {
        let elsewhere = tables_of(rows).map(|(table, held)| {
            let (runs, title) = (coverage::counted(held, "run"), table.title());
            format!("also here: {runs} of {title}, {}: `dsf report{}`", table.about, table.flag())
        });
        report.notes.extend(elsewhere);
    }
    let count = |holds: fn(&Record) -> bool| match runs.iter().filter(|run| holds(run)).count() {
        0 => None,
        runs => Some(coverage::counted(runs, "run")),
    };
    report.notes.extend(match options.select {
        RateChoice::HeldOut => held_out_note(&runs),
        RateChoice::Best => count(score::has_validation_set).map(|runs| {
            format!("learning rates of {runs} are chosen by the accuracy on validation examples, not by test accuracy")
        }),
    });
    report.notes.extend(count(Record::is_of_unknown_files).map(|runs| {
        format!(
            "note: {runs} on files without a digest of the data; such runs may have used different files, so each has a cell of \
             its own"
        )
    }));
    Ok(report)
}

/// `planned`, where runs planned while their files were absent are replaced by the runs in `found` that have the same
/// settings on any files.
fn with_files<'a>(planned: Vec<&'a Record>, found: &[&'a Record]) -> Vec<&'a Record> {
    let mut settings = places(&[Role::Setting, Role::Cell, Role::Rate, Role::Seed]);
    settings.retain(|place| *place != Column::SOURCE_DIGEST.place());
    let on_files = found.iter().copied().filter(|run| *run.get(Column::SOURCE_DIGEST) != Field::Absent);
    let mut on_files: HashMap<Key, Vec<&Record>> = grouped(on_files, &settings).into_iter().collect();
    let same = planned.into_iter().flat_map(|run| match *run.get(Column::SOURCE_DIGEST) {
        Field::Absent => on_files.remove(&key(run, &settings)).unwrap_or(vec![run]),
        _ => vec![run],
    });
    same.collect()
}

/// Note that counts the `runs` without a validation metric, whose learning rates are cross-fitted over seeds instead.
fn held_out_note(runs: &[&Record]) -> Option<String> {
    let ended = runs.iter().filter(|run| run.status() == Some(RunStatus::Done));
    let lacking = ended.filter(|run| !score::has_validation(run));
    let tasks = coverage::tally(lacking.map(|run| run.text(Column::TASK)));
    let each: Vec<String> =
        tasks.iter().map(|(task, count)| format!("{} of {task}", coverage::counted(*count, "run"))).collect();
    (!each.is_empty()).then(|| {
        format!(
            "held out: {} have no validation metric; their learning rates are chosen on one half of the seeds and reported \
             on the other, and vice versa (cross-fitting), which needs two seeds if there are several rates",
            each.join(", ")
        )
    })
}

/// Judges the claims of the paper that `options` selects by `rows`.
pub fn claims(rows: &[Record], presets: PresetsOf, options: &ReportOptions) -> Result<Report> {
    claims::claims(&own_data::marked(rows), presets, options)
}

/// Whether `figure` shows any of `rows` that pass `filter`.
pub fn shows(figure: &Figure, rows: &[Record], filter: &Filter) -> bool {
    let mut rows = rows.iter();
    rows.any(|run| figure.holds(run) && filter.passes(run))
}

/// Training curves of the `runs` that pass the filter.
///
/// # Errors
///
/// No run passes the filter.
pub fn curves(runs: &[Traced<EpochRow>], options: &ReportOptions) -> Result<Report> {
    let what = "metrics of epochs: every training writes them to runs/ID/metrics.csv";
    traced(runs, options, what, select::curves)
}

/// Property by which the accuracy on MQAR is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The pair that a question asks for, from 0 in the order in which they are shown.
    Pair,
    /// The tokens from the value of a pair to the question for it.
    Distance,
}

impl By {
    /// Name of the property in `slices.csv`, and its meaning.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Pair => ["pair", "the pair asked for, in the order shown"],
            Self::Distance => ["distance", "tokens from the value to the question"],
        }
    }
}

/// Accuracies, split by `by`, of the `runs` that pass the filter.
///
/// # Errors
///
/// No run passes the filter.
pub fn slices(runs: &[Traced<SliceRow>], by: By, options: &ReportOptions) -> Result<Report> {
    let what = "accuracies by pair and distance: every finished run of `dsf mqar` writes them to runs/ID/slices.csv";
    traced(runs, options, what, |passing| select::slices(passing, by))
}

/// Report by `select` of the `runs` that pass the filter, marked by [`OwnData`].
///
/// # Errors
///
/// No run passes; the message names what the runs would need to have (`what`).
fn traced<R: Clone>(
    runs: &[Traced<R>],
    options: &ReportOptions,
    what: &str,
    select: impl Fn(&[Traced<R>]) -> Selected,
) -> Result<Report> {
    let passing = runs.iter().filter(|traced| options.filter.passes(&traced.run));
    let own_data = OwnData::of(passing.clone().map(|traced| &traced.run));
    let mut passing: Vec<Traced<R>> = passing.cloned().collect();
    passing.iter_mut().for_each(|traced| own_data.mark(&mut traced.run));
    match (passing.is_empty(), runs.len()) {
        (true, 0) => refuse!("no run here has {what}"),
        (true, runs) => refuse!("none of the {runs} runs here passes the filter"),
        (false, _) => {}
    }
    let records: Vec<&Record> = passing.iter().map(|traced| &traced.run).collect();
    Ok(finished(Figure::find(FigureSeries::Grid, "")?, select(&passing), Coverage::of(&records)))
}

fn finished(figure: &Figure, selected: Selected, coverage: Coverage) -> Report {
    let mut notes = selected.before;
    notes.extend(grid::legend(&selected.results));
    notes.extend(selected.after);
    notes.extend(coverage.notes(&selected.results));
    Report {
        heading: selected.heading,
        facts: selected.facts,
        list: match figure.series {
            FigureSeries::Table => "tables",
            FigureSeries::Grid | FigureSeries::Figure => "panels",
        },
        grids: selected.grids,
        printed: selected.printed,
        notes,
        coverage,
    }
}

/// One record per run id. Of two results for one run, a finished one replaces a failure. With `planned`, exactly the
/// planned runs.
fn joined<'a>(found: Vec<&'a Record>, planned: Option<Vec<&'a Record>>) -> (Vec<&'a Record>, Coverage) {
    let plan = planned.iter().flatten();
    let mut runs: BTreeMap<&str, &Record> = plan.map(|run| (run.run_id(), *run)).collect();
    let mut outside = BTreeSet::new();
    for run in found {
        match runs.entry(run.run_id()) {
            Entry::Occupied(mut known) if known.get().status() != Some(RunStatus::Done) => {
                known.insert(run);
            }
            Entry::Vacant(free) if planned.is_none() => {
                free.insert(run);
            }
            Entry::Vacant(_) => {
                outside.insert(run.run_id());
            }
            Entry::Occupied(_) => {}
        }
    }
    let runs: Vec<&Record> = runs.into_values().collect();
    let mut coverage = Coverage::of(&runs);
    coverage.planned = planned.map(|_| runs.len());
    coverage.outside_plan = outside.len();
    (runs, coverage)
}

/// Groups `runs` that differ in learning rate and seed only, in the order of their first runs.
fn groups<'a>(runs: &[&'a Record]) -> Vec<RunGroup<'a>> {
    let groups = grouped(runs.iter().copied(), &places(&[Role::Setting, Role::Cell])).into_iter();
    groups.map(|(_, runs)| RunGroup { record: runs[0], runs }).collect()
}

/// The tables that show every run of a task, each with the number of these runs among `rows`, if there are any.
fn tables_of(rows: &[Record]) -> impl Iterator<Item = (&'static Figure, usize)> + Clone + '_ {
    let counted = FIGURES.iter().map(|figure| (figure, rows.iter().filter(|run| figure.claims(run)).count()));
    counted.filter(|(_, held)| *held > 0)
}

fn nothing_yet(figure: &Figure, rows: &[Record]) -> Error {
    let other = tables_of(rows).max_by_key(|(_, held)| *held).filter(|_| figure.series == FigureSeries::Grid);
    Error::usage(match other {
        Some((other, _)) => format!(
            "there are no results for {} here, but some for {}, {}: type `dsf report{}`",
            figure.title(),
            other.title(),
            other.about,
            other.flag()
        ),
        None => format!(
            "there are no results for {} here yet; {}, and --out names the folder that holds them{}",
            figure.title(),
            figure.remedy,
            of_other_sizes(figure, rows)
        ),
    })
}

/// Hint at how to draw runs of a figure's mixers at sizes other than the figure's; empty without such runs.
fn of_other_sizes(figure: &Figure, rows: &[Record]) -> String {
    let FigureForm::Axes { columns, .. } = figure.drawn else {
        return String::new();
    };
    let kind = |run: &&Record| {
        let mut wanted = figure.runs.iter();
        wanted.all(|(column, values)| {
            ![Column::TASK, Column::MIXER].contains(column) || values.contains(&run.text(*column))
        })
    };
    match rows.iter().filter(kind).count() {
        0 => String::new(),
        held => format!(
            "; {} of its mixers here at other sizes: `dsf report --over {columns}` draws them",
            coverage::counted(held, "run")
        ),
    }
}

fn nothing_left(figure: &Figure, rows: &[&Record]) -> Error {
    if rows.is_empty() {
        let tasks = figure.runs.iter().find(|(column, _)| *column == Column::TASK);
        let tasks = tasks.map_or(String::new(), |(_, tasks)| format!(": its task is {}", tasks.join(" or ")));
        return Error::usage(format!("the plan and the filter leave no run for {}{tasks}", figure.title()));
    }
    let distinct = |column: Column| {
        let values: BTreeSet<&Field> = rows.iter().map(|run| run.get(column)).collect();
        let values: Vec<String> =
            values.iter().filter(|value| ***value != Field::Absent).map(ToString::to_string).collect();
        values.join(",")
    };
    let of = match distinct(Column::DATASET) {
        none if none.is_empty() => String::new(),
        datasets => format!(" of {datasets},"),
    };
    let lengths = match figure.series {
        FigureSeries::Table => String::new(),
        _ => format!(", --seq-len {}", distinct(Column::SEQ_LEN)),
    };
    Error::usage(format!(
        "no result for {} passes the filter or the plan; there are results{of} for --task {}, \
         --mixer {}{lengths}, --protocol {}",
        figure.title(),
        distinct(Column::TASK),
        distinct(Column::MIXER),
        distinct(Column::PROTOCOL)
    ))
}

impl Filter {
    /// Whether `run` passes.
    pub fn passes(&self, run: &Record) -> bool {
        let is = |column: Column, wanted: &str| run.text(column) == wanted;
        let any = |list: &[String], column| list.is_empty() || list.iter().any(|w| is(column, w));
        let protocol = |p: &Protocol| is(Column::PROTOCOL, p.as_str());
        any(&self.tasks, Column::TASK)
            && any(&self.mixers, Column::MIXER)
            && any(&self.datasets, Column::DATASET)
            && (self.seq_lens.is_empty() || self.seq_lens.contains(&run.count(Column::SEQ_LEN)))
            && (self.protocols.is_empty() || self.protocols.iter().any(protocol))
    }

    /// Whether the filter includes `mixer`.
    fn names(&self, mixer: &str) -> bool {
        self.mixers.is_empty() || self.mixers.iter().any(|name| name == mixer)
    }
}
