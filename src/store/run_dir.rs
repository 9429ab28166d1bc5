//! Folder of one run, while a process works on it.

use super::claim::{remove_asides, RunClaim, CLAIM};
use super::heartbeat::{Heartbeat, HeartbeatThread, BEAT};
use super::losses::Losses;
use super::summary::to_csv;
use super::{read_if_present, utc_now, Provenance, RunResult, RunStatus, Store};
use super::{CONFIG, RESULT};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::files::{
    begin, publish, remove_if_present, remove_unfinished, seal, write_atomic, write_atomic_by, write_to,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

const ENV: &str = "env.json";
const METRICS: &str = "metrics.csv";
const SLICES: &str = "slices.csv";
const LOSSES: &str = "losses.csv";
/// Field of a result that holds the digest of `metrics.csv`.
const METRICS_DIGEST: &str = "metrics_sha256";
/// Field of a result that holds the digest of `slices.csv`.
const SLICES_DIGEST: &str = "slices_sha256";
/// File names of the newest checkpoint and the one before it.
const CHECKPOINTS: [&str; 2] = ["checkpoint.safetensors", "checkpoint-before.safetensors"];

/// Exclusive access to the folder of one run. The run is released when it is dropped, or when its process is killed.
#[derive(Debug)]
pub struct RunDir {
    store: Store,
    id: String,
    task: String,
    folder: PathBuf,
    started: String,
    /// Declared before the claim, so that it stops while this process still owns the run.
    heart: HeartbeatThread,
    claim: RunClaim,
}

/// One epoch of a run: a row of `metrics.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRow {
    /// Number of the epoch, from 1.
    pub epoch: usize,
    /// Mean training loss; may be NaN.
    pub train_loss: f64,
    /// Mean test loss after the epoch; may be NaN.
    pub test_loss: f64,
    /// Test accuracy after the epoch, 0 to 1.
    pub accuracy: f64,
    /// Learning rate of the epoch's last step.
    pub lr: f64,
    /// Seconds of this epoch, training and test.
    pub seconds: f64,
    /// Training tokens per second.
    pub tokens_per_s: f64,
    /// Mean loss on the validation split, if there is one.
    #[serde(default)]
    pub val_loss: Option<f64>,
    /// Accuracy on the validation split.
    #[serde(default)]
    pub val_accuracy: Option<f64>,
    /// Mean over classes of the test accuracy of each, in tasks that report it.
    #[serde(default)]
    pub macro_accuracy: Option<f64>,
}

/// Accuracy on one slice of the test answers after one epoch: a row of `slices.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceRow {
    /// The epoch, from 1.
    pub epoch: usize,
    /// Property that defines the slices: `pair` or `distance` for MQAR.
    pub by: String,
    /// Lower bound of the property in the slice.
    pub from: usize,
    /// Upper bound, inclusive.
    pub to: usize,
    /// Number of answers in the slice.
    pub answers: usize,
    /// Fraction of correct answers, 0 to 1.
    pub accuracy: f64,
}

/// Weights kept after a run on text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Final weights.
    Last,
    /// Weights of the epoch with the best validation score.
    Best,
}

impl Weights {
    /// File name in the folder of a run.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Last => "weights.safetensors",
            Self::Best => "best.safetensors",
        }
    }
}

/// Prefix and suffix of the names of per-epoch weights.
const SNAPSHOT: [&str; 2] = ["epoch-", ".safetensors"];

/// Returns the file name of the weights after `epoch` epochs; 0 is the initialisation.
fn snapshot(epoch: usize) -> String {
    let [front, end] = SNAPSHOT;
    format!("{front}{epoch:04}{end}")
}

