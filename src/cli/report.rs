//! `dsf report`: results as grids of accuracies, or as figures and tables of the paper.

use super::results::{self, Form};
use super::{exit, print, Global};
use crate::error::{refuse, Result};
use crate::recipes::presets_of;
use crate::report::{self, Asked, Figure, Series, FIGURES};
use crate::store::{refuse_contradictions, COLUMNS, SCHEMA};
use crate::sweep::{Experiment, Flags};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Arguments {
    /// Results folders or summary CSV files. Of a folder the runs below `runs` are read and every summary `*.csv` in it but
    /// those that dsf makes of these runs [default: the folder of --out].
    results: Vec<PathBuf>,
    /// A table of the paper, beside its numbers, instead of the grids of MQAR: 1, perplexities on
    /// WikiText; 2, normalisers of normalized attention; 3, the Long Range Arena. Runs on part of the
    /// data, in other sizes, or under another protocol or loss, are in tables of their own; what else
    /// differs from the preset is said.
    #[arg(long, value_name = "N", value_parser = figures(Series::Table))]
    table: Option<String>,
    /// A figure of the paper: only the runs that it shows, on its axes.
    #[arg(long, value_name = "N", value_parser = figures(Series::Figure), conflicts_with = "table")]
    figure: Option<String>,
    /// What the paper claims, and whether these runs bear it out: a verdict a claim at the paper's sizes, and apart from
    /// it at the sizes of other runs, with effect, interval and, where it is undecided, the command that would decide.
    #[arg(long, conflicts_with_all = ["table", "figure", "experiment", "metric", "orient"])]
    claims: bool,
    /// Print what the columns of a summary mean, and stop.
    #[arg(long)]
    columns: bool,
    /// Report the runs that an experiment file plans, done or not.
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Exit with 4 where a number that the table prints is missed by more than TOL: percentage points, or percent of a
    /// perplexity. Those without a run of ours are listed, and count neither as held nor as missed.
    #[arg(long, value_name = "TOL", conflicts_with = "claims", value_parser = tolerance, allow_negative_numbers = true)]
    check: Option<f64>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    asked: Asked,
}

fn figures(series: Series) -> PossibleValuesParser {
    let figures = FIGURES.iter().filter(|figure| figure.series == series);
    PossibleValuesParser::new(figures.map(|f| PossibleValue::new(f.number).help(f.about)))
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "not a number from 0, such as 1.5".to_owned())
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    if arguments.columns {
        print::result(&columns())?;
        return Ok(exit::DONE);
    }
    let mut asked = arguments.asked;
    for name in &asked.filter.mixers {
        crate::mixers::find(name)?;
    }
    let figure = match (&arguments.table, &arguments.figure) {
        (Some(number), _) => Figure::find(Series::Table, number)?,
        (_, Some(number)) => Figure::find(Series::Figure, number)?,
        (None, None) => Figure::find(Series::Grid, "")?,
    };
    if !asked.filter.datasets.is_empty() && arguments.table.as_deref() != Some("3") {
        refuse!("--dataset names tasks of the Long Range Arena: give it with --table 3");
    }
    if arguments.check.is_some() && figure.series != Series::Table {
        refuse!(
            "--check compares with numbers that the paper prints, and {} has none: give --table 1, 2 or 3; what figures \
             claim is judged by --claims",
            figure.title()
        );
    }
    let planned = match &arguments.experiment {
        Some(file) => Some(Experiment::read(file)?.plan(&Flags::default())?.runs),
        None => None,
    };
    let mut rows = Vec::new();
    let sources = match arguments.results.is_empty() {
        true => std::slice::from_ref(&global.out),
        false => &arguments.results,
    };
    for source in sources {
        rows.extend(results::read(source)?);
    }
    refuse_contradictions(&rows)?;
    let format = arguments.form.format(global)?;
    asked.side_by_side = format.side_by_side;
    let mut report = match arguments.claims {
        true => report::claims(&rows, &presets_of, &asked)?,
        false => report::report(figure, &rows, planned.as_deref(), &presets_of, &asked)?,
    };
    let before = report.notes.len();
    let held = arguments
        .check
        .is_none_or(|tolerance| report.check(tolerance));
    if format.name == "csv" {
        let said = report.notes[before..].iter();
        said.for_each(|note| print::talk(note));
    }
    print::result(&format.render(&report, global.coloured()))?;
    Ok(match held {
        true => exit::DONE,
        false => exit::CHECK_FAILED,
    })
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
