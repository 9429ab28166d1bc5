//! Capabilities of the results folder's file system, tested in the folder.

use super::Finding;
use crate::error::{Error, Result};
use crate::files::{open_lock, write_atomic};
use indicatif::DecimalBytes;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Free space, in bytes, that checkpoints would soon fill.
const LITTLE: u64 = 1 << 30;

/// A test in a temporary folder: its name, its action, and the reason why a sweep needs it.
struct FolderTest {
    name: &'static str,
    does: fn(&Path) -> io::Result<()>,
    needed: &'static str,
}

static TRIES: [FolderTest; 3] = [
    FolderTest {
        name: "locks",
        does: locks,
        needed:
            "several sweeps on this folder would train the same run: give --out a folder on another file system, or \
                 each host its own with --shard i/N, and join them with `dsf sweep merge`",
    },
    FolderTest {
        name: "rename",
        does: renames,
        needed: "a kill could leave half a file: give --out a folder on another file system",
    },
    FolderTest {
        name: "create-new",
        does: creates_once,
        needed: "two hosts could take up one run: give --out a folder on another file system",
    },
];

/// Returns the location of the results folder and the outcome of each test. The folder is not created.
pub(super) fn findings(out: &Path) -> Result<Vec<Finding>> {
    let place = nearest(out)?;
    let shown = out.display();
    if !place.is_dir() {
        let found = format!("{shown} cannot be a folder, since {} is a file", place.display());
        return Ok(vec![Finding::bad("results", found, "give --out a folder, or a name that is still free")]);
    }
    let dir = match tempfile::Builder::new().prefix(".doctor-").tempdir_in(&place) {
        Ok(dir) => dir,
        Err(e) => {
            let found = format!("{shown} cannot be written to ({e})");
            return Ok(vec![Finding::bad("results", found, "give --out a folder that can be written to")]);
        }
    };
    let kind = file_system(&place).map_or(String::new(), |kind| format!(" on {kind}"));
    let mut findings = vec![match free(&place) {
        Some(free) if free < LITTLE => Finding::absent(
            "results",
            format!("{shown}{kind}, {} free", DecimalBytes(free)),
            "checkpoints of larger models take more: make room, or give another --out",
        ),
        Some(free) => {
            let free = DecimalBytes(free);
            Finding::good("results", format!("{shown}{kind}, {free} free"))
        }
        None => Finding::good("results", format!("{shown}{kind}")),
    }];
    findings.extend(TRIES.iter().map(|one| match (one.does)(dir.path()) {
        Ok(()) => Finding::good(one.name, "work"),
        Err(e) => Finding::bad(one.name, format!("do not work here ({e})"), one.needed),
    }));
    Ok(findings)
}

/// Returns the folder itself, or its nearest existing parent.
fn nearest(out: &Path) -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(Error::io("read", "the current folder"))?;
    Ok(here.join(out).ancestors().find(|place| place.exists()).unwrap_or(&here).to_owned())
}

fn locks(folder: &Path) -> io::Result<()> {
    let path = folder.join("lock");
    let open = || open_lock(&path).map_err(io::Error::other);
    let (first, second) = (open()?, open()?);
    first.lock()?;
    match second.try_lock() {
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(e)) => return Err(e),
        Ok(()) => return Err(io::Error::other("two had the lock at once")),
    }
    drop(first);
    second.try_lock().map_err(io::Error::from)
}

fn renames(folder: &Path) -> io::Result<()> {
    let path = folder.join("renamed");
    for text in [&b"old"[..], b"new"] {
        write_atomic(&path, text).map_err(io::Error::other)?;
    }
    if fs::read(&path)? == b"new" {
        Ok(())
    } else {
        Err(io::Error::other("the old file was still there"))
    }
}

fn creates_once(folder: &Path) -> io::Result<()> {
    let path = folder.join("created");
    File::create_new(&path)?;
    match File::create_new(&path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(io::Error::other("one name was made twice")),
    }
}

/// Free space for unprivileged users, in bytes.
fn free(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Type of the file system of `folder`, if the system reports it: `ext4`, `nfs4`, `lustre`.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    mounted(&fs::read_to_string("/proc/self/mountinfo").ok()?, &folder)
}

/// Returns the type in `mounts` of the longest mount point that contains `folder`; of equal ones the last, which hides
/// the others.
fn mounted(mounts: &str, folder: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?.replace("\\040", " ");
        let kind = after.split(' ').next()?.to_owned();
        folder.starts_with(&point).then_some((point.len(), kind))
    };
    mounts.lines().filter_map(mount).max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn a_folder_of_this_machine_passes_every_try_and_nothing_is_left_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("not/there/yet");
        let findings = findings(&out).unwrap();
        assert_eq!(findings.len(), 1 + TRIES.len());
        assert!(findings[1..].iter().all(|f| f.state == Severity::Good), "{findings:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_innermost_mount_says_which_file_system_it_is() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/a rw\n30 22 0:40 / /home rw shared:1 - nfs4 server:/home rw\n\
                      31 30 0:41 / /home/a\\040b rw - lustre x rw\n";
        for (folder, kind) in
            [("/var", "ext4"), ("/home/ada", "nfs4"), ("/home/a b/c", "lustre"), ("/homework", "ext4")]
        {
            assert_eq!(mounted(mounts, Path::new(folder)).as_deref(), Some(kind), "{folder}");
        }
    }
}