/// Returns the paths of the per-epoch weights in the folder of a run, in order; empty if none were kept.
pub fn snapshots(folder: &Path) -> Result<Vec<PathBuf>> {
    let [front, end] = SNAPSHOT;
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let name = entry.map_err(Error::io("read", folder))?.file_name();
        let epoch = name.to_str().and_then(|name| name.strip_prefix(front)?.strip_suffix(end)?.parse().ok());
        found.extend(epoch.map(|epoch: usize| (epoch, folder.join(&name))));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

impl Store {
    /// Returns the epochs of the run `id` so far; empty if there is no such run.
    pub fn epochs(&self, id: &str) -> Result<Vec<EpochRow>> {
        epochs(&self.run_folder(id))
    }

    /// Returns the accuracies by slice of the test answers of the run `id`, for every epoch. Empty if the run is not
    /// finished, if its task has no slices, or if an earlier version trained it.
    pub fn slices(&self, id: &str) -> Result<Vec<SliceRow>> {
        rows(&self.run_folder(id), SLICES, SLICES_DIGEST, "accuracies by slice")
    }

    /// Returns the time at which the run `id` was first begun (UTC), if it was.
    pub fn started(&self, id: &str) -> Result<Option<String>> {
        earlier_start(&self.run_folder(id).join(ENV))
    }

    /// Removes what a killed process may have left of the finished run `id`: checkpoints, claim and heartbeat.
    pub fn tidy(&self, id: &str) -> Result<()> {
        let folder = self.run_folder(id);
        if !folder.join(CLAIM).exists() {
            return Ok(());
        }
        let Some(_claim) = RunClaim::take(&folder, self.locks, self.timing)? else {
            return Ok(()); // a process still works on it, and will clean up itself
        };
        remove_unfinished(&folder)?;
        remove_asides(&folder, self.timing)?;
        remove_if_present(&folder.join(BEAT))?;
        remove_checkpoints(&folder)
    }

    /// Begins or resumes a run and claims it until the [`RunDir`] is dropped.
    ///
    /// A failed result is removed, so that a retry that is killed counts as started. A finished result stays until
    /// [`RunDir::finish`] replaces it.
    pub fn begin(&self, config: &RunConfig, provenance: &Provenance) -> Result<RunDir> {
        let id = config.id();
        let folder = self.run_folder(&id);
        let Some(claim) = RunClaim::take(&folder, self.locks, self.timing)? else {
            return Err(Error::Busy(id));
        };
        remove_unfinished(&folder)?;
        remove_asides(&folder, self.timing)?;
        record_config(&folder.join(CONFIG), config)?;
        let mut provenance = provenance.clone();
        match self.result(&id)?.map(|result| result.status) {
            None => provenance.started = earlier_start(&folder.join(ENV))?.unwrap_or(provenance.started),
            Some(RunStatus::Failed) => remove_if_present(&folder.join(RESULT))?,
            Some(RunStatus::Done) => remove_checkpoints(&folder)?,
        }
        write_atomic(&folder.join(ENV), &pretty(&provenance))?;
        let heart = HeartbeatThread::start(
            &folder,
            Heartbeat { host: provenance.host, pid: std::process::id(), since: utc_now(), ..Heartbeat::default() },
            self.timing,
        )?;
        Ok(RunDir {
            store: self.clone(),
            id,
            task: config.task.name().to_owned(),
            folder,
            started: provenance.started,
            heart,
            claim,
        })
    }
}

impl RunDir {
    /// The run's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Time at which the run was first begun (UTC); resuming a run keeps it.
    pub fn started(&self) -> &str {
        &self.started
    }

    /// Returns an error if another process has taken over the run because this one seemed to be gone.
    fn still_mine(&self) -> Result<()> {
        if self.claim.holds()? {
            Ok(())
        } else {
            Err(Error::Busy(self.id.clone()))
        }
    }

    /// Updates the heartbeat of the run.
    pub fn update_heartbeat(&self, change: impl FnOnce(&mut Heartbeat)) {
        self.heart.update(change);
    }

    /// Returns the result, if another process finished the run before this one claimed it.
    pub fn result(&self) -> Result<Option<RunResult>> {
        self.store.result(&self.id)
    }

    /// Writes all epochs so far. The file is rewritten as a whole, so that a resumed run has no duplicate or torn rows.
    pub fn write_metrics(&self, epochs: &[EpochRow]) -> Result<()> {
        self.still_mine()?;
        let path = self.folder.join(METRICS);
        let bytes = to_csv(epochs, &path)?;
        write_atomic(&path, &bytes)
    }

    /// Writes the accuracies by slice of the test answers, if there are any.
    pub fn write_slices(&self, rows: &[SliceRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.still_mine()?;
        let path = self.folder.join(SLICES);
        let bytes = to_csv(rows, &path)?;
        write_atomic(&path, &bytes)
    }

    /// Reads the epochs so far.
    pub fn read_metrics(&self) -> Result<Vec<EpochRow>> {
        epochs(&self.folder)
    }

    /// Opens the losses of a run on text and keeps those of its first `steps` steps.
    pub fn losses(&self, steps: usize) -> Result<Losses> {
        Losses::open(&self.folder.join(LOSSES), steps)
    }

    /// Writes weights to the folder of the run.
    pub fn write_weights(&self, which: Weights, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        write_atomic_by(&self.folder.join(which.file()), write)
    }

    /// Writes the weights after `epoch` epochs.
    pub fn write_snapshot(&self, epoch: usize, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        write_atomic_by(&self.folder.join(snapshot(epoch)), write)
    }

    /// Writes a checkpoint and keeps the previous one.
    pub fn write_checkpoint(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let [newest, before] = CHECKPOINTS.map(|name| self.folder.join(name));
        let file = begin(&newest)?;
        write_to(&file, write).map_err(Error::io("write", &newest))?;
        self.still_mine()?;
        match fs::rename(&newest, &before) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("rename", &newest)(e)),
            _ => publish(file, &newest),
        }
    }

    /// Returns the checkpoints of an unfinished run, at most two, the newest first. Each is read lazily.
    pub fn checkpoints(&self) -> impl Iterator<Item = Result<(PathBuf, Vec<u8>)>> + '_ {
        let paths = CHECKPOINTS.iter().map(|name| self.folder.join(name));
        paths.filter_map(|path| {
            let read = read_if_present(&path).transpose()?;
            Some(read.map(|bytes| (path, bytes)))
        })
    }

    /// Removes a damaged checkpoint; otherwise the next one would keep it instead of the intact one before it.
    pub fn discard_checkpoint(&self, path: &Path) -> Result<()> {
        remove_if_present(path)
    }

    /// Publishes the result and updates the task's summary. The checkpoints of a run that is done are removed; a failed
    /// run keeps them, so that a retry resumes there.
    ///
    /// The run is finished once the result is written, even if the summary cannot be written: any later run rebuilds
    /// it.
    pub fn finish(self, result: &RunResult) -> Result<()> {
        self.still_mine()?;
        let mut sealed = json(result);
        for (file, digest) in [(METRICS, METRICS_DIGEST), (SLICES, SLICES_DIGEST)] {
            if let Some(rows) = read_if_present(&self.folder.join(file))? {
                sealed[digest] = digest_of(&rows).into();
            }
        }
        seal(&mut sealed);
        write_atomic(&self.folder.join(RESULT), &pretty(&sealed))?;
        if result.status == RunStatus::Done {
            remove_checkpoints(&self.folder)?;
        }
        self.store.add_to_summary(&self.task, &self.id)
    }
}

