//! Files of a results folder: one folder per run, and one summary per task.
//!
//! ```text
//! OUT/runs/<id>/config.json             config of the run, written first
//!              /env.json                provenance: host, build, device
//!              /metrics.csv             one row per epoch
//!              /slices.csv              accuracies by pair and distance; only for MQAR
//!              /losses.csv              one row per step; only for runs on text
//!              /best.safetensors        weights with the best validation score; only for runs on text
//!              /weights.safetensors     final weights; a sweep keeps them only for runs on text
//!              /epoch-0004.safetensors  weights after that epoch; only with --snapshot-every
//!              /checkpoint.safetensors  latest checkpoint; removed once the run is done
//!              /checkpoint-before.safetensors  previous checkpoint, in case the latest is damaged; removed likewise
//!              /worker.log              stderr of the workers of a sweep
//!              /beat.json               heartbeat: process and progress of the run, while it is trained
//!              /result.json             written last: marks the run as done or failed
//!              /lock                    held while a process works on the run, where the file system has locks
//!              /claim.json              process that works on the run, while it does
//! OUT/<task>.csv                        summary: every finished run, one row each; can be rebuilt
//! OUT/cancel                            latest request that the sweeps running on this folder stop
//! ```
//!
//! Every file except `losses.csv`, logs, locks and claims appears by an atomic rename, so a reader never sees a partial
//! file, even after a kill.

mod archive;
mod cancel;
mod cause;
mod checksum;
mod claim;
mod column;
mod heartbeat;
mod log;
mod losses;
mod merge;
mod metrics;
mod provenance;
mod reconcile;
mod record;
mod result;
mod run_dir;
mod schema;
mod sheet;
mod staging;
mod summary;
#[cfg(test)]
mod tests;

pub use archive::{check as check_archive, Archive};
pub use cancel::CancelMarker;
pub use cause::{Cause, Failure};
pub use column::{Absent, Column, ColumnKind, ColumnSpec, Field, Role};
#[cfg(test)]
pub(crate) use heartbeat::HeartbeatTiming as TestTiming;
pub use heartbeat::{Heartbeat, LastHeartbeat};
use heartbeat::{HeartbeatTiming, TIMING};
pub use log::Log;
pub use losses::Losses;
pub use merge::Merged;
pub use metrics::{Direction, Metric, MetricFormat, Metrics, METRICS};
pub use provenance::{
    check_memory, cpu, gigabytes, host, memory_bytes, memory_kills, memory_limit, peak_memory_bytes, utc_now,
    MemoryLimit, Provenance,
};
pub use reconcile::reconcile;
pub use record::{Record, RecordSource};
pub use result::{Outcome, RunResult, RunStatus};
pub use run_dir::{epochs, snapshots, EpochRow, RunDir, SliceRow, Weights};
pub use schema::{columns, places, COLUMNS, SCHEMA};
pub use staging::Staging;
pub use summary::{columns_with, is_summary, parse_summary, read_summary, to_csv, Configs, Scan};
#[cfg(test)]
pub(crate) use tests::samples;

use crate::config::RunConfig;
use crate::error::{refuse, Error, Result};
use crate::files::{self, is_hidden, unseal};
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const RUNS: &str = "runs";
const CONFIG: &str = "config.json";
const RESULT: &str = "result.json";

/// A results folder.
#[derive(Clone, Debug)]
pub struct Store {
    out: PathBuf,
    /// Whether file locks are used; without them claims decide.
    locks: bool,
    /// Interval and timeout of heartbeats.
    timing: HeartbeatTiming,
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not begun.
    Missing,
    /// Begun: in progress or interrupted.
    Started,
    /// Finished with a result, which may be that of a diverged training.
    Done,
    /// Ended by an error.
    Failed,
}

impl Store {
    /// Opens the results folder `out` for writing, creating it if it is missing.
    pub fn open(out: &Path) -> Result<Self> {
        refuse_non_folder(out)?;
        let store = Self { out: out.to_owned(), locks: true, timing: TIMING };
        fs::create_dir_all(out.join(RUNS)).and_then(|()| tempfile::tempfile_in(out).map(drop)).map_err(|e| {
            Error::flag_value(
                "--out",
                out.display(),
                format!("cannot write to this results folder: {e}; give a folder that can be written to"),
            )
        })?;
        Ok(store)
    }

    /// Opens the results folder `out` for reading. Nothing is created or written.
    pub fn existing(out: &Path) -> Result<Self> {
        if out.exists() && !out.is_dir() {
            refuse!(path out, "a file, not a results folder; give the folder that holds `{RUNS}`");
        }
        if !out.exists() {
            refuse!(path out, "there is no such results folder; --out names the one that holds `{RUNS}`");
        }
        Ok(Self { out: out.to_owned(), locks: true, timing: TIMING })
    }

    /// Returns the same folder treated as a file system without locks.
    #[cfg(test)]
    pub(crate) fn without_locks(self) -> Self {
        Self { locks: false, ..self }
    }

