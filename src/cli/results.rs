//! Where commands that read results find them, and the forms that they print.

use super::{print, Global};
use crate::error::Result;
use crate::recipes::TASKS;
use crate::report::{Format, FORMATS};
use crate::store::{read_summary, Record, Store};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::Args;
use std::path::Path;

/// How a report is printed.
#[derive(Args)]
pub(super) struct Form {
    /// Form of the output.
    #[arg(long, default_value = FORMATS[0].name, value_parser = formats())]
    format: String,
}

impl Form {
    /// `--json` asks for the form of programs as well.
    pub fn format(&self, global: &Global) -> Result<&'static Format> {
        match global.json {
            true => Format::find("json"),
            false => Format::find(&self.format),
        }
    }
}

fn formats() -> PossibleValuesParser {
    let formats = FORMATS.iter();
    PossibleValuesParser::new(formats.map(|f| PossibleValue::new(f.name).help(f.about)))
}

/// The runs of a summary, or of a results folder: those below `runs`, and those of every summary in it that is not made
/// of these.
pub(super) fn read(source: &Path) -> Result<Vec<Record>> {
    if source.is_file() {
        return read_summary(source);
    }
    let tasks: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
    let store = Store::existing(source)?;
    let scan = store.rows(&tasks)?;
    for warning in &scan.warnings {
        print::talk(&format!("warning: {warning}"));
    }
    let mut rows = scan.rows;
    for summary in store.other_summaries(&tasks)? {
        rows.extend(read_summary(&summary)?);
    }
    Ok(rows)
}
