//! Files under a results folder: one folder a run, one summary a task.
//!
//! ```text
//! OUT/runs/<id>/config.json             the run's config, written first
//!              /env.json                where and by what it is trained
//!              /metrics.csv             one row an epoch
//!              /slices.csv              accuracies by pair and distance; in runs of MQAR only
//!              /losses.csv              one row a step; in runs on text only, as is the next
//!              /best.safetensors        the weights that validation chooses
//!              /weights.safetensors     the weights at the end; of a sweep in runs on text only
//!              /epoch-0004.safetensors  the weights after that epoch, of runs that were told to keep them
//!              /checkpoint.safetensors  gone once the run is done, as is the next
//!              /checkpoint-before.safetensors  the one before, should the newest be damaged
//!              /worker.log              what the workers of a sweep said on stderr
//!              /beat.json               who works on it and how far it is, while someone does
//!              /result.json             written last: its presence means done, or failed
//!              /lock                    held while a process works on the run, where the file system has locks
//!              /claim.json              who works on the run, while someone does
//! OUT/<task>.csv                        every finished run, one row each; safe to delete
//! OUT/cancel                            the last wish that sweeps at work here stop
//! ```
//!
//! Every file but `losses.csv` and the lock appears by rename, so that a reader or a kill never meets half of
//! one.

mod archive;
mod beat;
mod cancel;
mod cause;
mod checksum;
mod claim;
mod column;
mod log;
mod losses;
mod merge;
mod metrics;
mod provenance;
mod reconcile;
mod record;
mod result;
mod run_dir;
#[cfg(test)]
pub(crate) mod samples;
mod schema;
mod sheet;
mod staging;
mod summary;
#[cfg(test)]
mod tests;

pub use archive::{check as check_archive, Archive};
#[cfg(test)]
pub(crate) use beat::Pace as TestPace;
pub use beat::{Beat, Heard};
use beat::{Pace, PACE};
pub use cancel::Wish;
pub use cause::{Cause, Failure};
pub use column::{Absent, Column, Field, Kind, Role};
pub use log::Log;
pub use losses::Losses;
pub use merge::Merged;
pub use metrics::{Direction, Metric, Metrics, Shown, METRICS};
pub use provenance::{
    check_memory, cpu, gigabytes, host, memory_bytes, memory_kills, memory_limit,
    peak_memory_bytes, utc_now, MemoryLimit, Provenance,
};
pub use reconcile::reconcile;
pub use record::{Record, Source, SOURCE_DIGEST};
pub use result::{Outcome, RunResult, RunStatus};
pub use run_dir::{epochs, snapshots, EpochRow, RunDir, SliceRow, Weights};
pub use schema::{columns, place, places, COLUMNS, SCHEMA};
pub use staging::Staging;
pub use summary::{columns_with, read_summary, to_csv, Configs, Scan};

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
    /// Whether locks are tried; without them claims do.
    locks: bool,
    /// How fast its hearts beat.
    pace: Pace,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Never begun.
    Missing,
    /// Begun; being worked on, or interrupted.
    Started,
    /// Finished with a number (which may be that of a diverged training).
    Done,
    /// Ended by an error.
    Failed,
}

impl Store {
    /// The results folder `out`, made if it is missing, ready to be written to.
    pub fn open(out: &Path) -> Result<Self> {
        refuse_non_folder(out)?;
        let store = Self {
            out: out.to_owned(),
            locks: true,
            pace: PACE,
        };
        fs::create_dir_all(out.join(RUNS))
            .and_then(|()| tempfile::tempfile_in(out).map(drop))
            .map_err(|e| {
                Error::flag_value("--out", out.display(), format!("cannot write to this results folder: {e}; give a folder that can be written to"))
            })?;
        Ok(store)
    }

    /// The results folder `out` to read from; nothing is made or written.
    pub fn existing(out: &Path) -> Result<Self> {
        if out.exists() && !out.is_dir() {
            refuse!(path out, "a file, not a results folder; give the folder that holds `{RUNS}`");
        }
        if !out.exists() {
            refuse!(path out, "there is no such results folder; --out names the one that holds `{RUNS}`");
        }
        Ok(Self {
            out: out.to_owned(),
            locks: true,
            pace: PACE,
        })
    }

    /// The same folder as on a file system without locks.
    #[cfg(test)]
    pub(crate) fn without_locks(self) -> Self {
        Self {
            locks: false,
            ..self
        }
    }

    /// The same folder where time runs faster.
    #[cfg(test)]
    pub(crate) fn at_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// How far the run `id` has come.
    pub fn status(&self, id: &str) -> Result<Status> {
        Ok(match self.result(id)? {
            Some(result) if result.status == RunStatus::Failed => Status::Failed,
            Some(_) => Status::Done,
            None if self.run_folder(id).join(CONFIG).exists() => Status::Started,
            None => Status::Missing,
        })
    }

