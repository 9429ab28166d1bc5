//! What the workers of a run said on stderr, one after the other, in one file.

use super::Store;
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

const LOG: &str = "worker.log";
/// The end of a log that [`Log::read`] gives; a panic with its backtrace is shorter.
const LONGEST: u64 = 1 << 16;

/// The log of a run, from where it ended when it was opened.
pub struct Log {
    file: File,
    path: PathBuf,
    start: u64,
}

impl Store {
    /// The log of the run `id`, which is made if it is missing; what was said before is kept.
    pub fn open_log(&self, id: &str) -> Result<Log> {
        let folder = self.run_folder(id);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let path = folder.join(LOG);
        let file = File::options()
            .create(true)
            .append(true)
            .read(true)
            .open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        let start = file.metadata().map_err(Error::io("read", &path))?.len();
        Ok(Log { file, path, start })
    }
}

impl Log {
    /// A handle that appends, for the stderr of a process.
    pub fn writer(&self) -> Result<File> {
        self.file.try_clone().map_err(Error::io("open", &self.path))
    }

    /// What has been written since it was opened, of much the end.
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
