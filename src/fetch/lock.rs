//! One process at a time for each archive and each file of the hub.

use super::host::Host;
use crate::error::Result;
use crate::files;
use std::fs::File;
use std::path::Path;

/// Takes the lock file at `path`, and waits for it while another process has it. It goes with the
/// value, and with the process.
pub(super) fn take(path: &Path, host: &mut Host) -> Result<File> {
    let mut said = false;
    files::lock(path, || {
        if !said {
            said = true;
            let path = path.display();
            let sentence = format!("another process fetches this already: waiting for {path}");
            host.watch.say(&sentence);
        }
        host.go_on()
    })
}