#[cfg(test)]
impl RunDir {
    /// Leaves claim and heartbeat behind, like a process that was killed.
    pub(crate) fn crash(self) {
        self.heart.stop();
        self.claim.crash();
    }
}

fn remove_checkpoints(folder: &Path) -> Result<()> {
    let mut names = CHECKPOINTS.iter();
    names.try_for_each(|name| remove_if_present(&folder.join(name)))
}

/// Reads the epochs of the run in `folder`; empty if nothing was trained yet.
pub fn epochs(folder: &Path) -> Result<Vec<EpochRow>> {
    rows(folder, METRICS, METRICS_DIGEST, "epochs")
}

/// Reads the rows of `file` in `folder` and verifies the digest called `digest` in the result; `what` names the rows in
/// messages.
fn rows<T: DeserializeOwned>(folder: &Path, file: &str, digest: &str, what: &str) -> Result<Vec<T>> {
    let path = folder.join(file);
    let Some(bytes) = read_if_present(&path)? else {
        return Ok(Vec::new());
    };
    let broken = |why: String| {
        let folder = folder.display();
        let remedy = format!("delete the folder {folder} to train it from the start");
        Error::corrupt(&path, format!("not the {what} of a run: {why}; {remedy}"))
    };
    if let Some(written) = written_digest(folder, digest)? {
        if written != digest_of(&bytes) {
            return Err(broken("they were changed since the run ended".into()));
        }
    }
    let rows: Result<Vec<T>, csv::Error> = csv::Reader::from_reader(&bytes[..]).deserialize().collect();
    rows.map_err(|e| broken(e.to_string()))
}

/// Returns the digest called `name` in the result in `folder`; `None` if the run is not finished, or if an earlier
/// version trained it.
fn written_digest(folder: &Path, name: &str) -> Result<Option<String>> {
    let bytes = read_if_present(&folder.join(RESULT))?.unwrap_or_default();
    let result: Option<Value> = serde_json::from_slice(&bytes).ok();
    let digest = result.and_then(|result| Some(result.get(name)?.as_str()?.to_owned()));
    Ok(digest)
}

fn digest_of(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn record_config(path: &Path, config: &RunConfig) -> Result<()> {
    let Some(bytes) = read_if_present(path)? else {
        return write_atomic(path, &pretty(config));
    };
    let same = serde_json::from_slice::<Value>(&bytes)
        .is_ok_and(|found| serde_json::to_value(config).is_ok_and(|wanted| identity(found) == identity(wanted)));
    if !same {
        let reason = format!(
            "not the config of run {}: it was edited or damaged; move its folder away, then try again",
            config.id()
        );
        return Err(Error::corrupt(path, reason));
    }
    Ok(())
}

/// `config` without the name of the weights that its run starts from, which is no part of the run's identity.
fn identity(mut config: Value) -> Value {
    if let Some(from) = config.get_mut("from").and_then(Value::as_object_mut) {
        from.remove("name");
    }
    config
}

/// Ignores a damaged `env.json`: only its start time is lost, and the file is about to be rewritten.
fn earlier_start(path: &Path) -> Result<Option<String>> {
    let bytes = read_if_present(path)?.unwrap_or_default();
    let earlier: Option<Provenance> = serde_json::from_slice(&bytes).ok();
    Ok(earlier.map(|p| p.started))
}

fn pretty(value: &impl Serialize) -> Vec<u8> {
    // `Value` sorts its keys.
    format!("{:#}\n", json(value)).into_bytes()
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data has a JSON form")
}
