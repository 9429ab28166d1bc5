//! Thread that polls the cancellation marker of a results folder during a sweep.

use crate::error::{Error, Result};
use crate::store::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Interval between polls.
const EVERY: Duration = Duration::from_secs(1);

/// Polls until it is dropped.
pub struct CancelWatcher {
    cancelled: Arc<AtomicBool>,
    /// Dropped to end the thread.
    _alive: Sender<()>,
}

impl CancelWatcher {
    /// Starts polling; sets `stop` once `store` holds a new marker.
    pub fn start(store: &Store, stop: &Arc<AtomicBool>) -> Result<Self> {
        let (alive, ended) = mpsc::channel::<()>();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (store, stop, told) = (store.clone(), Arc::clone(stop), Arc::clone(&cancelled));
        let before = store.cancel_marker()?;
        let listen = move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                // A read error may be temporary, so polling continues.
                if store.cancel_marker().is_ok_and(|marker| marker != before) {
                    told.store(true, Ordering::Relaxed);
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("cancel".to_owned()).spawn(listen).map(drop);
        started.map_err(|e| Error::usage(format!("cannot listen for `dsf sweep cancel`: {e}")))?;
        Ok(Self { cancelled, _alive: alive })
    }

    /// Whether the sweep has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
