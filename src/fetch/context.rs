//! Progress reports and the stop flag, which the caller of a fetch provides.

use crate::error::{Error, Result};
use crate::files;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Receiver of the progress of a download or an unpacking.
pub trait TransferProgress {
    /// Prints a sentence for the user.
    fn say(&mut self, line: &str);
    /// Begins the operation `what` at byte `done`. Its length is `total`, if that is known.
    fn start(&mut self, what: &str, done: u64, total: Option<u64>);
    /// Sets the total length, if it becomes known only now.
    fn total(&mut self, total: u64);
    /// Sets the number of bytes reached.
    fn reach(&mut self, done: u64);
    /// Ends the operation, complete or not.
    fn end(&mut self);
}

/// Interface between a fetch and its caller.
pub struct FetchContext<'a> {
    /// Receiver of progress reports.
    pub progress: &'a mut dyn TransferProgress,
    /// Stop flag. Once it is set, the fetch ends, and the next one continues from the downloaded bytes.
    pub stop: &'a AtomicBool,
    /// Pause before the first retry of a failed download. It doubles with each retry.
    pub pause: Duration,
}

/// Interval between checks of the stop flag.
const POLL: Duration = Duration::from_millis(50);

impl FetchContext<'_> {
    /// Fails with [`Error::Stopped`] once the stop flag is set.
    pub(super) fn check_stopped(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// Waits at most `limit` for the next message of a thread that may block on the network. The outer result fails if
    /// the stop flag is set, the inner one if no message arrived.
    pub(super) fn receive<T>(&self, messages: &Receiver<T>, limit: Duration) -> Result<Result<T, RecvTimeoutError>> {
        let end = Instant::now() + limit;
        loop {
            self.check_stopped()?;
            match messages.recv_timeout(POLL) {
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                other => return Ok(other),
            }
        }
    }

    /// Sleeps for `time`. Fails as soon as the stop flag is set.
    pub(super) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.check_stopped()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    /// Locks the file at `path`. Waits while another process holds the lock, and reports this once.
    pub(super) fn lock(&mut self, path: &Path) -> Result<File> {
        let mut reported = false;
        files::lock(path, || {
            if !std::mem::replace(&mut reported, true) {
                let lock = path.display();
                let line = format!("waiting for another process that downloads the same files; its lock is {lock}");
                self.progress.say(&line);
            }
            self.check_stopped()
        })
    }
}
