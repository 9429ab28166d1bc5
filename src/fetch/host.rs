//! Who asked: where progress is told and how a download is stopped.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Hears how far a download or an unpacking is.
pub trait Watch {
    /// A sentence for a person.
    fn say(&mut self, line: &str);
    /// `what` begins at byte `done` of `total`, where that is known.
    fn start(&mut self, what: &str, done: u64, total: Option<u64>);
    /// The whole length, where it became known only now.
    fn total(&mut self, total: u64);
    /// The byte that has been reached.
    fn reach(&mut self, done: u64);
    /// What [`Self::start`] began is over, whole or not.
    fn end(&mut self);
}

/// What a fetch needs of its caller.
pub struct Host<'a> {
    /// Where progress is told.
    pub watch: &'a mut dyn Watch,
    /// Raised to stop; what has been downloaded stays for the next call.
    pub stop: &'a AtomicBool,
    /// The pause before a broken download is tried again; it doubles each time.
    pub pause: Duration,
}

/// Between looks at the stop flag.
const LOOK: Duration = Duration::from_millis(50);

impl Host<'_> {
    /// [`Error::Stopped`] once the flag is up.
    pub(super) fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// What another thread sends, which may wait for a network that cannot be hurried; within
    /// `limit`, unless stopped.
    pub(super) fn receive<T>(
        &self,
        sent: &Receiver<T>,
        limit: Duration,
    ) -> Result<Result<T, RecvTimeoutError>> {
        let end = Instant::now() + limit;
        loop {
            self.go_on()?;
            match sent.recv_timeout(LOOK) {
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
            std::thread::sleep(left.min(LOOK));
        }
    }
}
