//! `dsf report`: results as grids of accuracies, as figures and tables of the paper, or as training curves.

mod all;

use super::{exit, print, Global};
use crate::error::{refuse, Error, Result};
use crate::files::write_atomic;
use crate::recipes::{presets_of, TASKS};
use crate::report::{self, Asked, Curve, Figure, Format, Report, Screen, Series, FIGURES, FORMATS};
use crate::store::{read_summary, refuse_contradictions, Record, Store, COLUMNS, SCHEMA};
use crate::sweep::{Experiment, Flags};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::Args;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct Arguments {
    /// Results folders or summary CSV files (`mqar.csv`, `lra.csv`, `wikitext.csv`) [default: the folder of --out;
    /// with --all that of DSF_OUT, or `results`].
    results: Vec<PathBuf>,
    /// A table of the paper, beside its numbers, instead of the grids of MQAR: 1, perplexities on
    /// WikiText; 2, normalisers of normalized attention; 3, the Long Range Arena. Runs on part of the
    /// data, in other sizes, or under another protocol or loss, are in tables of their own; what else
    /// differs from the preset is said.
    #[arg(long, value_name = "N", value_parser = figures(Series::Table))]
    table: Option<String>,
    /// A figure of the paper, or one beside it: only the runs that it shows, on its axes.
    #[arg(long, value_name = "N", value_parser = figures(Series::Figure), conflicts_with = "table")]
    figure: Option<String>,
    /// Training curves instead: loss and accuracy, on text perplexities, by epoch, from the run folders.
    #[arg(long, conflicts_with_all = ["table", "figure", "metric", "orient", "over", "experiment", "all"])]
    curves: bool,
    /// Every figure and table that there are results for, in every format, and a page `index.html` of all, into the
    /// folder of --out; what has no results is listed with the command that makes them.
    #[arg(long, conflicts_with_all = ["table", "figure", "metric", "orient", "over", "format", "to"])]
    all: bool,
    /// Print what the columns of a summary mean, and stop.
    #[arg(long)]
    columns: bool,
    /// Report the runs that an experiment file plans, done or not.
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Form of the output [default: the one that the name of --to ends in, or text].
    #[arg(long, value_parser = formats())]
    format: Option<String>,
    /// Write to a file.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    asked: Asked,
}

fn figures(series: Series) -> PossibleValuesParser {
    let figures = FIGURES.iter().filter(|figure| figure.series == series);
    PossibleValuesParser::new(figures.map(|f| PossibleValue::new(f.number).help(f.about)))
}

fn formats() -> PossibleValuesParser {
    let formats = FORMATS.iter();
    PossibleValuesParser::new(formats.map(|f| PossibleValue::new(f.name).help(f.about)))
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    if arguments.columns {
        print::result(&columns())?;
        return Ok(exit::DONE);
    }
    for name in &arguments.asked.filter.mixers {
        crate::mixers::find(name)?;
    }
    if !arguments.asked.filter.datasets.is_empty() && arguments.table.as_deref() != Some("3") {
        refuse!("--dataset names tasks of the Long Range Arena: give it with --table 3");
    }
    if arguments.all {
        return all::main(&arguments, global);
    }
    let format = arguments.format(global)?;
    let report = match arguments.curves {
        true => arguments.drawn_curves(arguments.sources(&global.out))?,
        false => arguments.drawn(format, &global.out)?,
    };
    arguments.write(format, &report, global)?;
    Ok(exit::DONE)
}

impl Arguments {
    fn sources<'a>(&'a self, folder: &'a PathBuf) -> &'a [PathBuf] {
        match self.results.is_empty() {
            true => std::slice::from_ref(folder),
            false => &self.results,
        }
    }

    /// As asked for, or as the name of the file says.
    fn format(&self, global: &Global) -> Result<&'static Format> {
        let json = global.json.then_some("json");
        let format = match (json.or(self.format.as_deref()), &self.to) {
            (Some(name), _) => Format::find(name)?,
            (None, None) => &FORMATS[0],
            (None, Some(file)) => Format::of_file(file).ok_or_else(|| {
                let endings: Vec<String> = FORMATS
                    .iter()
                    .map(|f| format!(".{}", f.extension))
                    .collect();
                let (file, endings) = (file.display(), endings.join(", "));
                Error::usage(format!(
                    "--to {file} ends in no format: give --format, or one of {endings}"
                ))
            })?,
        };
        if !format.is_text() && self.to.is_none() && io::stdout().is_terminal() {
            refuse!(
                "--format {} is not for a terminal: give --to FILE, or pipe it into a program",
                format.name
            );
        }
        Ok(format)
    }

    fn drawn(&self, format: &Format, folder: &PathBuf) -> Result<Report> {
        let figure = match (&self.table, &self.figure) {
            (Some(number), _) => Figure::find(Series::Table, number)?,
            (_, Some(number)) => Figure::find(Series::Figure, number)?,
            (None, None) => Figure::find(Series::Grid, "")?,
        };
        let planned = match &self.experiment {
            Some(file) => Some(Experiment::read(file)?.plan(&Flags::default())?.runs),
            None => None,
        };
        let rows = rows(self.sources(folder))?;
        let mut asked = self.asked.clone();
        asked.side_by_side = format.side_by_side;
        report::report(figure, &rows, planned.as_deref(), &presets_of, &asked)
    }

    fn drawn_curves(&self, sources: &[PathBuf]) -> Result<Report> {
        let mut curves = Vec::new();
        for source in sources {
            if source.is_file() {
                refuse!(
                    "{} is a summary, which has no curves: give the results folder that holds `runs`",
                    source.display()
                );
            }
            curves.extend(read_curves(source)?);
        }
        report::curves(&curves, &self.asked)
    }

    fn write(&self, format: &Format, report: &Report, global: &Global) -> Result<()> {
        if let Some(file) = &self.to {
            return write_atomic(file, &format.render(report, Screen::default())?);
        }
        let screen = Screen {
            colour: global.coloured(),
            width: print::width(),
        };
        print::bytes(&format.render(report, screen)?)
    }
}

/// Every run of `sources`, each known by one result.
fn rows(sources: &[PathBuf]) -> Result<Vec<Record>> {
    let mut rows = Vec::new();
    for source in sources {
        rows.extend(read(source)?);
    }
    refuse_contradictions(&rows)?;
    Ok(rows)
}

/// The schema of a summary, a line a column.
fn columns() -> String {
    let mut text =
        format!("columns of a summary CSV, schema {SCHEMA}; empty means not applicable\n");
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

fn read(source: &Path) -> Result<Vec<Record>> {
    if source.is_file() {
        return read_summary(source);
    }
    scan(&Store::existing(source)?)
}

fn scan(store: &Store) -> Result<Vec<Record>> {
    let tasks: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
    let scan = store.rows(&tasks)?;
    for warning in &scan.warnings {
        print::talk(&format!("warning: {warning}"));
    }
    Ok(scan.rows)
}

/// The runs of a results folder that have epochs.
fn read_curves(source: &Path) -> Result<Vec<Curve>> {
    let store = Store::existing(source)?;
    let mut curves = Vec::new();
    for run in scan(&store)? {
        match store.epochs(run.run_id()) {
            Ok(epochs) if epochs.is_empty() => {}
            Ok(epochs) => curves.push(Curve { run, epochs }),
            Err(e) => print::talk(&format!("warning: {e}")),
        }
    }
    Ok(curves)
}
