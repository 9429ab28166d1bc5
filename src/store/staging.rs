//! A staging folder: several files that appear together.

use crate::error::{Error, Result};
use crate::files::{remove_unfinished, sync_folder, UNFINISHED};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A temporary folder inside another one, whose entries move there when they are published. Dropped unpublished, it
/// is removed.
pub struct Staging {
    staging: tempfile::TempDir,
    folder: PathBuf,
}

impl Staging {
    /// A staging folder for entries of `folder`, which is made if it is missing. What killed writers left there is
    /// removed.
    pub fn of(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        remove_unfinished(folder)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(UNFINISHED);
        let staging = builder.tempdir_in(folder);
        Ok(Self {
            staging: staging.map_err(Error::io("write to", folder))?,
            folder: folder.to_owned(),
        })
    }

    /// The staging folder, empty at first.
    pub fn path(&self) -> &Path {
        self.staging.path()
    }

    /// Moves every entry to the folder it is for, in place of one of the same name.
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
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(Error::io("replace", &target)(e))
                }
                _ => fs::rename(entry.path(), &target).map_err(Error::io("write", &target))?,
            }
        }
        sync_folder(&self.folder).map_err(Error::io("write", &self.folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_replace_those_of_their_names_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/old"), "").unwrap();
        fs::write(dir.path().join("other"), "").unwrap();
        let new = Staging::of(dir.path()).unwrap();
        fs::create_dir(new.path().join("a")).unwrap();
        fs::write(new.path().join("a/new"), "").unwrap();
        new.publish().unwrap();
        assert!(dir.path().join("a/new").exists() && !dir.path().join("a/old").exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_not_published_leaves_nothing_and_so_does_a_kill_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".unfinished-abc")).unwrap();
        fs::write(dir.path().join(".unfinished-abc/half"), "").unwrap();
        drop(Staging::of(dir.path()).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
