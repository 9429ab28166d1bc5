//! Folders out of an archive, in one pass over it and without trust in the names inside.

use super::catalogue::{Entry, Origin};
use super::host::Host;
use crate::error::{Error, Result};
use flate2::read::MultiGzDecoder;
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use tar::{Archive, EntryType};

/// Whether the file begins like a gzip'd or a plain tar.
pub(super) fn is_archive(path: &Path) -> Result<bool> {
    Ok(kind(path)?.is_some())
}

#[derive(Clone, Copy)]
enum Kind {
    Gzip,
    Tar,
}

fn kind(path: &Path) -> Result<Option<Kind>> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(Error::io("read", path))?;
    file.take(512)
        .read_to_end(&mut head)
        .map_err(Error::io("read", path))?;
    Ok(if head.starts_with(&[0x1f, 0x8b]) {
        Some(Kind::Gzip)
    } else if head.get(257..262) == Some(b"ustar") {
        // A server may undo the gzip on the way.
        Some(Kind::Tar)
    } else {
        None
    })
}

/// Unpacks the folders of `entries` out of the archive at `path` to where they belong below `below`.
///
/// # Errors
/// For an archive that is broken, lacks one of the parts or has a name that leads out of it; what
/// lies below `below` is then worth nothing.
pub(super) fn unpack(path: &Path, entries: &[&Entry], below: &Path, host: &mut Host) -> Result<()> {
    let file = File::open(path).map_err(Error::io("read", path))?;
    let bytes = file.metadata().map_err(Error::io("read", path))?.len();
    let what = format!("unpacking {}", path.display());
    host.watch.start(&what, 0, Some(bytes));
    let done = stream(path, file, entries, below, host);
    host.watch.end();
    done?;
    for entry in entries {
        if !entry.path(below).exists() {
            let reason = format!("it has no folder {}", entry.folder);
            return Err(broken(path, &reason));
        }
        let lacks = entry
            .parts
            .iter()
            .find(|p| !entry.path(below).join(p).exists());
        if let Some(part) = lacks {
            let reason = format!("it has no {}/{part}", entry.folder);
            return Err(broken(path, &reason));
        }
    }
    Ok(())
}

fn stream(
    path: &Path,
    file: File,
    entries: &[&Entry],
    below: &Path,
    host: &mut Host,
) -> Result<()> {
    let done = Rc::new(Cell::new(0));
    let counted = Counted {
        file,
        done: Rc::clone(&done),
    };
    let reader: Box<dyn Read> = match kind(path)? {
        Some(Kind::Gzip) => Box::new(MultiGzDecoder::new(counted)),
        _ => Box::new(counted),
    };
    let mut archive = Archive::new(reader);
    let damaged = |e: io::Error| broken(path, &e.to_string());
    for item in archive.entries().map_err(damaged)? {
        host.go_on()?;
        host.watch.reach(done.get());
        let mut item = item.map_err(damaged)?;
        let name = item.path().map_err(damaged)?.into_owned();
        let inside = normal(&name)
            .ok_or_else(|| broken(path, &format!("`{}` leads out of it", name.display())))?;
        let belongs = |e: &&&Entry| at_home(&inside, e.origin).starts_with(e.folder);
        if let Some(entry) = entries.iter().find(belongs) {
            let target = below.join(at_home(&inside, entry.origin));
            let what = item.header().entry_type();
            match what {
                EntryType::Directory => {
                    fs::create_dir_all(&target).map_err(Error::io("create", &target))?;
                }
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                    let mut reach = || host.watch.reach(done.get());
                    write(&mut item, &target, damaged, &mut reach)?;
                }
                _ => {
                    let reason = format!("`{}` is no file and no folder", name.display());
                    return Err(broken(path, &reason));
                }
            }
        }
    }
    // Only the last bytes tell a whole archive from one that was cut between two entries.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(damaged)?;
    Ok(())
}

/// Copies one file out; errors of the archive go through `damaged`, those of the disk name the file.
fn write(
    item: &mut impl Read,
    target: &Path,
    damaged: impl Fn(io::Error) -> Error,
    reach: &mut dyn FnMut(),
) -> Result<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    }
    let mut file = File::create(target).map_err(Error::io("write", target))?;
    let mut buffer = vec![0; 1 << 17];
    loop {
        let n = item.read(&mut buffer).map_err(&damaged)?;
        if n == 0 {
            return Ok(());
        }
        file.write_all(&buffer[..n])
            .map_err(Error::io("write", target))?;
        reach();
    }
}

/// A name made of ordinary parts alone; none for one that is absolute or climbs.
fn normal(name: &Path) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

/// Where a name inside an archive lies below the data root.
fn at_home(inside: &Path, origin: Origin) -> PathBuf {
    match origin {
        Origin::Hub(_) => inside.to_owned(),
        Origin::Cifar => Path::new("image").join(inside),
        Origin::Lra => {
            // Copies of the archive differ in how often they repeat its name.
            let mut rest = inside;
            while let Ok(stripped) = rest.strip_prefix("lra_release") {
                rest = stripped;
            }
            Path::new("lra_release/lra_release").join(rest)
        }
    }
}

fn broken(path: &Path, reason: &str) -> Error {
    Error::io("unpack", path)(io::Error::other(format!(
        "{reason}; --force downloads it again"
    )))
}

/// A file that counts what has been read of it.
struct Counted {
    file: File,
    done: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.done.set(self.done.get() + n as u64);
        Ok(n)
    }
}
