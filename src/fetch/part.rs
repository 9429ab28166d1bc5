//! Partially downloaded files, with the version of the file that they belong to.

use super::with_suffix;
use crate::error::{Error, Result};
use crate::files::remove_if_present;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Version of the file being downloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    pub url: String,
    /// Strong ETag or time of the last change, as the server wrote it.
    pub validator: Option<String>,
    /// Length of the whole file in bytes.
    pub bytes: Option<u64>,
}

/// Partial download `NAME.part`, open for appending, with a [`Version`] in a file beside it.
pub(super) struct PartialDownload {
    pub path: PathBuf,
    file: File,
    /// Number of bytes downloaded.
    pub len: u64,
    version: Option<Version>,
}

impl PartialDownload {
    /// Opens the partial download of `target`. It is truncated if it came from another address than `url` or if the
    /// length of the whole file is unknown or exceeded.
    pub fn open(target: &Path, url: &str) -> Result<Self> {
        let path = with_suffix(target, ".part");
        let file = File::options().create(true).append(true).open(&path).map_err(Error::io("write", &path))?;
        let len = file.metadata().map_err(Error::io("read", &path))?.len();
        let version = read_version(&path);
        let mut part = Self { path, file, len, version };
        let usable = part.version.as_ref().is_some_and(|v| {
            let fits = v.bytes.is_some_and(|whole| len <= whole);
            v.url == url && fits
        });
        if !usable {
            part.clear()?;
        }
        Ok(part)
    }

    /// Length of the whole file, once a server has announced it.
    pub fn whole(&self) -> Option<u64> {
        self.version.as_ref()?.bytes
    }

    pub fn validator(&self) -> Option<&str> {
        self.version.as_ref()?.validator.as_deref()
    }

    /// Truncates the file and records the `version` whose bytes follow.
    pub fn restart(&mut self, version: Version) -> Result<()> {
        self.clear()?;
        let version_path = version_path(&self.path);
        let text = serde_json::to_string(&version).expect("a version is plain data");
        fs::write(&version_path, text).map_err(Error::io("write", &version_path))?;
        self.version = Some(version);
        Ok(())
    }

    /// Truncates the file and removes its version. The version goes first: bytes without one are never continued.
    pub fn clear(&mut self) -> Result<()> {
        self.version = None;
        remove_if_present(&version_path(&self.path))?;
        self.file.set_len(0).map_err(Error::io("write", &self.path))?;
        self.len = 0;
        Ok(())
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        // A write that failed half-way, as on a full disk, leaves bytes that count as well.
        self.len = self.file.metadata().map_or(self.len, |m| m.len());
        written.map_err(|e| self.no_room(e))
    }

    fn no_room(&self, error: std::io::Error) -> Error {
        let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
        if !full {
            return Error::io("write", &self.path)(error);
        }
        let missing = |whole: u64| format!(", {} bytes more are needed", whole - self.len.min(whole));
        let missing = self.whole().map_or(String::new(), missing);
        let said = format!("{error}{missing}; make room and the same command continues");
        Error::io("write", &self.path)(std::io::Error::new(error.kind(), said))
    }

    /// Renames the completed download to `target`.
    pub fn finish(self, target: &Path) -> Result<()> {
        self.file.sync_all().map_err(Error::io("write", &self.path))?;
        fs::rename(&self.path, target).map_err(Error::io("write", target))?;
        remove_if_present(&version_path(&self.path))
    }

    pub fn remove(self) -> Result<()> {
        remove_if_present(&version_path(&self.path))?;
        remove_if_present(&self.path)
    }
}

fn read_version(part: &Path) -> Option<Version> {
    let text = fs::read_to_string(version_path(part)).ok()?;
    serde_json::from_str(&text).ok()
}

fn version_path(part: &Path) -> PathBuf {
    with_suffix(part, ".json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_full_disk_names_the_missing_bytes_and_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let mut part = PartialDownload::open(&dir.path().join("file"), "http://x/y").unwrap();
        let version = Version { url: "http://x/y".to_owned(), validator: None, bytes: Some(10) };
        part.restart(version).unwrap();
        part.append(b"abc").unwrap();
        let message = part.no_room(ErrorKind::StorageFull.into()).to_string();
        assert!(message.contains("file.part"), "{message}");
        assert!(message.contains("7 bytes more are needed"), "{message}");
        assert!(message.contains("the same command continues"), "{message}");
    }
}
