//! `dsf report`: results as grids of accuracies, or as figures and tables of the paper.

use super::{exit, print, Global};
use crate::error::{refuse, Result};
use crate::recipes::{presets_of, TASKS};
use crate::report::{self, Asked, Figure, Format, Series, FIGURES, FORMATS};
use crate::store::{read_summary, refuse_contradictions, Record, Store, COLUMNS, SCHEMA};
use crate::sweep::{Experiment, Flags};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::Args;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct Arguments {
    /// Results folders or summary CSV files (`mqar.csv`, `lra.csv`, `wikitext.csv`) [default: the folder of --out].
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
    /// Print what the columns of a summary mean, and stop.
    #[arg(long)]
    columns: bool,
    /// Report the runs that an experiment file plans, done or not.
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Form of the output.
    #[arg(long, default_value = FORMATS[0].name, value_parser = formats())]
    format: String,
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
        rows.extend(read(source)?);
    }
    refuse_contradictions(&rows)?;
    let format = match global.json {
        true => Format::find("json")?,
        false => Format::find(&arguments.format)?,
    };
    asked.side_by_side = format.side_by_side;
    let report = report::report(figure, &rows, planned.as_deref(), &presets_of, &asked)?;
    print::result(&format.render(&report, global.coloured()))?;
    Ok(exit::DONE)
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
    let tasks: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
    let scan = Store::existing(source)?.rows(&tasks)?;
    for warning in &scan.warnings {
        print::talk(&format!("warning: {warning}"));
    }
    Ok(scan.rows)
}
