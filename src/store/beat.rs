//! `beat.json`: the progress of the process that works on a run, written anew every few seconds. What it says decides nothing:
//! the lock says who has the run, and where there are no locks, the time at which this file last changed.

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
/// How fast hearts beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The file of a run in work is never much older than this ...
    pub every: Duration,
    /// ... and one older than this is of a process that is gone, or cut off.
    pub silent: Duration,
}

/// Slow enough for a network file system.
pub(super) const PACE: Pace = Pace {
    every: Duration::from_secs(5),
    silent: Duration::from_secs(60),
};

/// Who works on a run, and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Name of the host.
    pub host: String,
    /// Number of the process there.
    pub pid: u32,
    /// When it took the run up (UTC).
    pub since: String,
    /// Epochs that are over.
    pub epoch: usize,
    /// Epochs at most; 0 until training begins.
    pub epochs: usize,
    /// Steps of the present epoch that are made.
    pub step: usize,
    /// Steps of an epoch.
    pub steps: usize,
    /// Mean training loss of the present epoch, where it is a number.
    pub loss: Option<f64>,
    /// Seconds of training so far.
    pub seconds: f64,
}

impl Beat {
    /// Epochs that are over, with the part of the present one.
    pub fn epochs_made(&self) -> f64 {
        self.epoch as f64 + self.step as f64 / self.steps.max(1) as f64
    }
}

/// A beat as another process finds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// What it says.
    pub beat: Beat,
    /// How long ago.
    pub ago: Duration,
}

impl Heard {
    /// Whether its process is still at work, as far as can be told.
    pub fn is_fresh(&self) -> bool {
        self.ago <= PACE.silent
    }
}

impl Store {
    /// The last beat of the run `id`, if a process has it in hand or died over it.
    pub fn beat(&self, id: &str) -> Result<Option<Heard>> {
        let path = self.run_folder(id).join(BEAT);
        let Some(bytes) = read_if_present(&path)? else {
            return Ok(None);
        };
        // A file that no longer is there, or is of a later version, says nothing.
        let written = path.metadata().and_then(|file| file.modified());
        let beat = serde_json::from_slice(&bytes);
        let (Ok(written), Ok(beat)) = (written, beat) else {
            return Ok(None);
        };
        let ago = SystemTime::now().duration_since(written);
        Ok(Some(Heard {
            beat,
            ago: ago.unwrap_or_default(), // clocks of two hosts differ
        }))
    }
}

/// Writes a beat every few seconds, from [`Self::start`] until it is dropped.
#[derive(Debug)]
pub(super) struct Heart {
    beat: Arc<Mutex<Beat>>,
    path: PathBuf,
    /// Dropped to end the thread.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    /// The heart of a run in `folder`, of which the caller holds the lock.
    pub fn start(folder: &Path, first: Beat, pace: Pace) -> Result<Self> {
        let path = folder.join(BEAT);
        let (alive, ended) = mpsc::channel::<()>();
        let beat = Arc::new(Mutex::new(first));
        let (shared, file) = (Arc::clone(&beat), path.clone());
        write(&shared, &file);
        let beats = move || {
            while ended.recv_timeout(pace.every) == Err(RecvTimeoutError::Timeout) {
                write(&shared, &file);
            }
        };
        let thread = thread::Builder::new()
            .name("heart".to_owned())
            .spawn(beats)
            .map_err(Error::io("start the heartbeat of", &path))?;
        Ok(Self {
            beat,
            path,
            alive: Some(alive),
            thread: Some(thread),
        })
    }

    /// Changes what the next beat says.
    pub fn tell(&self, change: impl FnOnce(&mut Beat)) {
        change(&mut self.beat.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
impl Heart {
    /// As when the process is killed: the file stays as it is.
    pub fn stop(mut self) {
        self.end();
        std::mem::forget(self);
    }
}

impl Heart {
    /// Ends the thread, and waits for it.
    fn end(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that could matter now.
            let _ = thread.join();
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.end();
        let _ = remove_if_present(&self.path);
    }
}

/// On a full disk nobody hears, and training goes on.
fn write(beat: &Mutex<Beat>, path: &Path) {
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
        assert_eq!(
            (heard.beat.host.as_str(), heard.beat.pid),
            ("laptop", std::process::id())
        );
        let id = run.id().to_owned();
        drop(run);
        assert_eq!(store.beat(&id).unwrap(), None);
    }

    #[test]
    fn a_beat_says_what_it_was_told_last() {
        let dir = tempfile::tempdir().unwrap();
        let heart = Heart::start(dir.path(), Beat::default(), PACE).unwrap();
        heart.tell(|beat| (beat.epoch, beat.step, beat.steps) = (3, 1, 4));
        write(&heart.beat, &heart.path);
        let text = std::fs::read(&heart.path).unwrap();
        let read: Beat = serde_json::from_slice(&text).unwrap();
        assert_eq!(read.epochs_made(), 3.25);
    }

    #[test]
    fn an_old_beat_is_of_a_process_that_is_gone() {
        let heard = |seconds| Heard {
            beat: Beat::default(),
            ago: Duration::from_secs(seconds),
        };
        assert!(heard(20).is_fresh() && !heard(90).is_fresh());
    }
}
