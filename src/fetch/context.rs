//! What a fetch needs of its caller: a place to report progress, and a flag that stops it.

use crate::error::{Error, Result};
use crate::files;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Receives the progress of a download or an unpacking.
pub trait Progress {
    /// A sentence for a person.
    fn say(&mut self, line: &str);
    /// `what` begins at byte `done` of `total`, where that is known.
    fn start(&mut self, what: &str, done: u64, total: Option<u64>);
    /// The length of the whole, where it became known only now.
    fn total(&mut self, total: u64);
    /// The byte that has been reached.
    fn reach(&mut self, done: u64);
    /// What [`Self::start`] began is over, whole or not.
    fn end(&mut self);
}

/// The caller's side of a fetch.
pub struct FetchContext<'a> {
    /// Where progress is reported.
    pub progress: &'a mut dyn Progress,
    /// Raised to stop; what has been downloaded stays for the next call.
    pub stop: &'a AtomicBool,
    /// The pause before a broken download is tried again; it doubles each time.
    pub pause: Duration,
}

/// Between looks at the stop flag.
const POLL: Duration = Duration::from_millis(50);

impl FetchContext<'_> {
    /// [`Error::Stopped`] once the flag is raised.
    pub(super) fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// The next message of another thread, which may wait for a network that cannot be hurried; within
    /// `limit`, unless stopped.
    pub(super) fn receive<T>(
        &self,
        messages: &Receiver<T>,
        limit: Duration,
    ) -> Result<Result<T, RecvTimeoutError>> {
        let end = Instant::now() + limit;
        loop {
            self.go_on()?;
            match messages.recv_timeout(POLL) {
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                other => return Ok(other),
            }
        }
    }

    /// Sleeps, unless stopped.
    pub(super) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.go_on()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    /// Takes the lock file at `path` and waits, saying so once, while another process has it.
    pub(super) fn lock(&mut self, path: &Path) -> Result<File> {
        let mut said = false;
        files::lock(path, || {
            if !std::mem::replace(&mut said, true) {
                let lock = path.display();
                let line = format!("another process fetches this already: waiting for {lock}");
                self.progress.say(&line);
            }
            self.go_on()
        })
    }
}