    /// Returns the same folder with other heartbeat intervals.
    #[cfg(test)]
    pub(crate) fn with_timing(self, timing: HeartbeatTiming) -> Self {
        Self { timing, ..self }
    }

    /// Returns the state of the run `id`.
    pub fn status(&self, id: &str) -> Result<Status> {
        Ok(match self.result(id)? {
            Some(result) if result.status == RunStatus::Failed => Status::Failed,
            Some(_) => Status::Done,
            None if self.run_folder(id).join(CONFIG).exists() => Status::Started,
            None => Status::Missing,
        })
    }

    /// Returns the result of the run `id`, if it is finished.
    pub fn result(&self, id: &str) -> Result<Option<RunResult>> {
        let path = self.run_folder(id).join(RESULT);
        let Some(bytes) = read_if_present(&path)? else {
            return Ok(None);
        };
        let broken = |why: &dyn std::fmt::Display| {
            let remedy = "delete this file to train the run again";
            Error::corrupt(&path, format!("not the result of a run: {why}; {remedy}"))
        };
        let mut document = serde_json::from_slice(&bytes).map_err(|e| broken(&e))?;
        let sealed = unseal(&mut document);
        if sealed == Some(false) {
            return Err(broken(&"it was changed since it was written"));
        }
        let result = serde_json::from_value(document.clone()).map_err(|e| broken(&e))?;
        // Results without a seal come from earlier versions, which wrote no field that is unknown here.
        match sealed.map_or_else(|| unknown(&document, &result), |_| None) {
            Some(name) => Err(broken(&format!("it has an unknown field `{name}`"))),
            None => Ok(Some(result)),
        }
    }

    /// Reads the config of the run `id`, which must have begun.
    pub fn config(&self, id: &str) -> Result<RunConfig> {
        read_config(&self.run_folder(id).join(CONFIG))
    }

    /// Returns the id of the run that begins with `prefix`; `None` if there is none. Fails if there are several.
    pub fn find(&self, prefix: &str) -> Result<Option<String>> {
        let (folder, prefix) = (self.out.join(RUNS), prefix.trim_end_matches('/'));
        if prefix.is_empty() || !folder.exists() {
            return Ok(None);
        }
        let entries = fs::read_dir(&folder).map_err(Error::io("read", &folder))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut found: Vec<String> =
            names.filter(|name| name.starts_with(prefix) && self.run_folder(name).join(CONFIG).exists()).collect();
        found.sort();
        if found.len() > 1 {
            let (several, list) = (found.len(), found.join(", "));
            refuse!(path & self.out, "the ids of {several} runs here begin with {prefix}: {list}");
        }
        Ok(found.pop())
    }

    /// Returns the files `*.csv` of the folder that are summaries, sorted by name. If the folder has run folders, the
    /// summaries of `tasks` are omitted, since they are made from these. A file without a column `schema` is no
    /// summary.
    pub fn other_summaries(&self, tasks: &[&str]) -> Result<Vec<PathBuf>> {
        let made: Vec<PathBuf> = if self.out.join(RUNS).exists() {
            tasks.iter().map(|task| self.summary_path(task)).collect()
        } else {
            Vec::new()
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.out).map_err(Error::io("read", &self.out))? {
            let path = entry.map_err(Error::io("read", &self.out))?.path();
            let hidden = path.file_name().is_some_and(is_hidden);
            let csv = !hidden && path.is_file() && path.extension().is_some_and(|end| end == "csv");
            if csv && !made.contains(&path) && is_summary(&path)? {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Path of the summary of `task`.
    pub fn summary_path(&self, task: &str) -> PathBuf {
        self.out.join(format!("{task}.csv"))
    }

    /// Path of the folder of the run `id`, whether or not it exists.
    pub fn run_folder(&self, id: &str) -> PathBuf {
        self.out.join(RUNS).join(id)
    }
}

/// Returns the name of a field of `document` that `result`, parsed from it, does not have.
fn unknown<'a>(document: &'a Value, result: &RunResult) -> Option<&'a str> {
    let known = serde_json::to_value(result).expect("a result is plain data");
    let mut names = document.as_object()?.iter();
    let (name, _) = names.find(|(name, value)| known.get(name).is_none() && !is_empty(value))?;
    Some(name)
}

/// Whether the value is empty, so that serialisation omits it.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value == ""
}

/// Reads the config of a run from a file.
pub fn read_config(path: &Path) -> Result<RunConfig> {
    let text = files::read_text(path)?;
    RunConfig::parse(&text, &path.display().to_string())
}

fn refuse_non_folder(out: &Path) -> Result<()> {
    if out.exists() && !out.is_dir() {
        refuse!(flag "--out" = out.display(), "is a file, not a results folder; give a folder, or a name that is still free");
    }
    Ok(())
}

fn read_if_present(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", path)(e)),
    }
}
