//! Cancellation marker: a file in the results folder that running sweeps poll, on any host.

use super::{read_if_present, Store};
use crate::error::{Error, Result};
use crate::files::write_atomic;
use std::path::PathBuf;
use std::time::SystemTime;

const CANCEL: &str = "cancel";

/// Contents of the cancellation marker. Every request writes different bytes, so a sweep can ignore a marker that was
/// there before it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelMarker(Option<Vec<u8>>);

impl Store {
    fn cancel_path(&self) -> PathBuf {
        self.out.join(CANCEL)
    }

    /// Reads the current marker, if there is one.
    pub fn cancel_marker(&self) -> Result<CancelMarker> {
        read_if_present(&self.cancel_path()).map(CancelMarker)
    }

    /// Requests that all sweeps running on this folder stop after a checkpoint.
    pub fn cancel(&self) -> Result<()> {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_err(|_| Error::usage("the clock of this machine is set before 1970"))?;
        // The time and the process id make every marker unique.
        let marker = format!("{} {}\n", now.as_nanos(), std::process::id());
        write_atomic(&self.cancel_path(), marker.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wish_differs_from_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let none = store.cancel_marker().unwrap();
        assert_eq!(store.cancel_marker().unwrap(), none);
        store.cancel().unwrap();
        let first = store.cancel_marker().unwrap();
        store.cancel().unwrap();
        assert!(first != none && store.cancel_marker().unwrap() != first);
    }
}
