//! `dsf report`: results as grids of accuracies, as figures and tables of the paper, or as training curves.

mod all;

use super::results::{self, ReportOutput};
use super::{exit, initial, print, Global};
use crate::config::RunConfig;
use crate::error::{refuse, Result};
use crate::recipes::{presets_of, quoted, Flags};
use crate::report::{self, By, Figure, FigureSeries, Format, Report, ReportOptions, Traced, FIGURES};
use crate::store::{is_summary, parse_summary, Column, ColumnSpec, Record, SliceRow, Store, COLUMNS, SCHEMA};
use crate::sweep::estimate::counted;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::Args;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Published runs on the small tasks of MAD, and their file.
const PUBLISHED_MAD: [(&str, &str); 2] = [
    (include_str!("../../../results/mad-small.csv"), "results/mad-small.csv"),
    (include_str!("../../../results/mad-small-seed124.csv"), "results/mad-small-seed124.csv"),
];

/// Settings that are equal in all published runs of a skill of MAD.
const MAD_SIZES: [Column; 8] = [
    Column::DATASET,
    Column::SEQ_LEN,
    Column::VOCAB_SIZE,
    Column::NOISE,
    Column::TRAIN_EXAMPLES,
    Column::EPOCHS_MAX,
    Column::D,
    Column::LAYERS,
];

#[derive(Args)]
pub(super) struct ReportArguments {
    /// Results folders or summary CSV files.
    ///
    /// From a folder, dsf reads the runs in `runs` and all summaries `*.csv` except those that dsf made from these runs
    /// [default: the folder of --out; with --all the folder of DSF_OUT, or `results`].
    results: Vec<PathBuf>,
    /// Table of the paper, beside its numbers.
    ///
    /// Runs on part of the data, with other sizes, or under another protocol or loss are shown in separate tables;
    /// notes list all other differences from the preset.
    #[arg(long, value_name = "N", value_parser = figures(FigureSeries::Table))]
    table: Option<String>,
    /// Figure of the paper, or a related one.
    ///
    /// Shows only the runs of the figure, on its axes.
    #[arg(long, value_name = "N", value_parser = figures(FigureSeries::Figure), conflicts_with = "table")]
    figure: Option<String>,
    /// Scores on MAD, among those of all mixers.
    ///
    /// Same as `--figure mad`, with the runs of results/mad-small.csv and mad-small-seed124.csv among yours: each mixer's
    /// accuracy by skill, and the mixers in the order of their scores, means over two seeds.
    #[arg(long, conflicts_with_all = ["table", "figure", "orient", "over", "all", "curves", "claims", "by"])]
    mad: bool,
    /// Training curves, from the run folders.
    ///
    /// Shows loss and accuracy, or perplexities on text, by epoch.
    #[arg(long, conflicts_with_all = ["table", "figure", "metric", "orient", "over", "experiment", "all"])]
    curves: bool,
    /// Accuracy by `pair` or `distance`.
    ///
    /// Splits the test accuracy on MQAR after the last epoch by the index of the queried pair, or by the number of
    /// tokens between its value and the question. It needs the run folders; runs/ID/slices.csv has every epoch.
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true, conflicts_with_all = ["table", "figure", "metric", "orient", "over", "experiment", "all", "curves", "claims", "check"])]
    by: Option<By>,
    /// Write all figures and tables, and a page, to --out.
    ///
    /// Writes every figure and table that has results, in every format, and a page `index.html` with all of them, to
    /// the folder of --out. Figures without results are listed with the command that produces them.
    #[arg(long, conflicts_with_all = ["table", "figure", "metric", "orient", "over", "format", "to"])]
    all: bool,
    /// Verdicts on the paper's claims.
    ///
    /// Judges each claim at the paper's sizes, and separately at other sizes, with effect, confidence interval and
    /// level. With names, as in --claims=ssd-beats-s6, only these claims are judged, and undecided ones list the
    /// command that trains the missing runs.
    #[arg(long, value_name = "NAME", num_args = 0.., require_equals = true, value_delimiter = ',', value_parser = claim_names(),
          hide_possible_values = true,
          conflicts_with_all = ["table", "figure", "experiment", "metric", "orient", "over", "curves", "all"])]
    claims: Option<Vec<String>>,
    /// Explain the columns of a summary, and exit.
    #[arg(long, hide_short_help = true)]
    columns: bool,
    /// Only the runs of this experiment, done or not.
    ///
    /// FILE is an experiment file or a name of `dsf experiments`; the flag may be given several times.
    #[arg(long, value_name = "FILE")]
    experiment: Vec<PathBuf>,
    /// Exit with code 4 if a number of the paper is missed.
    ///
    /// A number is missed if it differs by more than TOL percentage points, or TOL percent of a perplexity. Numbers
    /// without a run are listed, and are neither met nor missed.
    #[arg(long, value_name = "TOL", hide_short_help = true, conflicts_with_all = ["claims", "curves", "all"], value_parser = tolerance, allow_negative_numbers = true)]
    check: Option<f64>,
    #[command(flatten)]
    form: ReportOutput,
    #[command(flatten)]
    asked: ReportOptions,
}

