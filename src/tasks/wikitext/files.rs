//! Files that appear whole, each made by one process.

use crate::error::{Error, Result};
use crate::tasks::hex;
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;
use tempfile::NamedTempFile;

/// Between looks at a lock.
const LOOK: Duration = Duration::from_millis(100);

/// A file that is not at `path` yet; dropped unpublished, it is removed. The folder is made.
pub(super) fn begin(path: &Path) -> Result<NamedTempFile> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".unfinished-");
    // Data is shared within a group on clusters; tempfile's own default is owner only.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
        .tempfile_in(folder)
        .map_err(Error::io("write to", folder))
}

/// Puts it there, in place of what there was.
pub(super) fn publish(file: NamedTempFile, path: &Path) -> Result<()> {
    file.as_file()
        .sync_all()
        .map_err(Error::io("write", path))?;
    let persisted = file.persist(path).map_err(|e| e.error);
    persisted.map(drop).map_err(Error::io("write", path))
}

/// Puts `content` at `path`, whole or not at all.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let mut file = begin(path)?;
    file.write_all(content).map_err(Error::io("write", path))?;
    publish(file, path)
}

/// Takes the lock file at `path`, which goes with the value and with the process. While another has it,
/// `wait` is called, and may give up.
pub(super) fn lock(path: &Path, mut wait: impl FnMut() -> Result<()>) -> Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let mut options = File::options();
    options.create(true).write(true).truncate(false);
    let file = options.open(path).map_err(Error::io("open", path))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", path)(e)),
            Err(TryLockError::WouldBlock) => wait()?,
        }
        std::thread::sleep(LOOK);
    }
}

/// SHA-256 of `bytes` in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of the file at `path`. `go_on` may give up between its parts.
pub(super) fn sha256_of(path: &Path, mut go_on: impl FnMut() -> Result<()>) -> Result<String> {
    let mut file = File::open(path).map_err(Error::io("read", path))?;
    let (mut hash, mut part) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        go_on()?;
        match file.read(&mut part).map_err(Error::io("read", path))? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&part[..n]),
        }
    }
}
