//! `dsf report`: results as grids of accuracies, or as figures and tables of the paper.

use super::{exit, print, Global};
use crate::config::Protocol;
use crate::error::{refuse, Result};
use crate::recipes::{presets_of, TASKS};
use crate::report::{self, Asked, Figure, Filter, Format, Orient, Series, FIGURES, FORMATS};
use crate::store::{read_summary, refuse_contradictions, Record, Store, COLUMNS, SCHEMA};
use crate::sweep::{Experiment, Flags};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
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
    /// Rows n and columns d, or as in the paper's figures rows d and columns n [default: brief, and
    /// paper for figure 7].
    #[arg(long, value_enum, conflicts_with = "table")]
    orient: Option<Orient>,
    /// Which number counts [default: accuracy; in tables 2 and 3 selected_accuracy, and the best where
    /// there is no validation split; Markdown, CSV and JSON have all three; in table 1, which shows all
    /// perplexities, the one that learning rates are chosen by: train_ppl].
    #[arg(long, value_parser = metrics())]
    metric: Option<String>,
    /// Only these mixers.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    mixer: Vec<String>,
    /// Only these sequence lengths.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "L",
        conflicts_with = "table"
    )]
    seq_len: Vec<usize>,
    /// Only these tasks of the Long Range Arena (table 3).
    #[arg(long, value_delimiter = ',', value_name = "NAME",
          value_parser = PossibleValuesParser::new(report::datasets()))]
    dataset: Vec<String>,
    /// Only these protocols.
    #[arg(long, value_delimiter = ',', value_enum)]
    protocol: Vec<Protocol>,
}

fn figures(series: Series) -> PossibleValuesParser {
    let figures = FIGURES.iter().filter(|figure| figure.series == series);
    PossibleValuesParser::new(figures.map(|f| PossibleValue::new(f.number).help(f.about)))
}

fn formats() -> PossibleValuesParser {
    PossibleValuesParser::new(
        FORMATS
            .iter()
            .map(|f| PossibleValue::new(f.name).help(f.about)),
    )
}

/// Names of metrics, typed with underscores as in a summary or with hyphens as flags are.
fn metrics() -> impl TypedValueParser<Value = String> {
    let metrics = report::metrics().map(|metric| {
        let value = PossibleValue::new(metric.name).help(metric.meaning);
        value.alias(metric.name.replace('_', "-"))
    });
    PossibleValuesParser::new(metrics).map(|typed| typed.replace('-', "_"))
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    if arguments.columns {
        print::result(&columns())?;
        return Ok(exit::DONE);
    }
    for name in &arguments.mixer {
        crate::mixers::find(name)?;
    }
    let figure = match (&arguments.table, &arguments.figure) {
        (Some(number), _) => Figure::find(Series::Table, number)?,
        (_, Some(number)) => Figure::find(Series::Figure, number)?,
        (None, None) => Figure::find(Series::Grid, "")?,
    };
    if !arguments.dataset.is_empty() && arguments.table.as_deref() != Some("3") {
        refuse!("--dataset names tasks of the Long Range Arena: give it with --table 3");
    }
    let planned = match &arguments.experiment {
        Some(file) => Some(Experiment::read(file)?.plan(&Flags::default())?.runs),
        None => None,
    };
    let mut rows = Vec::new();
    let sources = if arguments.results.is_empty() {
        vec![global.out.clone()]
    } else {
        arguments.results.clone()
    };
    for source in &sources {
        rows.extend(read(source)?);
    }
    refuse_contradictions(&rows)?;
    let format = if global.json {
        "json"
    } else {
        &arguments.format
    };
    let format = Format::find(format)?;
    let asked = Asked {
        filter: Filter {
            mixers: arguments.mixer,
            seq_lens: arguments.seq_len,
            protocols: arguments.protocol,
            datasets: arguments.dataset,
        },
        metric: arguments.metric,
        orient: arguments.orient,
        side_by_side: format.side_by_side,
    };
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
        let unit = if unit.is_empty() {
            String::new()
        } else {
            format!(" ({unit})")
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
