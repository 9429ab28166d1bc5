//! `dsf report`: results as grids of accuracies, or as tables of the paper.

use super::{exit, print, Global};
use crate::config::{Protocol, RunConfig};
use crate::error::{Error, Result};
use crate::recipes::{presets_of, TASKS};
use crate::report::{self, Asked, Filter, Format, Metric, Orient, PaperTable};
use crate::store::{read_summary, Row, Store, COLUMNS, SCHEMA};
use crate::sweep::{Experiment, Flags};
use crate::tasks::lra::LraDataset;
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
    #[arg(long, value_enum, value_name = "N")]
    table: Option<PaperTable>,
    /// Print what the columns of a summary mean, and stop.
    #[arg(long)]
    columns: bool,
    /// Report the runs that an experiment file plans, done or not.
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Form of the output.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Rows n and columns d, or as in the paper's figures rows d and columns n [default: brief].
    #[arg(long, value_enum, conflicts_with = "table")]
    orient: Option<Orient>,
    /// Which number counts [default: accuracy; in tables 2 and 3 selected_accuracy, and the best where
    /// there is no validation split; Markdown, CSV and JSON have all three; in table 1, which shows all
    /// perplexities, the one that learning rates are chosen by: train_ppl].
    #[arg(long, value_enum)]
    metric: Option<Metric>,
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
    #[arg(long, value_delimiter = ',', value_enum, value_name = "NAME")]
    dataset: Vec<LraDataset>,
    /// Only these protocols.
    #[arg(long, value_delimiter = ',', value_enum)]
    protocol: Vec<Protocol>,
}

pub(super) fn main(arguments: Arguments, global: &Global) -> Result<u8> {
    if arguments.columns {
        print::result(&columns())?;
        return Ok(exit::DONE);
    }
    for name in &arguments.mixer {
        crate::mixers::find(name)?;
    }
    if !arguments.dataset.is_empty() && arguments.table != Some(PaperTable::LongRangeArena) {
        return Err(Error::usage(
            "--dataset names tasks of the Long Range Arena: give it with --table 3",
        ));
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
    print::result(&arguments.report(&rows, planned.as_deref(), global)?)?;
    Ok(exit::DONE)
}

impl Arguments {
    fn report(
        self,
        rows: &[Row],
        planned: Option<&[RunConfig]>,
        global: &Global,
    ) -> Result<String> {
        let filter = Filter {
            mixers: self.mixer,
            seq_lens: self.seq_len,
            protocols: self.protocol,
            datasets: self.dataset,
        };
        let format = if global.json {
            Format::Json
        } else {
            self.format
        };
        let colour = global.coloured();
        let Some(table) = self.table else {
            let report = report::mqar(rows, planned, &filter, self.metric.unwrap_or_default())?;
            return Ok(report.render(format, self.orient.unwrap_or_default(), colour));
        };
        let asked = Asked {
            filter,
            metric: self.metric,
        };
        let tables = report::paper_table(table, rows, planned, &presets_of, &asked)?;
        Ok(tables.render(format, colour))
    }
}

/// The schema of a summary, a line a column.
fn columns() -> String {
    let mut text =
        format!("columns of a summary CSV, schema {SCHEMA}; empty means not applicable\n");
    for column in COLUMNS {
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

fn read(source: &Path) -> Result<Vec<Row>> {
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
