//! `beat.json`: heartbeat and progress of the process that works on a run, rewritten every few seconds. Its contents
//! are informative only: the lock decides who owns the run, and on file systems without locks the file's modification
//! time.

use super::{read_if_present, Store};
use crate::error::{Error, Result};
use crate::files::{remove_if_present, write_lightly};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

pub(super) const BEAT: &str = "beat.json";
/// Interval of heartbeats, and the silence after which a process counts as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeartbeatTiming {
    /// Interval between heartbeats.
    pub interval: Duration,
    /// Age of the last heartbeat beyond which the process counts as dead or disconnected.
    pub timeout: Duration,
}

/// Slow enough for a network file system.
pub(super) const TIMING: HeartbeatTiming =
    HeartbeatTiming { interval: Duration::from_secs(5), timeout: Duration::from_secs(60) };

/// Host, process and progress of a run that is being trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Name of the host.
    pub host: String,
    /// Number of the process there.
    pub pid: u32,
    /// Time at which the process began to work on the run (UTC).
    pub since: String,
    /// Completed epochs.
    pub epoch: usize,
    /// Maximum number of epochs; 0 until training begins.
    pub epochs: usize,
    /// Completed steps of the current epoch.
    pub step: usize,
    /// Steps per epoch.
    pub steps: usize,
    /// Mean training loss of the current epoch, if it is a number.
    pub loss: Option<f64>,
    /// Seconds of training so far.
    pub seconds: f64,
}

impl Heartbeat {
    /// Completed epochs, including the fraction of the current one.
    pub fn epochs_made(&self) -> f64 {
        self.epoch as f64 + self.step as f64 / self.steps.max(1) as f64
    }
}

/// A heartbeat read from disk, with its age.
#[derive(Clone, Debug, PartialEq)]
pub struct LastHeartbeat {
    /// Contents of the file.
    pub beat: Heartbeat,
    /// Time since it was written.
    pub age: Duration,
}

impl LastHeartbeat {
    /// Whether its process probably still runs.
    pub fn is_fresh(&self) -> bool {
        self.age <= TIMING.timeout
    }
}

impl Store {
    /// Returns the last heartbeat of the run `id`; `None` unless a process works on it or died while it did.
    pub fn beat(&self, id: &str) -> Result<Option<LastHeartbeat>> {
        let path = self.run_folder(id).join(BEAT);
        let Some(bytes) = read_if_present(&path)? else {
            return Ok(None);
        };
        // A file that has disappeared, or that a later version wrote, counts as no heartbeat.
        let written = path.metadata().and_then(|file| file.modified());
        let beat = serde_json::from_slice(&bytes);
        let (Ok(written), Ok(beat)) = (written, beat) else {
            return Ok(None);
        };
        let ago = SystemTime::now().duration_since(written);
        Ok(Some(LastHeartbeat {
            beat,
            age: ago.unwrap_or_default(), // clocks of two hosts differ
        }))
    }
}

/// Thread that writes a heartbeat every few seconds, from [`Self::start`] until it is dropped.
#[derive(Debug)]
pub(super) struct HeartbeatThread {
    beat: Arc<Mutex<Heartbeat>>,
    path: PathBuf,
    /// Dropped to end the thread.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatThread {
    /// Starts the heartbeat of the run in `folder`. The caller must hold the run's lock.
    pub fn start(folder: &Path, first: Heartbeat, timing: HeartbeatTiming) -> Result<Self> {
        let path = folder.join(BEAT);
        let (alive, ended) = mpsc::channel::<()>();
        let beat = Arc::new(Mutex::new(first));
        let (shared, file) = (Arc::clone(&beat), path.clone());
        write(&shared, &file);
        let beats = move || {
            while ended.recv_timeout(timing.interval) == Err(RecvTimeoutError::Timeout) {
                write(&shared, &file);
            }
        };
        let thread = thread::Builder::new()
            .name("heart".to_owned())
            .spawn(beats)
            .map_err(Error::io("start the heartbeat of", &path))?;
        Ok(Self { beat, path, alive: Some(alive), thread: Some(thread) })
    }

    /// Updates the contents of the next heartbeat.
    pub fn update(&self, change: impl FnOnce(&mut Heartbeat)) {
        change(&mut self.beat.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
impl HeartbeatThread {
    /// Stops without removing the file, like a process that was killed.
    pub fn stop(mut self) {
        self.end();
        std::mem::forget(self);
    }
}

impl HeartbeatThread {
    /// Stops the thread and joins it.
    fn end(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is of no consequence here.
            let _ = thread.join();
        }
    }
}

impl Drop for HeartbeatThread {
    fn drop(&mut self) {
        self.end();
        let _ = remove_if_present(&self.path);
    }
}

/// Ignores errors: training continues on a full disk.
fn write(beat: &Mutex<Heartbeat>, path: &Path) {
    let now = beat.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Ok(text) = serde_json::to_string(&now) {
        let _ = write_lightly(path, format!("{text}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{config, provenance};
    use super::*;

    #[test]
    fn a_run_in_work_is_heard_and_one_that_is_let_go_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let run = store.begin(&config(), &provenance()).unwrap();
        let heard = store.beat(run.id()).unwrap().unwrap();
        assert!(heard.is_fresh());
        assert_eq!((heard.beat.host.as_str(), heard.beat.pid), ("laptop", std::process::id()));
        let id = run.id().to_owned();
        drop(run);
        assert_eq!(store.beat(&id).unwrap(), None);
    }

    #[test]
    fn a_beat_says_what_it_was_told_last() {
        let dir = tempfile::tempdir().unwrap();
        let heart = HeartbeatThread::start(dir.path(), Heartbeat::default(), TIMING).unwrap();
        heart.update(|beat| (beat.epoch, beat.step, beat.steps) = (3, 1, 4));
        write(&heart.beat, &heart.path);
        let text = std::fs::read(&heart.path).unwrap();
        let read: Heartbeat = serde_json::from_slice(&text).unwrap();
        assert_eq!(read.epochs_made(), 3.25);
    }

    #[test]
    fn an_old_beat_is_of_a_process_that_is_gone() {
        let heard = |seconds| LastHeartbeat { beat: Heartbeat::default(), age: Duration::from_secs(seconds) };
        assert!(heard(20).is_fresh() && !heard(90).is_fresh());
    }
}
