//! Input and output of commands that read results.

use super::{print, Global};
use crate::error::{refuse, Result};
use crate::files::write_atomic;
use crate::recipes::TASKS;
use crate::report::{Format, Report, TextTarget, FORMATS};
use crate::store::{self, read_summary, Record, Store};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::Args;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// Extensions of pictures and documents that no format writes.
const OF_OTHER_PROGRAMS: [&str; 7] = ["jpg", "jpeg", "gif", "webp", "bmp", "pdf", "eps"];

/// Format and destination of a report.
#[derive(Args)]
pub(super) struct ReportOutput {
    /// Output format [default: by the extension of --to, else text].
    #[arg(long, value_parser = formats())]
    format: Option<String>,
    /// Write the output to a file.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

impl ReportOutput {
    /// Returns the format of `--format`, else that of the file's extension, else JSON under `--json`, else text.
    ///
    /// # Errors
    ///
    /// Fails if the extension is that of another format, or of none.
    pub fn format(&self, global: &Global) -> Result<&'static Format> {
        let of_file = self.to.as_deref().and_then(Format::of_file);
        let json = global.json.then_some("json");
        let format = match (self.format.as_deref(), &self.to) {
            (named, None) => json.or(named).map_or(Ok(&FORMATS[0]), Format::find)?,
            (Some(name), Some(file)) => {
                let format = Format::find(name)?;
                if of_file.is_some_and(|other| other.extension != format.extension) || is_foreign(file) {
                    let (file, ending) = (file.display(), format.extension);
                    refuse!(flag "--to" = file, "is no file of {name}: end its name in .{ending}");
                }
                format
            }
            (None, Some(file)) => match (of_file, json) {
                (Some(format), _) => format,
                (None, Some(json)) if !is_foreign(file) => Format::find(json)?,
                (None, _) => {
                    let endings: Vec<String> = FORMATS.iter().map(|format| format!(".{}", format.extension)).collect();
                    let (file, endings) = (file.display(), endings.join(", "));
                    refuse!(flag "--to" = file, "ends in no format: give --format, or one of {endings}");
                }
            },
        };
        if !format.is_text() && self.to.is_none() && io::stdout().is_terminal() {
            refuse!(flag "--format" = format.name, "is not for a terminal: give --to FILE, or pipe it into a program");
        }
        Ok(format)
    }

    /// Whether a file is named.
    pub fn has_file(&self) -> bool {
        self.to.is_some()
    }

    /// Writes `report` to the file, or to stdout.
    pub fn write(&self, report: &Report, global: &Global) -> Result<()> {
        let format = self.format(global)?;
        if let Some(file) = &self.to {
            return write_atomic(file, &format.render(report, TextTarget::default())?);
        }
        let screen = TextTarget { colour: global.coloured(), width: print::width() };
        print::bytes(&format.render(report, screen)?)
    }
}

/// Whether the name of `file` is that of a picture or a document of a format that is not written here.
fn is_foreign(file: &Path) -> bool {
    file.extension().is_some_and(|ending| OF_OTHER_PROGRAMS.iter().any(|other| ending.eq_ignore_ascii_case(other)))
}

fn formats() -> PossibleValuesParser {
    let formats = FORMATS.iter();
    PossibleValuesParser::new(formats.map(|f| PossibleValue::new(f.name).help(f.about)))
}

/// Reads the runs of a summary file or of a results folder. A folder contributes the runs below `runs`, and those of
/// every summary in it that is not made from these.
pub(super) fn read(source: &Path) -> Result<Vec<Record>> {
    if source.exists() && !source.is_dir() {
        return read_summary(source);
    }
    let store = Store::existing(source)?;
    let mut rows = scan(&store)?;
    for summary in store.other_summaries(&tasks())? {
        rows.extend(read_summary(&summary)?);
    }
    Ok(rows)
}

/// Returns an error if rows of one run contradict each other; warns if they differ by build or machine.
pub(super) fn reconcile(rows: &[Record]) -> Result<()> {
    if let Some(warning) = store::reconcile(rows)? {
        print::message(&format!("warning: {warning}"));
    }
    Ok(())
}

/// Reads the runs below `runs`; warns about every folder that holds no run.
pub(super) fn scan(store: &Store) -> Result<Vec<Record>> {
    let scan = store.rows(&tasks())?;
    print::warnings(&scan.warnings);
    Ok(scan.rows)
}

fn tasks() -> Vec<&'static str> {
    TASKS.iter().map(|task| task.name).collect()
}