fn figures(series: FigureSeries) -> PossibleValuesParser {
    let figures = FIGURES.iter().filter(|figure| figure.series == series);
    PossibleValuesParser::new(figures.map(|f| PossibleValue::new(f.number).help(f.about)))
}

fn claim_names() -> PossibleValuesParser {
    PossibleValuesParser::new(report::CLAIMS.iter().map(|claim| claim.name))
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "not a number from 0, such as 1.5".to_owned())
}

pub(super) fn main(arguments: ReportArguments, global: &Global) -> Result<u8> {
    if arguments.columns {
        print::result(&columns(global.json))?;
        return Ok(exit::DONE);
    }
    for name in &arguments.asked.filter.mixers {
        crate::mixers::find(name)?;
    }
    if !arguments.asked.filter.datasets.is_empty() && arguments.table.as_deref() != Some("3") {
        refuse!(flag "--dataset", "names tasks of the Long Range Arena: give it with --table 3");
    }
    if arguments.all {
        return all::main(&arguments, global);
    }
    let format = arguments.form.format(global)?;
    let mut report = arguments.report(format, global)?;
    let before = report.notes.len();
    let held = arguments.check.is_none_or(|tolerance| report.check(tolerance));
    if format.name == "csv" {
        report.notes[before..].iter().for_each(|note| print::message(note));
    }
    arguments.form.write(&report, global)?;
    Ok(if held { exit::DONE } else { exit::CHECK_FAILED })
}

impl ReportArguments {
    fn sources<'a>(&'a self, folder: &'a PathBuf) -> &'a [PathBuf] {
        match self.results.is_empty() {
            true => std::slice::from_ref(folder),
            false => &self.results,
        }
    }

    /// Returns the planned runs, if experiments are given.
    fn planned(&self, global: &Global) -> Result<Option<Vec<RunConfig>>> {
        if self.experiment.is_empty() {
            return Ok(None);
        }
        let plan = initial::plan_of(&self.experiment, Flags::default(), global)?;
        Ok(Some(plan.runs))
    }

    /// Returns the requested report, before rendering.
    fn report(&self, format: &Format, global: &Global) -> Result<Report> {
        let folder = &global.out;
        if let Some(by) = self.by {
            return report::slices(&traced(self.sources(folder), last_slices)?, by, &self.asked);
        }
        if self.curves {
            return report::curves(&traced(self.sources(folder), Store::epochs)?, &self.asked);
        }
        if let Some(names) = &self.claims {
            let asked = ReportOptions { claims: names.clone(), ..self.asked.clone() };
            return report::claims(&rows(self.sources(folder))?, &presets_of, &asked);
        }
        let figure = match (&self.table, &self.figure) {
            _ if self.mad => Figure::find(FigureSeries::Figure, "mad")?,
            (Some(number), _) => Figure::find(FigureSeries::Table, number)?,
            (_, Some(number)) => Figure::find(FigureSeries::Figure, number)?,
            (None, None) => Figure::find(FigureSeries::Grid, "")?,
        };
        if self.check.is_some() && figure.series != FigureSeries::Table {
            refuse!(flag "--check", "compares with numbers that the paper prints, and {} has none: give --table 1, 2 or 3; what figures claim is judged by --claims", figure.title());
        }
        let planned = self.planned(global)?;
        let mut asked = self.asked.clone();
        let rows = match self.mad {
            true => with_published(&self.results, global, &mut asked.marked)?,
            false => rows(self.sources(folder))?,
        };
        asked.side_by_side = format.side_by_side;
        report::report(figure, &rows, planned.as_deref(), &presets_of, &asked)
    }
}

/// Returns the runs of `folders` with the rows that `read` returns for them; runs without rows are omitted.
fn traced<R>(folders: &[PathBuf], read: impl Fn(&Store, &str) -> Result<Vec<R>>) -> Result<Vec<Traced<R>>> {
    let mut traced = Vec::new();
    for folder in folders {
        if folder.is_file() {
            refuse!(path folder, "a summary has the last numbers of each run alone: give the results folder that holds `runs`");
        }
        let store = Store::existing(folder)?;
        for run in results::scan(&store)? {
            match read(&store, run.run_id()) {
                Ok(rows) if rows.is_empty() => {}
                Ok(rows) => keep_longest(&mut traced, Traced { run, rows }),
                Err(e) => print::message(&format!("warning: {e}")),
            }
        }
    }
    Ok(traced)
}

