//! Files that appear whole or not at all, are made by one process at a time, are read, are mapped, or have a digest.

#![allow(unsafe_code)] // a map of a file changes when the file does

use crate::error::{Error, Position, Result};
use memmap2::Mmap;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;

/// The beginning of the names of files and folders that are still being written.
pub const UNFINISHED: &str = ".unfinished-";
/// Where a sealed object keeps the digest of the rest of it.
const SEAL: &str = "seal";
/// The pause between two attempts to take a lock.
const POLL: Duration = Duration::from_millis(100);

/// Puts `bytes` at `path`: a reader, or a machine that loses power, sees the old file or the new
/// one, never a part.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic_by(path, |out| out.write_all(bytes))
}

/// As [`write_atomic`] to readers, without waiting for the disk: for what is out of date when the machine comes back.
pub fn write_lightly(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = begin(path)?;
    write_to(&file, |out| out.write_all(bytes)).map_err(Error::io("write", path))?;
    let put = file.persist(path).map(drop).map_err(|e| e.error);
    put.map_err(Error::io("write", path))
}

/// As [`write_atomic`], for a file too large to hold in memory: `write` is handed the writer.
pub fn write_atomic_by(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let target = behind_link(path);
    if is_special(&target) {
        return write_into(&target, write).map_err(Error::io("write", path));
    }
    let file = begin(&target)?;
    write_to(&file, write).map_err(Error::io("write", path))?;
    publish(file, &target)
}

/// The file that a symbolic link leads to; a link stays a link.
fn behind_link(path: &Path) -> PathBuf {
    match path.is_symlink() {
        true => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        false => path.to_owned(),
    }
}

/// Whether it is a device or a pipe, which a rename would put an ordinary file in the place of.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn write_into(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::new(File::options().write(true).open(path)?);
    write(&mut buffered)?;
    buffered.flush()
}

/// Hands `write` a buffered writer to a file of [`begin`].
pub fn write_to(
    file: &NamedTempFile,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffered = BufWriter::new(file.as_file());
    write(&mut buffered)?;
    buffered.flush()
}

/// A temporary file beside `path`, removed when it is dropped without [`publish`].
pub fn begin(path: &Path) -> Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(UNFINISHED);
    // Results and data are shared within a group on clusters; tempfile's own default is owner only.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder_of(path));
    file.map_err(Error::io("write", path))
}

/// Renames a file of [`begin`] to `path`, in place of what was there.
pub fn publish(file: NamedTempFile, path: &Path) -> Result<()> {
    let put = || {
        file.as_file().sync_all()?;
        file.persist(path).map_err(|e| e.error)?;
        sync_folder(folder_of(path))
    };
    put().map_err(Error::io("write", path))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the rename itself durable, where the file system knows how to.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(folder)?.sync_all() {
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        other => other,
    }
}

/// Removes what killed writers left in `folder`. Only for the holder of the folder's lock.
pub fn remove_unfinished(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let path = entry.path();
            if path.is_dir() {
                fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
            } else {
                remove_if_present(&path)?;
            }
        }
    }
    Ok(())
}

/// Removes a file that may be there.
pub fn remove_if_present(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// An empty file to lock; it is never removed, since a lock goes with the file, not with its name.
pub fn open_lock(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .map_err(Error::io("open", path))
}

/// Takes the lock file at `path`, whose folder is made. The lock ends with the value and with the process. While
/// another process has it, `wait` is called before each new attempt, and may give up.
pub fn lock(path: &Path, mut wait: impl FnMut() -> Result<()>) -> Result<File> {
    let folder = folder_of(path);
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let file = open_lock(path)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", path)(e)),
            Err(TryLockError::WouldBlock) => wait()?,
        }
        std::thread::sleep(POLL);
    }
}

/// The byte-order mark that some editors put before a text of UTF-8.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// Opens the file at `path` to read it.
///
/// # Errors
/// A file that the system refuses; a folder; a named pipe, whose reader would wait for ever. A pipe that another program has
/// open, as in `<(command)`, is read.
pub fn open(path: &Path) -> Result<File> {
    let found = fs::metadata(path).map_err(Error::io("read", path))?;
    let device = ["/dev", "/proc"].iter().any(|root| path.starts_with(root));
    if found.is_dir() {
        return Err(Error::data(path, "a folder, not a file"));
    }
    if !found.is_file() && !device {
        return Err(Error::data(
            path,
            "a pipe, a socket or a device, not a file",
        ));
    }
    File::open(path).map_err(Error::io("read", path))
}

/// The bytes of the file at `path`, with the errors of [`open`].
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open(path)?.read_to_end(&mut bytes);
    read.map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// The text of the file at `path`, which is UTF-8, without the byte-order mark that may stand before it.
