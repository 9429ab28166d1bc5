//! Datasets in a tar archive. Datasets that share an archive share one download and one pass over it. Names inside the
//! archive are not trusted.

use super::catalogue::{CatalogueEntry, Completeness};
use super::context::FetchContext;
use super::download::{download, failed, Download, PublishedChecksum};
use super::request::{ArchiveSource, FetchRequest};
use super::{make_folder, record, with_suffix};
use crate::error::{Error, Result};
use crate::files::{digest, remove_if_present};
use flate2::read::MultiGzDecoder;
use sha2::Sha256;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, EntryType};

/// Folder below a data root that holds archives and everything unfinished.
pub(super) const FOLDER: &str = "archives";

/// Fetches `entries`, all of which come from `source`. The caller holds the lock of that origin.
pub(super) fn fetch(
    entries: &[&CatalogueEntry],
    source: &ArchiveSource,
    request: &FetchRequest,
    context: &mut FetchContext,
) -> Result<()> {
    let folder = request.root.join(FOLDER);
    let archive = folder.join(source.file);
    if request.force || !archive.exists() {
        get(&archive, source, request, context)?;
    }
    let staging = folder.join(format!("unpacking-{}", source.file));
    remove_folder(&staging)?;
    make_folder(&staging)?;
    let placed = unpack(&archive, entries, &staging, context).and_then(|unpacked| {
        entries.iter().zip(unpacked).try_for_each(|(entry, from)| place(entry, &from, &staging, request))
    });
    remove_folder(&staging)?;
    placed?;
    let sum = fs::read_to_string(sum_file(&archive)).unwrap_or_default();
    for entry in entries {
        let sha256 = sum.split_whitespace().next();
        record(entry, &request.root, &source.url, None, sha256)?;
    }
    if request.delete_archive {
        remove_if_present(&archive)?;
        let deleted = format!("deleted {}", archive.display());
        context.progress.say(&deleted);
    }
    Ok(())
}

/// Downloads the archive and writes its SHA-256 beside it.
fn get(archive: &Path, source: &ArchiveSource, request: &FetchRequest, context: &mut FetchContext) -> Result<()> {
    if request.offline {
        return Err(super::offline_without(&archive.display().to_string()));
    }
    let wanted = Download {
        url: &source.url,
        target: archive,
        bytes: source.bytes,
        checksum: source.md5.clone().map_or(PublishedChecksum::Unknown, PublishedChecksum::Md5),
        token: None,
    };
    download(&wanted, context)?;
    let file = File::open(archive).map_err(Error::io("read", archive))?;
    let format = ArchiveFormat::of(&mut BufReader::new(file)).map_err(Error::io("read", archive))?;
    if format == ArchiveFormat::Unknown {
        remove_if_present(archive)?;
        let reason = "not a gzip-compressed tar archive; nothing was kept";
        return Err(failed(&source.url, reason.to_owned()));
    }
    let (sum, sha256) = (sum_file(archive), digest::<Sha256>(archive, || context.check_stopped())?);
    fs::write(&sum, format!("{sha256}  {}\n", source.file)).map_err(Error::io("write", &sum))
}

/// Path of the checksum beside an archive, in the format of `sha256sum --check`.
fn sum_file(archive: &Path) -> PathBuf {
    with_suffix(archive, ".sha256")
}

/// Moves the folder `from` in `staging` to the place of `entry`.
fn place(entry: &CatalogueEntry, from: &Path, staging: &Path, request: &FetchRequest) -> Result<()> {
    let to = entry.path(&request.root);
    if let Some(parent) = to.parent() {
        make_folder(parent)?;
    }
    if entry.state(&request.root) != Completeness::Absent {
        // The old folder is renamed into `staging`, which is removed at the end: an interrupted removal in place would
        // look like damage.
        let old = staging.join(format!("old-{}", entry.dataset.name()));
        fs::rename(&to, &old).map_err(Error::io("replace", &to))?;
    }
    fs::rename(from, &to).map_err(Error::io("write", &to))
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", folder)(e)),
        _ => Ok(()),
    }
}

/// Format of an archive, detected by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArchiveFormat {
    Gzip,
    /// Plain tar, because a server may undo the gzip in transit.
    Tar,
    Unknown,
}

impl ArchiveFormat {
    fn of(file: &mut BufReader<impl Read>) -> io::Result<Self> {
        let head = file.fill_buf()?;
        Ok(if head.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if head.get(257..262) == Some(b"ustar") {
            Self::Tar
        } else {
            Self::Unknown
        })
    }
}