    /// The result of the run `id`, if it is finished.
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
        // Those of earlier versions, which have no seal, have no field that this one does not know.
        match sealed.map_or_else(|| unknown(&document, &result), |_| None) {
            Some(name) => Err(broken(&format!("it has an unknown field `{name}`"))),
            None => Ok(Some(result)),
        }
    }

    /// The config of the run `id`, which has begun at least.
    pub fn config(&self, id: &str) -> Result<RunConfig> {
        read_config(&self.run_folder(id).join(CONFIG))
    }

    /// The runs whose ids begin with `prefix`, by id.
    pub fn find(&self, prefix: &str) -> Result<Vec<String>> {
        let folder = self.out.join(RUNS);
        let entries = fs::read_dir(&folder).map_err(Error::io("read", &folder))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut found: Vec<String> = names
            .filter(|name| name.starts_with(prefix) && self.run_folder(name).join(CONFIG).exists())
            .collect();
        found.sort();
        Ok(found)
    }

    /// The epochs of the run `id` so far; none of a run that is not there.
    pub fn epochs(&self, id: &str) -> Result<Vec<EpochRow>> {
        run_dir::epochs(&self.run_folder(id))
    }

    /// The accuracies of slices of the test answers of the run `id`, epoch by epoch; none of a run that is not finished, of a task
    /// that tells none apart, or by an earlier version.
    pub fn slices(&self, id: &str) -> Result<Vec<SliceRow>> {
        run_dir::slices(&self.run_folder(id))
    }

    /// Removes what a killed process may have left of the run `id`, which is done: checkpoints, claim and beat.
    pub fn tidy(&self, id: &str) -> Result<()> {
        run_dir::tidy(self, id)
    }

    /// When the run `id` was first begun (UTC), if it was.
    pub fn started(&self, id: &str) -> Result<Option<String>> {
        run_dir::started(&self.run_folder(id))
    }

    /// Takes up a run, new or interrupted, until the [`RunDir`] is dropped.
    ///
    /// A failed result is cleared, so that a retry that is killed counts as started. A finished
    /// one stays until [`RunDir::finish`] replaces it.
    pub fn begin(&self, config: &RunConfig, provenance: &Provenance) -> Result<RunDir> {
        RunDir::begin(self, config, provenance)
    }

    /// Every finished run of `tasks`, sorted by run id, read from the run folders.
    pub fn rows(&self, tasks: &[&str]) -> Result<Scan> {
        summary::scan(self, tasks)
    }

    /// The configs of all runs, begun or finished, sorted by run id.
    pub fn configs(&self) -> Result<Configs> {
        summary::configs(self)
    }

    /// The files `*.csv` of the folder that are summaries, by name. Where it has run folders, those of `tasks` are left out,
    /// which are made of these; a file without a column `schema` is none.
    pub fn other_summaries(&self, tasks: &[&str]) -> Result<Vec<PathBuf>> {
        let made: Vec<PathBuf> = match self.out.join(RUNS).exists() {
            true => tasks.iter().map(|task| self.summary_path(task)).collect(),
            false => Vec::new(),
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.out).map_err(Error::io("read", &self.out))? {
            let path = entry.map_err(Error::io("read", &self.out))?.path();
            let hidden = path.file_name().is_some_and(is_hidden);
            let csv = !hidden && path.is_file() && path.extension().is_some_and(|end| end == "csv");
            if csv && !made.contains(&path) && summary::is_summary(&path)? {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Where the summary of `task` stands.
    pub fn summary_path(&self, task: &str) -> PathBuf {
        self.out.join(format!("{task}.csv"))
    }

    /// Puts the row of the finished run `id` into the summary of `task`.
    fn add_to_summary(&self, task: &str, id: &str) -> Result<()> {
        summary::add(self, task, id)
    }

    /// Writes the summary of `task` anew from the run folders.
    pub fn refresh_summary(&self, task: &str) -> Result<()> {
        summary::refresh(self, task)
    }

    /// The folder of the run `id`, whether or not it exists.
    pub fn run_folder(&self, id: &str) -> PathBuf {
        self.out.join(RUNS).join(id)
    }
}

/// A field of `document` that `result`, read from it, does not have.
fn unknown<'a>(document: &'a Value, result: &RunResult) -> Option<&'a str> {
    let known = serde_json::to_value(result).expect("a result is plain data");
    let mut names = document.as_object()?.iter();
    let (name, _) = names.find(|(name, value)| known.get(name).is_none() && !is_empty(value))?;
    Some(name)
}

/// Whether it is a value that is not written at all when it is nothing.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value == ""
}

/// The config of a run that a file holds.
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

#[cfg(test)]
mod opening {
    use super::*;
    use crate::error::testing::Fails;

    #[test]
    fn a_store_opens_where_nothing_was() {
        let dir = tempfile::tempdir().unwrap();
        Store::open(&dir.path().join("a/b")).unwrap();
        assert!(dir.path().join("a/b/runs").is_dir());
    }

    #[test]
    fn a_store_refuses_a_file_as_its_folder_and_says_what_to_give() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let at = Store::open(file.path()).refuses("--out");
        at.gives(&file.path().display().to_string());
    }

    #[test]
    fn a_store_below_a_file_cannot_be_made() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let below = file.path().join("results");
        let at = Store::open(&below).refuses("--out");
        at.gives(&below.display().to_string());
    }

    #[test]
    fn reading_a_missing_folder_says_so_and_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("none");
        let at = Store::existing(&out).fails("refused");
        at.is_at(&out, None).names(&["--out", "`runs`"]);
        assert!(!out.exists());
    }

    #[test]
    fn a_store_without_runs_has_no_rows() {
        let dir = tempfile::tempdir().unwrap();
        let scan = Store::existing(dir.path())
            .unwrap()
            .rows(&["mqar"])
            .unwrap();
        assert!(scan.rows.is_empty() && scan.warnings.is_empty());
    }
}
