//! Worker logs: the stderr of a run's workers, appended to one file.

use super::Store;
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

const LOG: &str = "worker.log";
/// Maximum number of bytes that [`Log::read`] returns; longer than a panic with its backtrace.
const LONGEST: u64 = 1 << 16;

/// Log of a run, from the position at which it was opened.
pub struct Log {
    file: File,
    path: PathBuf,
    start: u64,
}

impl Store {
    /// Opens the log of the run `id`, creating it if it is missing. Earlier output is kept.
    pub fn open_log(&self, id: &str) -> Result<Log> {
        let folder = self.run_folder(id);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let path = folder.join(LOG);
        let file =
            File::options().create(true).append(true).read(true).open(&path).map_err(Error::io("open", &path))?;
        let start = file.metadata().map_err(Error::io("read", &path))?.len();
        Ok(Log { file, path, start })
    }
}

impl Log {
    /// Returns an appending handle, for the stderr of a process.
    pub fn writer(&self) -> Result<File> {
        self.file.try_clone().map_err(Error::io("open", &self.path))
    }

    /// Returns the output appended since the log was opened, truncated to the last 64 KiB.
    pub fn read(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        let read = self.file.seek(SeekFrom::End(0)).and_then(|end| {
            let from = self.start.max(end.saturating_sub(LONGEST));
            self.file.seek(SeekFrom::Start(from))?;
            self.file.read_to_end(&mut bytes)
        });
        read.map_err(Error::io("read", &self.path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