///
/// # Errors
/// The errors of [`open`], and another encoding than UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let mut bytes = read_bytes(path)?;
    if is_utf16(&bytes) {
        return Err(Error::data(path, UTF16));
    }
    if bytes.starts_with(BOM) {
        bytes.drain(..BOM.len());
    }
    String::from_utf8(bytes).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
        Error::data_at(path, Position::Line(line), "not UTF-8")
    })
}

/// Why a text that [`is_utf16`] is refused.
pub const UTF16: &str = "UTF-16, not UTF-8: save it as UTF-8";

/// Whether a text begins with a byte-order mark of UTF-16, which no text of UTF-8 does.
pub fn is_utf16(text: &[u8]) -> bool {
    text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff")
}

/// Why a file is refused of which a clone of a repository has no more than a pointer.
pub const POINTER: &str = "a pointer of Git LFS, not the file itself: `git lfs pull` gets that";

/// Whether a file that begins with `bytes` is such a pointer.
pub fn is_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(b"version https://git-lfs.github.com/spec/")
}

/// Whether a listing of a folder passes over `name`. Such files are none of the data: file managers, editors and
/// notebooks leave them beside it. Their names begin with a dot, end with a tilde, or are one of the two of Windows.
pub fn is_hidden(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let of_windows = ["Thumbs.db", "desktop.ini"];
    name.starts_with('.')
        || name.ends_with('~')
        || of_windows
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
}

/// Maps the file at `path` into memory. For files that are replaced whole and never written to.
pub fn map(path: &Path) -> Result<Mmap> {
    let file = open(path)?;
    #[cfg(unix)]
    speak_of_cut_files()?;
    // SAFETY: what this program makes, it makes under another name and renames; whoever cuts such a file
    // while it is used stops the process, which has no state that this could corrupt.
    let map = unsafe { Mmap::map(&file) };
    map.map_err(Error::io("read", path))
}

/// Has the process end with a sentence where a mapped file is cut while it is in use, or its disk fails: without it the
/// signal ends the process without a word.
#[cfg(unix)]
fn speak_of_cut_files() -> Result<()> {
    use crate::error::exit;
    use signal_hook::{consts::SIGBUS, low_level};
    static BEGUN: std::sync::Once = std::sync::Once::new();
    const WORDS: &[u8] =
        b"error: a token file was cut, or could not be read, while it was in use: \
        leave such files alone, or delete it, and it is made again\n";
    let mut registered = Ok(());
    BEGUN.call_once(|| {
        let end = || {
            let _ = rustix::io::write(rustix::stdio::stderr(), WORDS);
            low_level::exit(exit::BAD_DATA.into())
        };
        // SAFETY: a write and an end, both of which a signal handler may call.
        registered = unsafe { low_level::register(SIGBUS, end) }.map(drop);
    });
    registered.map_err(|e| Error::usage(format!("cannot listen for signals: {e}")))
}

/// Adds to the JSON `object` a digest of the rest of it, by which [`unseal`] finds damage.
pub fn seal(object: &mut Value) {
    object[SEAL] = seal_of(object).into();
}

/// `object` as JSON with a seal behind its fields, which keep their order.
pub fn sealed_text(object: &impl Serialize) -> String {
    let plain = "plain data has a JSON form";
    let text = serde_json::to_string(object).expect(plain);
    let seal = seal_of(&serde_json::to_value(object).expect(plain));
    let fields = text.strip_suffix('}').unwrap_or(&text);
    format!("{fields},\"{SEAL}\":\"{seal}\"}}")
}

/// Takes the digest of [`seal`] out of `object` and says whether the rest is as it was. None of an object without one, as
/// earlier versions wrote them.
pub fn unseal(object: &mut Value) -> Option<bool> {
    let seal = object.as_object_mut()?.remove(SEAL)?;
    Some(seal == seal_of(object))
}

/// Twelve hexadecimal digits of a SHA-256 over the object with its keys in order.
fn seal_of(object: &Value) -> String {
    let mut digest = hex::encode(Sha256::digest(object.to_string()));
    digest.truncate(12);
    digest
}

