//! One process at a time for each archive and each file of the hub.

use super::host::Host;
use crate::error::{Error, Result};
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(100);

/// Takes the lock file at `path`, and waits for it while another process has it. It goes with the
/// value, and with the process.
pub(super) fn take(path: &Path, host: &mut Host) -> Result<File> {
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .map_err(Error::io("open", path))?;
    let mut said = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", path)(e)),
            Err(TryLockError::WouldBlock) if !said => {
                said = true;
                let path = path.display();
                let sentence = format!("another process fetches this already: waiting for {path}");
                host.watch.say(&sentence);
            }
            Err(TryLockError::WouldBlock) => {}
        }
        host.sleep(LOOK)?;
    }
}
