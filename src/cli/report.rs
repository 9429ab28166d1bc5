//! `dsf report`: results as accuracy grids.

use super::{exit, print, Global};
use crate::config::Protocol;
use crate::error::Result;
use crate::report::{self, Filter, Format, Metric, Orient};
use crate::store::{read_summary, Row, Store, COLUMNS, SCHEMA};
use crate::sweep::{Experiment, Flags};
use clap::Args;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct Arguments {
    /// Results folders or summary CSV files [default: the folder of --out].
    results: Vec<PathBuf>,
    /// Print what the columns of a summary mean, and stop.
    #[arg(long)]
    columns: bool,
    /// Report the runs that an experiment file plans, done or not.
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Form of the output.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Rows n and columns d, or as in the paper's figures rows d and columns n.
    #[arg(long, value_enum, default_value_t)]
    orient: Orient,
    /// Accuracy after the last epoch, or the best after any.
    #[arg(long, value_enum, default_value_t)]
    metric: Metric,
    /// Only these mixers.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    mixer: Vec<String>,
    /// Only these sequence lengths.
    #[arg(long, value_delimiter = ',', value_name = "L")]
    seq_len: Vec<usize>,
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
    let filter = Filter {
        mixers: arguments.mixer,
        seq_lens: arguments.seq_len,
        protocols: arguments.protocol,
    };
    let planned = match &arguments.experiment {
        Some(file) => Some(Experiment::read(file)?.plan(&Flags::default())?.runs),
        None => None,
    };
    let mut rows = Vec::new();
    let sources = if arguments.results.is_empty() {
        vec![global.out.clone()]
    } else {
        arguments.results
    };
    for source in &sources {
        rows.extend(read(source)?);
    }
    let report = report::mqar(&rows, planned.as_deref(), &filter, arguments.metric)?;
    let format = if global.json {
        Format::Json
    } else {
        arguments.format
    };
    let text = report.render(format, arguments.orient, global.coloured());
    print::result(&text)?;
    Ok(exit::DONE)
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
    let scan = Store::existing(source)?.rows("mqar")?;
    for warning in &scan.warnings {
        print::talk(&format!("warning: {warning}"));
    }
    Ok(scan.rows)
}
