//! `dsf export`: curves and results of runs for TensorBoard, or as Parquet or JSON lines.

use super::show::LoadedRun;
use super::{exit, print, Global};
use crate::error::{refuse, Result};
use crate::export::{parquet, tensorboard, ExportedRun};
use crate::files::write_atomic;
use crate::store::Store;
use crate::sweep::estimate::counted;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  dsf export --format tensorboard --to board    # then: tensorboard --logdir board\n  \
    dsf export --format parquet --to tables       # runs.parquet and epochs.parquet\n  \
    dsf export 3f2c --format jsonl                # one object per run, as in `dsf show --json`"
)]
pub(super) struct ExportArguments {
    /// Ids of runs in --out, unique prefixes of ids, or run folders [default: all].
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    /// Output format.
    #[arg(long, value_enum)]
    format: ExportFormat,
    /// Folder to write to; for jsonl a file [default: stdout].
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// Event files with curves, results and settings, one folder per run.
    Tensorboard,
    /// JSON Lines, one object per run.
    Jsonl,
    /// Two tables, runs and epochs.
    Parquet,
}

impl ExportFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Tensorboard => "tensorboard",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        }
    }
}

pub(super) fn main(arguments: &ExportArguments, global: &Global) -> Result<u8> {
    let shown = arguments.shown(global)?;
    if shown.is_empty() {
        refuse!(path & global.out, "holds no runs; `dsf mqar` makes one, `dsf sweep` a grid of them");
    }
    let files = match (arguments.format, &arguments.to) {
        (ExportFormat::Jsonl, None) => {
            print::result(&lines(&shown))?;
            return Ok(exit::DONE);
        }
        (format, None) => {
            refuse!(flag "--format" = format.name(), "writes files: give --to FOLDER")
        }
        (ExportFormat::Jsonl, Some(to)) => {
            write_atomic(to, lines(&shown).as_bytes())?;
            vec![to.clone()]
        }
        (format, Some(to)) => {
            let runs: Vec<ExportedRun> = shown.iter().map(LoadedRun::run).collect();
            folder(format, &runs, to)?
        }
    };
    let event = json!({ "event": "exported", "schema": 1, "format": arguments.format.name(), "runs": shown.len(),
                        "files": files });
    let (count, form) = (counted(shown.len(), "run"), arguments.format.name());
    let place = arguments.to.as_deref().unwrap_or(Path::new("")).display();
    let next = match arguments.format {
        ExportFormat::Tensorboard => format!("; tensorboard --logdir {place} shows them"),
        ExportFormat::Jsonl | ExportFormat::Parquet => String::new(),
    };
    global.emit(&event, &format!("{count} as {form} in {place}{next}"))?;
    Ok(exit::DONE)
}

impl ExportArguments {
    /// Opens the selected runs, finished or not.
    fn shown(&self, global: &Global) -> Result<Vec<LoadedRun>> {
        if !self.runs.is_empty() {
            return self.runs.iter().map(|name| LoadedRun::open(name, global)).collect();
        }
        let configs = Store::existing(&global.out)?.configs()?;
        print::warnings(&configs.warnings);
        configs.runs.iter().map(|run| LoadedRun::open(&run.id(), global)).collect()
    }
}

fn folder(format: ExportFormat, runs: &[ExportedRun], to: &Path) -> Result<Vec<PathBuf>> {
    if to.is_file() {
        let (name, to) = (format.name(), to.display());
        refuse!(flag "--to" = to, "is a file, and --format {name} writes a folder: give another name");
    }
    match format {
        ExportFormat::Parquet => parquet(runs, to),
        _ => tensorboard(runs, to),
    }
}

fn lines(shown: &[LoadedRun]) -> String {
    shown.iter().map(|shown| format!("{}\n", shown.event())).collect()
}
