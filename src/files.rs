//! File operations: atomic writes, locks, reads, memory maps and digests.

#![allow(unsafe_code)] // memory maps, whose contents change if the file does

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

/// Prefix of the names of files and folders that are still being written.
pub const UNFINISHED: &str = ".unfinished-";
/// Key of a sealed object that holds the digest of the rest of it.
const SEAL: &str = "seal";
/// Pause between two attempts to take a lock.
const POLL: Duration = Duration::from_millis(100);

/// Writes `bytes` to `path` atomically: after a crash or power loss, readers find either the old file or the new one,
/// never a part.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic_by(path, |out| out.write_all(bytes))
}

/// Same as [`write_atomic`] for readers, but without waiting for the disk; for contents that are out of date after a
/// crash.
pub fn write_lightly(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = begin(path)?;
    write_to(&file, |out| out.write_all(bytes)).map_err(Error::io("write", path))?;
    let put = file.persist(path).map(drop).map_err(|e| e.error);
    put.map_err(Error::io("write", path))
}

/// Same as [`write_atomic`], for contents too large to hold in memory: `write` receives the writer.
pub fn write_atomic_by(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let target = resolve_link(path);
    if is_special(&target) {
        return write_into(&target, write).map_err(Error::io("write", path));
    }
    let file = begin(&target)?;
    write_to(&file, write).map_err(Error::io("write", path))?;
    publish(file, &target)
}

/// Target of a symbolic link, so that writing keeps the link; otherwise `path` itself.
fn resolve_link(path: &Path) -> PathBuf {
    match path.is_symlink() {
        true => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        false => path.to_owned(),
    }
}

/// Whether `path` is a device or a pipe, which a rename would replace by an ordinary file.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn write_into(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::new(File::options().write(true).open(path)?);
    write(&mut buffered)?;
    buffered.flush()
}

/// Passes `write` a buffered writer to a file of [`begin`].
pub fn write_to(file: &NamedTempFile, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::new(file.as_file());
    write(&mut buffered)?;
    buffered.flush()
}

/// Creates a temporary file beside `path`, which is removed if it is dropped without [`publish`].
pub fn begin(path: &Path) -> Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(UNFINISHED);
    // Results and data are shared within a group on clusters; tempfile's default is owner only.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder_of(path));
    file.map_err(Error::io("write", path))
}

/// Renames a file of [`begin`] to `path`, replacing an existing file.
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

/// Makes a rename in `folder` durable, if the file system supports it.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(folder)?.sync_all() {
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        other => other,
    }
}

/// Removes the remains of killed writers in `folder`. Only the holder of the folder's lock may call it.
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

/// Removes a file if it exists.
pub fn remove_if_present(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Opens or creates an empty lock file. It is never removed, since a lock belongs to the file, not to its name.
pub fn open_lock(path: &Path) -> Result<File> {
    File::options().create(true).write(true).truncate(false).open(path).map_err(Error::io("open", path))
}

/// Takes the lock file at `path` and creates its folder. The lock is released when the value is dropped or the process
/// ends. While another process holds it, `wait` is called before each new attempt and may return an error to give up.
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

/// UTF-8 byte-order mark, which some editors write before a text.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// Opens the file at `path` for reading.
///
/// # Errors
///
/// Fails if the system refuses the file, or if it is a folder or a named pipe, whose reader would wait for ever. A pipe
/// that another program has open, as in `<(command)`, is accepted.
pub fn open(path: &Path) -> Result<File> {
    let found = fs::metadata(path).map_err(Error::io("read", path))?;
    let device = ["/dev", "/proc"].iter().any(|root| path.starts_with(root));
    if found.is_dir() {
        return Err(Error::data(path, "a folder, not a file"));
    }
    if !found.is_file() && !device {
        return Err(Error::data(path, "a pipe, a socket or a device, not a file"));
    }
    File::open(path).map_err(Error::io("read", path))
}

/// Reads the file at `path`.
///
/// # Errors
///
/// Fails as [`open`] does, or if reading fails.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open(path)?.read_to_end(&mut bytes);
    read.map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// Reads the file at `path` as UTF-8, without a byte-order mark.
///
/// # Errors
///
/// Fails as [`open`] does, or if the text is not UTF-8.
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

/// Reason for rejecting a text that [`is_utf16`].
pub const UTF16: &str = "UTF-16, not UTF-8: save it as UTF-8";

/// Whether a text begins with a byte-order mark of UTF-16. No UTF-8 text does.
pub fn is_utf16(text: &[u8]) -> bool {
    text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff")
}

/// Reason for rejecting a file that [`is_pointer`].
pub const POINTER: &str = "a pointer of Git LFS, not the file itself: `git lfs pull` gets that";

/// Whether a file that begins with `bytes` is a Git LFS pointer, which a clone has instead of the file itself.
pub fn is_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(b"version https://git-lfs.github.com/spec/")
}

