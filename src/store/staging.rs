//! Staging folders: several files published together.

use crate::error::{Error, Result};
use crate::files::{lock, remove_unfinished, sync_folder, UNFINISHED};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A temporary folder inside another one. Publishing moves its entries there; dropping it unpublished removes it.
pub struct Staging {
    staging: tempfile::TempDir,
    folder: PathBuf,
    _lock: File,
}

impl Staging {
    /// Creates a staging folder for entries of `folder`, which is created if it is missing. Only one exists at a time:
    /// `wait` is called while another process holds it. Leftovers of killed processes are removed.
    pub fn of(folder: &Path, wait: impl FnMut() -> Result<()>) -> Result<Self> {
        let mut beside = folder.as_os_str().to_owned();
        beside.push(".lock");
        let lock = lock(Path::new(&beside), wait)?;
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        remove_unfinished(folder)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(UNFINISHED);
        let staging = builder.tempdir_in(folder);
        Ok(Self { staging: staging.map_err(Error::io("write to", folder))?, folder: folder.to_owned(), _lock: lock })
    }

    /// Path of the staging folder, which is empty at first.
    pub fn path(&self) -> &Path {
        self.staging.path()
    }

    /// Moves every entry to the target folder, replacing entries of the same name.
    pub fn publish(self) -> Result<()> {
        let staging = self.staging.path();
        let replaced = tempfile::tempdir_in(staging).map_err(Error::io("write to", staging))?;
        for entry in fs::read_dir(staging).map_err(Error::io("read", staging))? {
            let entry = entry.map_err(Error::io("read", staging))?;
            if entry.path() == replaced.path() {
                continue;
            }
            let target = self.folder.join(entry.file_name());
            match fs::rename(&target, replaced.path().join(entry.file_name())) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("replace", &target)(e)),
                _ => fs::rename(entry.path(), &target).map_err(Error::io("write", &target))?,
            }
        }
        sync_folder(&self.folder).map_err(Error::io("write", &self.folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails the test if another process holds the folder.
    fn alone() -> Result<()> {
        panic!("there is no other process to wait for")
    }

    #[test]
    fn entries_replace_those_of_their_names_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        fs::create_dir_all(folder.join("a")).unwrap();
        fs::write(folder.join("a/old"), "").unwrap();
        fs::write(folder.join("other"), "").unwrap();
        let new = Staging::of(&folder, alone).unwrap();
        fs::create_dir(new.path().join("a")).unwrap();
        fs::write(new.path().join("a/new"), "").unwrap();
        new.publish().unwrap();
        assert!(folder.join("a/new").exists() && !folder.join("a/old").exists());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn what_is_not_published_leaves_nothing_and_so_does_a_kill_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        fs::create_dir_all(folder.join(".unfinished-abc")).unwrap();
        fs::write(folder.join(".unfinished-abc/half"), "").unwrap();
        drop(Staging::of(&folder, alone).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn the_second_waits_for_the_first_and_may_give_up() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        let first = Staging::of(&folder, alone).unwrap();
        fs::write(first.path().join("half"), "").unwrap();
        let second = Staging::of(&folder, || Err(Error::Stopped));
        assert!(matches!(second, Err(Error::Stopped)));
        assert!(first.path().join("half").exists());
        drop(first);
        Staging::of(&folder, alone).unwrap();
    }
}
