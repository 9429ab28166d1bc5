//! Datasets out of an archive: one download and one unpacking for all that share it.

use super::catalogue::{Entry, State};
use super::checksum::Checksum;
use super::download::{download, failed, Wanted};
use super::host::Host;
use super::part::{remove, with_suffix};
use super::{make_folder, record, unpack, Order, Source};
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Where archives and everything unfinished lie below a data root.
pub(super) const FOLDER: &str = "archives";

/// Fetches `entries`, all of the origin `source` is for; the lock of that origin is held.
pub(super) fn fetch(
    entries: &[&Entry],
    source: &Source,
    order: &Order,
    host: &mut Host,
) -> Result<()> {
    let folder = order.root.join(FOLDER);
    let archive = folder.join(source.file);
    if order.force || !archive.exists() {
        get(&archive, source, order, host)?;
    }
    let staging = folder.join(format!("unpacking-{}", source.file));
    remove_folder(&staging)?;
    make_folder(&staging)?;
    let placed = unpack::unpack(&archive, entries, &staging, host)
        .and_then(|()| entries.iter().try_for_each(|e| place(e, &staging, order)));
    remove_folder(&staging)?;
    placed?;
    for entry in entries {
        let sum = fs::read_to_string(sum_file(&archive)).unwrap_or_default();
        let sha256 = sum.split_whitespace().next().map(str::to_owned);
        record::write(entry, &order.root, &source.url, None, sha256)?;
    }
    if order.delete_archive {
        remove(&archive)?;
        host.watch.say(&format!("deleted {}", archive.display()));
    }
    Ok(())
}

/// Downloads the archive, and notes its SHA-256 beside it.
fn get(archive: &Path, source: &Source, order: &Order, host: &mut Host) -> Result<()> {
    if order.offline {
        return Err(super::offline_without(&archive.display().to_string()));
    }
    let wanted = Wanted {
        url: &source.url,
        target: archive,
        bytes: source.bytes,
        checksum: match &source.md5 {
            Some(md5) => Checksum::Md5(md5.clone()),
            None => Checksum::Unknown,
        },
        token: None,
    };
    let sha256 = download(&wanted, host)?;
    if !unpack::is_archive(archive)? {
        remove(archive)?;
        let reason = "what lies there is no gzip'd tar; nothing was kept";
        return Err(failed(&source.url, reason.to_owned()));
    }
    let sum = sum_file(archive);
    let line = format!("{sha256}  {}\n", source.file);
    fs::write(&sum, line).map_err(Error::io("write", &sum))
}

/// Beside an archive, in the form that `sha256sum --check` reads.
fn sum_file(archive: &Path) -> PathBuf {
    with_suffix(archive, ".sha256")
}

/// Moves the folder of `entry` from the staging place to its own.
fn place(entry: &Entry, staging: &Path, order: &Order) -> Result<()> {
    let (from, to) = (entry.path(staging), entry.path(&order.root));
    if let Some(parent) = to.parent() {
        make_folder(parent)?;
    }
    if entry.state(&order.root) != State::Absent {
        // Out of the way by a rename: a long removal that is interrupted would look like damage.
        let old = staging.join("old");
        fs::rename(&to, &old).map_err(Error::io("replace", &to))?;
        fs::rename(&from, &to).map_err(Error::io("write", &to))?;
        return remove_folder(&old);
    }
    fs::rename(&from, &to).map_err(Error::io("write", &to))
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", folder)(e)),
        _ => Ok(()),
    }
}