/// Adds a run, of which another folder may hold a copy: the one with more rows is kept.
fn keep_longest<R>(traced: &mut Vec<Traced<R>>, new: Traced<R>) {
    match traced.iter_mut().find(|known| known.run.run_id() == new.run.run_id()) {
        Some(known) if known.rows.len() < new.rows.len() => *known = new,
        Some(_) => {}
        None => traced.push(new),
    }
}

/// Returns the slices of the last epoch of a run.
fn last_slices(store: &Store, run: &str) -> Result<Vec<SliceRow>> {
    let mut slices = store.slices(run)?;
    let last = slices.last().map(|row| row.epoch);
    slices.retain(|row| Some(row.epoch) == last);
    Ok(slices)
}

/// Returns every run of `sources` with one result each.
fn rows(sources: &[PathBuf]) -> Result<Vec<Record>> {
    let rows = read_all(sources)?;
    results::reconcile(&rows)?;
    Ok(rows)
}

/// Reads the runs of `sources`. Among several files, those that are no summaries are left out: a pattern like
/// `results/*.csv` may match tables of `dsf bench`, too.
fn read_all(sources: &[PathBuf]) -> Result<Vec<Record>> {
    let mut rows = Vec::new();
    for source in sources {
        if sources.len() > 1 && source.is_file() && !is_summary(source)? {
            print::message(&format!("warning: {} is no summary of runs, and is left out", source.display()));
            continue;
        }
        rows.extend(results::read(source)?);
    }
    Ok(rows)
}

/// Returns the published runs of MAD, and those of `sources`, or without any of the folder of `--out`, which may be
/// missing. Runs of other sizes are left out; the ids of the others go to `ids`.
fn with_published(sources: &[PathBuf], global: &Global, ids: &mut BTreeSet<String>) -> Result<Vec<Record>> {
    let mut rows = Vec::new();
    for (text, name) in PUBLISHED_MAD {
        rows.extend(parse_summary(text.as_bytes(), Path::new(name))?);
    }
    let mut own = match sources {
        [] if global.out.exists() => results::read(&global.out)?,
        _ => read_all(sources)?,
    };
    // A results folder may hold the published summary, too.
    own.retain(|row| row.text(Column::TASK) == "mad" && !rows.contains(row));
    let all = own.len();
    let same = |a: &Record, b: &Record| MAD_SIZES.iter().all(|column| a.get(*column) == b.get(*column));
    own.retain(|row| rows.iter().any(|published| same(row, published)));
    let mixers: BTreeSet<&str> = own.iter().map(|row| row.text(Column::MIXER)).collect();
    let mixers = mixers.into_iter().collect::<Vec<_>>().join(", ");
    print::message(&match own.len() {
        0 => "none of these runs is yours; `dsf sweep mad-small --mixer NAME` trains the twelve of a mixer".to_owned(),
        runs => format!("beside the published runs of two seeds: {} of {mixers}", counted(runs, "run")),
    });
    if own.len() < all {
        let others = counted(all - own.len(), "run");
        let named: String = sources.iter().map(|source| format!(" {}", quoted(&source.to_string_lossy()))).collect();
        let out = global.out_flag();
        print::message(&format!(
            "left out: {others} with other settings than mad-small; `dsf report --figure mad{named}{out}` shows them"
        ));
    }
    ids.extend(own.iter().map(|row| row.run_id().to_owned()));
    rows.extend(own);
    results::reconcile(&rows)?;
    Ok(rows)
}

/// Returns the schema of a summary, one line per column.
fn columns(json: bool) -> String {
    if json {
        let event = |column: &ColumnSpec| {
            let event = json!({ "event": "column", "schema": SCHEMA, "column": column.name, "unit": column.unit,
                                "values": column.kind.to_string(), "meaning": column.meaning });
            format!("{event}\n")
        };
        return COLUMNS.iter().map(event).collect();
    }
    let mut text = format!("columns of a summary CSV, schema {SCHEMA}; empty means not applicable\n");
    for column in COLUMNS.iter() {
        let (name, unit, meaning) = (column.name, column.unit, column.meaning);
        let unit = match unit {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        text += &format!("  {name:18}  {meaning}{unit}\n");
    }
    text
}