/// The digest `D`, such as SHA-256, of the file at `path` in small hexadecimal digits. `go_on` may give up between
/// blocks.
pub fn digest<D: Digest>(path: &Path, mut go_on: impl FnMut() -> Result<()>) -> Result<String> {
    let mut file = open(path)?;
    let (mut hash, mut block) = (D::new(), vec![0; 1 << 20]);
    loop {
        go_on()?;
        match file.read(&mut block).map_err(Error::io("read", path))? {
            0 => return Ok(hex::encode(hash.finalize())),
            n => hash.update(&block[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_object_is_told_from_a_changed_one_however_it_is_spelt() {
        let mut object = serde_json::json!({ "b": 0.1, "a": [1, "x"] });
        assert_eq!(unseal(&mut object), None);
        let plain = object.clone();
        seal(&mut object);
        let text = format!("{object:#}");
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let mut same = read(&text.replace("0.1", "1e-1"));
        assert_eq!(unseal(&mut same), Some(true));
        assert_eq!(same, plain);
        for (from, to) in [
            ("0.1", "0.2"),
            ("\"x\"", "\"y\""),
            ("\"seal\": \"", "\"seal\": \"0"),
        ] {
            assert_eq!(
                unseal(&mut read(&text.replace(from, to))),
                Some(false),
                "{from}"
            );
        }
    }

    #[test]
    fn a_second_write_replaces_the_first_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_atomic(&path, b"a longer first text").unwrap();
        write_atomic(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_names_the_path_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir_all(path.join("by a folder")).unwrap();
        let message = write_atomic(&path, b"x").unwrap_err().to_string();
        assert!(message.starts_with("cannot write "), "{message}");
        assert!(message.contains("taken"), "{message}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_fails_half_way_leaves_the_old_one_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_atomic(&path, b"old").unwrap();
        let written = write_atomic_by(&path, |out| {
            out.write_all(&[b'x'; 100_000])?;
            Err(io::Error::other("the source is gone"))
        });
        let message = written.unwrap_err().to_string();
        assert!(message.contains("a.txt: the source is gone"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn leftovers_of_a_killed_writer_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".unfinished-abc"), b"half").unwrap();
        fs::write(dir.path().join("kept"), b"whole").unwrap();
        remove_unfinished(dir.path()).unwrap();
        assert!(!dir.path().join(".unfinished-abc").exists());
        assert!(dir.path().join("kept").exists());
    }

    #[test]
    fn a_text_is_read_without_its_byte_order_mark_and_another_encoding_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        let read = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            read_text(&path).map_err(|e| e.to_string().replace(path.to_str().unwrap(), "a.toml"))
        };
        assert_eq!(read(b"\xef\xbb\xbfa\r\n").unwrap(), "a\r\n");
        assert_eq!(read(b"").unwrap(), "");
        assert_eq!(
            read(b"a\nb\xff\n").unwrap_err(),
            "a.toml, line 2: not UTF-8"
        );
        for utf16 in [b"\xff\xfea\0", b"\xfe\xff\0a"] {
            let message = read(utf16).unwrap_err();
            assert_eq!(message, "a.toml: UTF-16, not UTF-8: save it as UTF-8");
        }
        assert!(read_text(dir.path())
            .unwrap_err()
            .to_string()
            .ends_with(": a folder, not a file"));
    }

    #[cfg(unix)]
    #[test]
    fn nobody_waits_for_a_named_pipe_and_an_open_one_is_read() {
        use std::process::Command;
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("train.txt");
        assert!(Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success());
        for message in [read_text(&pipe).map(drop), map(&pipe).map(drop)].map(Result::unwrap_err) {
            assert!(
                message.to_string().contains("train.txt: a pipe,"),
                "{message}"
            );
        }
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"held").unwrap();
        drop(writer);
        let held = std::os::fd::AsRawFd::as_raw_fd(&reader);
        assert_eq!(
            read_text(Path::new(&format!("/dev/fd/{held}"))).unwrap(),
            "held"
        );
    }

    #[test]
    fn what_programs_leave_in_folders_is_passed_over() {
        let hidden = [
            ".DS_Store",
            "._0_9.txt",
            ".ipynb_checkpoints",
            ".gitkeep",
            ".0_9.txt.swp",
            "0_9.txt~",
            "Thumbs.db",
            "thumbs.db",
            "desktop.ini",
            "Desktop.ini",
        ];
        for name in hidden {
            assert!(is_hidden(name.as_ref()), "{name}");
        }
        for name in [
            "0_9.txt",
            "train-00000-of-00001.parquet",
            "a~b",
            "thumbs.db.txt",
        ] {
            assert!(!is_hidden(name.as_ref()), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        use std::os::unix::fs::{symlink, FileTypeExt};
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        write_atomic(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        let device = dir.path().join("device");
        symlink("/dev/null", &device).unwrap();
        write_atomic(&device, b"gone").unwrap();
        let null = fs::metadata("/dev/null").unwrap();
        assert!(null.file_type().is_char_device() && device.is_symlink());
    }

    #[cfg(unix)]
    #[test]
    fn files_are_as_readable_as_ordinary_ones() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let (ours, ordinary) = (dir.path().join("ours"), dir.path().join("ordinary"));
        write_atomic(&ours, b"").unwrap();
        fs::write(&ordinary, b"").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode();
        assert_eq!(mode(&ours), mode(&ordinary));
    }
}
