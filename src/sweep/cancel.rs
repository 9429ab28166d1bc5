//! A sweep that listens for the wish that it stop, whoever leaves it in the results folder.

use crate::error::{Error, Result};
use crate::store::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How soon a wish is heard.
const EVERY: Duration = Duration::from_secs(1);

/// Listens until it is dropped.
pub struct Listener {
    heard: Arc<AtomicBool>,
    /// Dropped to end the thread.
    _alive: Sender<()>,
}

impl Listener {
    /// Raises `stop` at the first wish that `store` does not hold yet.
    pub fn start(store: &Store, stop: &Arc<AtomicBool>) -> Result<Self> {
        let (alive, ended) = mpsc::channel::<()>();
        let heard = Arc::new(AtomicBool::new(false));
        let (store, stop, told) = (store.clone(), Arc::clone(stop), Arc::clone(&heard));
        let before = store.wish()?;
        let listen = move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                // A folder that cannot be read for a moment is looked at again.
                if store.wish().is_ok_and(|wish| wish != before) {
                    told.store(true, Ordering::Relaxed);
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("cancel".to_owned());
        let started = thread.spawn(listen).map(drop);
        started.map_err(|e| Error::usage(format!("cannot listen for `dsf sweep cancel`: {e}")))?;
        Ok(Self {
            heard,
            _alive: alive,
        })
    }

    /// Whether it was heard that the sweep is to stop.
    pub fn heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}