/// Unpacks the folders of `entries` from the archive at `path` into the folder `staging`, and returns the path of each
/// of them there. Fails if the archive is broken, lacks a file of an entry or has a name that leads out of it. The
/// contents of `staging` are then unusable.
fn unpack(
    path: &Path,
    entries: &[&CatalogueEntry],
    staging: &Path,
    context: &mut FetchContext,
) -> Result<Vec<PathBuf>> {
    let file = File::open(path).map_err(Error::io("read", path))?;
    let bytes = file.metadata().map_err(Error::io("read", path))?.len();
    let what = format!("unpacking {}", path.display());
    context.progress.start(&what, 0, Some(bytes));
    let reader = ProgressReader { file, done: 0, context };
    let unpacked = stream(reader, entries, staging);
    context.progress.end();
    context.check_stopped()?; // an interrupted unpacking would look like a damaged archive
    let folders = unpacked.map_err(|e| broken(path, &e))?;
    for (entry, folder) in entries.iter().zip(&folders) {
        let lacks = |what: String| Err(broken(path, &io::Error::other(what)));
        let Some(folder) = folder else { return lacks(format!("it has no folder {}", entry.folder)) };
        if let Some(file) = entry.parts.iter().find(|p| !folder.join(p).exists()) {
            return lacks(format!("it has no {}/{file}", entry.folder));
        }
    }
    Ok(folders.into_iter().flatten().collect())
}

/// Unpacks the files of `entries` and returns the folder of each; `None` for an entry without files.
fn stream(reader: ProgressReader, entries: &[&CatalogueEntry], staging: &Path) -> io::Result<Vec<Option<PathBuf>>> {
    let mut folders = vec![None; entries.len()];
    let mut reader = BufReader::with_capacity(1 << 17, reader);
    let reader: Box<dyn Read> = match ArchiveFormat::of(&mut reader)? {
        ArchiveFormat::Gzip => Box::new(MultiGzDecoder::new(reader)),
        ArchiveFormat::Tar | ArchiveFormat::Unknown => Box::new(reader),
    };
    let mut archive = Archive::new(reader);
    for item in archive.entries()? {
        let mut item = item?;
        let name = item.path()?.into_owned();
        let refused = |why: &str| Err(io::Error::other(format!("`{}` {why}", name.display())));
        if !name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return refused("leads out of the archive");
        }
        let belongs = |e: &&CatalogueEntry| inner(&name).starts_with(inner(Path::new(e.folder)));
        let Some(index) = entries.iter().position(belongs) else { continue };
        match item.header().entry_type() {
            // Directories are created with the files in them: one that is not writable could not be filled.
            EntryType::Directory => continue,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {}
            _ => return refused("is neither a file nor a folder"),
        }
        item.unpack_in(staging)?;
        if folders[index].is_none() {
            let own = inner(Path::new(entries[index].folder));
            let folder = name.ancestors().find(|above| inner(above) == own);
            folders[index] = folder.map(|folder| staging.join(folder));
        }
    }
    // Read to the end: only the last bytes distinguish a whole archive from one that was cut between two entries.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(folders)
}

/// Path below the data root or inside an archive, without the outer folders that differ between the two. Copies of the
/// arena's archive differ in how often they repeat its name, and CIFAR's folder lies below `image` in the data root.
fn inner(path: &Path) -> PathBuf {
    let outer = ["image", "lra_release"].map(|name| Component::Normal(name.as_ref()));
    let named = path.components().filter(|part| *part != Component::CurDir);
    named.skip_while(|part| outer.contains(part)).collect()
}

fn broken(path: &Path, error: &io::Error) -> Error {
    use ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let disk = [FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull];
    match disk.contains(&error.kind()) {
        true => Error::io("unpack", path)(io::Error::other(format!("{error}; the same command unpacks it again"))),
        false => Error::corrupt(path, format!("cannot unpack it: {error}; --force downloads it again")),
    }
}

/// Reader of a file that reports its progress, and fails once the stop flag is set.
struct ProgressReader<'a, 'b> {
    file: File,
    done: u64,
    context: &'a mut FetchContext<'b>,
}

impl Read for ProgressReader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.context.check_stopped().map_err(io::Error::other)?;
        let n = self.file.read(buffer)?;
        self.done += n as u64;
        self.context.progress.reach(self.done);
        Ok(n)
    }
}