/// Whether a listing of a data folder skips `name`: files that file managers, editors and notebooks create. Their names
/// begin with a dot, end with a tilde, or are one of two names used by Windows.
pub fn is_hidden(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let of_windows = ["Thumbs.db", "desktop.ini"];
    name.starts_with('.') || name.ends_with('~') || of_windows.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Maps the file at `path` into memory. The file must only ever be replaced as a whole, never written in place.
pub fn map(path: &Path) -> Result<Mmap> {
    let file = open(path)?;
    #[cfg(unix)]
    install_sigbus_handler()?;
    // SAFETY: files of this program are written under another name and renamed. If another program truncates one while
    // it is mapped, SIGBUS ends the process, and no state can be corrupted.
    let map = unsafe { Mmap::map(&file) };
    map.map_err(Error::io("read", path))
}

/// Installs a SIGBUS handler that ends the process with a message if a mapped file is truncated while in use or its
/// disk fails. By default the signal would end the process silently.
#[cfg(unix)]
fn install_sigbus_handler() -> Result<()> {
    use crate::error::exit;
    use signal_hook::{consts::SIGBUS, low_level};
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    const MESSAGE: &[u8] = b"error: a token file was cut, or could not be read, while it was in use: \
        leave such files alone, or delete it, and it is made again\n";
    let mut registered = Ok(());
    INSTALLED.call_once(|| {
        let end = || {
            let _ = rustix::io::write(rustix::stdio::stderr(), MESSAGE);
            low_level::exit(exit::BAD_DATA.into())
        };
        // SAFETY: the handler only writes and exits, both of which are async-signal-safe.
        registered = unsafe { low_level::register(SIGBUS, end) }.map(drop);
    });
    registered.map_err(|e| Error::usage(format!("cannot listen for signals: {e}")))
}

/// Adds to the JSON `object` a digest of the rest of it, by which [`unseal`] detects damage.
pub fn seal(object: &mut Value) {
    object[SEAL] = seal_of(object).into();
}

/// Returns `object` as JSON with a seal after its fields, which keep their order.
pub fn sealed_text(object: &impl Serialize) -> String {
    let plain = "plain data has a JSON form";
    let text = serde_json::to_string(object).expect(plain);
    let seal = seal_of(&serde_json::to_value(object).expect(plain));
    let fields = text.strip_suffix('}').unwrap_or(&text);
    format!("{fields},\"{SEAL}\":\"{seal}\"}}")
}

/// Removes the seal from `object` and returns whether it matches the rest. `None` without a seal, as in files of
/// earlier versions.
pub fn unseal(object: &mut Value) -> Option<bool> {
    let seal = object.as_object_mut()?.remove(SEAL)?;
    Some(seal == seal_of(object))
}

/// Twelve hexadecimal digits of the SHA-256 of the object with sorted keys.
fn seal_of(object: &Value) -> String {
    let mut digest = hex::encode(Sha256::digest(object.to_string()));
    digest.truncate(12);
    digest
}

/// Digest `D`, such as SHA-256, of the file at `path` in lower-case hexadecimal digits. `check_stopped`
/// is called before each block and may return an error to stop.
pub fn digest<D: Digest>(path: &Path, mut check_stopped: impl FnMut() -> Result<()>) -> Result<String> {
    let mut file = open(path)?;
    let (mut hash, mut block) = (D::new(), vec![0; 1 << 20]);
    loop {
        check_stopped()?;
        match file.read(&mut block).map_err(Error::io("read", path))? {
            0 => return Ok(hex::encode(hash.finalize())),
            n => hash.update(&block[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;

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
        for (from, to) in [("0.1", "0.2"), ("\"x\"", "\"y\""), ("\"seal\": \"", "\"seal\": \"0")] {
            assert_eq!(unseal(&mut read(&text.replace(from, to))), Some(false), "{from}");
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
        write_atomic(&path, b"x").fails("io").is_at(&path, None);
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
        let at = written.fails("io");
        at.is_at("a.txt", None).names(&["the source is gone"]);
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
            read_text(&path)
        };
        assert_eq!(read(b"\xef\xbb\xbfa\r\n").unwrap(), "a\r\n");
        assert_eq!(read(b"").unwrap(), "");
        let bad = read(b"a\nb\xff\n").fails("data");
        bad.is_at("a.toml", Position::Line(2)).names(&["UTF-8"]);
        for utf16 in [b"\xff\xfea\0", b"\xfe\xff\0a"] {
            let at = read(utf16).fails("data");
            at.is_at("a.toml", None).names(&["UTF-16", "UTF-8"]);
        }
        read_text(dir.path()).fails("data").is_at(dir.path(), None);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_waits_for_a_named_pipe_and_an_open_one_is_read() {
        use std::process::Command;
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("train.txt");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for read in [read_text(&pipe).map(drop), map(&pipe).map(drop)] {
            read.fails("data").is_at("train.txt", None);
        }
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"held").unwrap();
        drop(writer);
        let held = std::os::fd::AsRawFd::as_raw_fd(&reader);
        assert_eq!(read_text(Path::new(&format!("/dev/fd/{held}"))).unwrap(), "held");
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
        for name in ["0_9.txt", "train-00000-of-00001.parquet", "a~b", "thumbs.db.txt"] {
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
