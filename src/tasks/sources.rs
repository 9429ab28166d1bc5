//! Source files of a task, and the digest that identifies them in a run's config.

use super::sha256;
use crate::cache;
use crate::error::{Error, Result};
use crate::files;
use rayon::prelude::*;
use serde_json::{json, Value};
use sha2::Sha256;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Setting of a task that holds the digest of its files.
pub const DIGEST: &str = "source_digest";

/// Number of hexadecimal digits of a digest in a config.
const DIGITS: usize = 12;

/// Age of the last change below which a digest is not cached: a later write within one tick of the file system's clock
/// would leave the times of the file unchanged.
const SETTLED: Duration = Duration::from_secs(2);

/// Files that a task reads, in the order in which it reads them.
///
/// Their digest covers the content of all of them. To avoid reading a large corpus again, computed digests are cached
/// under the names, sizes, inodes and change times of the files, and reused while none of these differs. The change
/// time (ctime) moves with every write and cannot be set by a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    files: Vec<(String, PathBuf)>,
}

impl Sources {
    /// Adds the file at `path` under `name`, which does not depend on the folder of the data.
    pub fn push(&mut self, name: impl Into<String>, path: PathBuf) {
        self.files.push((name.into(), path));
    }

    /// Twelve hexadecimal digits over the names and the content of all files. Fails if a file cannot be read or changes
    /// meanwhile.
    pub fn digest(&self) -> Result<String> {
        let Some(kept) = CacheEntry::of(self)? else { return self.read() };
        if let Some(digest) = kept.find() {
            return Ok(digest);
        }
        let digest = self.read()?;
        self.unchanged_since(&kept.stamp)?;
        kept.keep(&digest);
        Ok(digest)
    }

    /// Computes the digest from the content.
    fn read(&self) -> Result<String> {
        let lines = self.files.par_iter().map(|(name, path)| {
            let content = files::digest::<Sha256>(path, || Ok(()))?;
            Ok(format!("{name}\0{content}\n"))
        });
        let lines: Vec<String> = lines.collect::<Result<_>>()?;
        let mut digest = sha256(lines.concat().as_bytes());
        digest.truncate(DIGITS);
        Ok(digest)
    }

    /// Fails if the files have changed since `stamp` was taken.
    pub fn unchanged_since(&self, stamp: &Stamp) -> Result<()> {
        let now = self.stamp()?;
        if now == *stamp {
            return Ok(());
        }
        let states = now.states.lines().zip(stamp.states.lines());
        let changed = { states }.position(|(now, then)| now != then).and_then(|at| self.files.get(at));
        let place = changed.map_or(Path::new("."), |(_, path)| path);
        Err(Error::data(place, "changed while it was read: start again when the data are complete"))
    }

    /// Returns the state of the files without their content. Fails if a file is missing.
    pub fn stamp(&self) -> Result<Stamp> {
        let lines = self.files.par_iter().map(|(name, path)| {
            let about = fs::metadata(path).map_err(Error::io("read", path))?;
            Ok((format!("{name}\0{}\n", state(&about)), changed(&about)))
        });
        let lines: Vec<(String, Option<SystemTime>)> = lines.collect::<Result<_>>()?;
        let newest = lines.iter().map(|(_, changed)| *changed);
        Ok(Stamp {
            newest: newest.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max()),
            states: lines.into_iter().map(|(state, _)| state).collect(),
        })
    }
}

/// Names, sizes and times of files at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    states: String,
    /// Last change of any file; `None` if the system does not report it.
    newest: Option<SystemTime>,
}

/// Cache entry of a digest.
struct CacheEntry {
    stamp: Stamp,
    path: PathBuf,
}

impl CacheEntry {
    /// Returns the cache entry of `sources`; `None` if they were changed just now or there is no cache folder.
    fn of(sources: &Sources) -> Result<Option<Self>> {
        let stamp = sources.stamp()?;
        let age = stamp.newest.and_then(|newest| newest.elapsed().ok());
        let settled = age.is_some_and(|age| age > SETTLED);
        let Some(folder) = settled.then(cache::digests).and_then(Result::ok) else { return Ok(None) };
        let path = folder.join(&sha256(stamp.states.as_bytes())[..32]);
        Ok(Some(Self { stamp, path }))
    }

    /// Returns the cached digest if its file exists and is undamaged.
    fn find(&self) -> Option<String> {
        let text = fs::read_to_string(&self.path).ok()?;
        let mut kept: Value = serde_json::from_str(&text).ok()?;
        let whole = files::unseal(&mut kept) == Some(true);
        whole.then(|| kept[DIGEST].as_str().map(str::to_owned))?
    }

    /// Writes the digest. Errors are ignored, since without a cache entry the files are read again.
    fn keep(&self, digest: &str) {
        let text = files::sealed_text(&json!({ DIGEST: digest }));
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let _ = fs::create_dir_all(folder).map(|()| files::write_atomic(&self.path, text.as_bytes()));
    }
}

/// Device, inode, size and times of a file.
fn state(about: &Metadata) -> String {
    format!(
        "{} {} {} {}.{} {}.{}",
        about.dev(),
        about.ino(),
        about.len(),
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec()
    )
}

/// Time of the last change of a file's content or metadata.
fn changed(about: &Metadata) -> Option<SystemTime> {
    let since = |seconds: i64, nanoseconds: i64| {
        let (seconds, nanoseconds) = (u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
    };
    Some(since(about.mtime(), about.mtime_nsec())?.max(since(about.ctime(), about.ctime_nsec())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;

    fn world() -> (tempfile::TempDir, Sources) {
        let dir = tempfile::tempdir().unwrap();
        let mut sources = Sources::default();
        for name in ["train", "test"] {
            let path = dir.path().join(name);
            fs::write(&path, format!("text of {name}")).unwrap();
            sources.push(name, path);
        }
        (dir, sources)
    }

    #[test]
    fn every_changed_byte_and_every_moved_border_is_another_digest() {
        let (dir, sources) = world();
        let digest = sources.digest().unwrap();
        assert_eq!(digest.len(), DIGITS);
        let path = dir.path().join("train");
        let text = fs::read(&path).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert_ne!(sources.digest().unwrap(), digest, "byte {at}");
        }
        fs::write(&path, &text[..text.len() - 1]).unwrap();
        assert_ne!(sources.digest().unwrap(), digest);
        fs::write(&path, &text).unwrap();
        assert_eq!(sources.digest().unwrap(), digest);
    }

    #[test]
    fn the_folder_does_not_count_and_the_name_does() {
        let (_dir, sources) = world();
        let (_other, same) = world();
        assert_eq!(same.digest().unwrap(), sources.digest().unwrap());
        let mut renamed = same.clone();
        renamed.files[0].0 = "validation".to_owned();
        assert_ne!(renamed.digest().unwrap(), sources.digest().unwrap());
    }

    #[test]
    fn a_kept_digest_is_used_while_the_files_are_as_they_were_and_damage_is_noticed() {
        let (dir, sources) = world();
        let stamp = sources.stamp().unwrap();
        let path = dir.path().join("kept");
        let kept = CacheEntry { stamp, path };
        assert_eq!(kept.find(), None);
        kept.keep("0123456789ab");
        assert_eq!(kept.find().as_deref(), Some("0123456789ab"));
        let text = fs::read_to_string(&kept.path).unwrap();
        fs::write(&kept.path, text.replace("0123", "1123")).unwrap();
        assert_eq!(kept.find(), None);
    }

    #[test]
    fn files_that_were_written_just_now_have_no_kept_digest() {
        let (_dir, sources) = world();
        assert!(CacheEntry::of(&sources).unwrap().is_none());
    }

    #[test]
    fn a_file_that_is_written_meanwhile_is_refused_by_its_name() {
        let (dir, sources) = world();
        let stamp = sources.stamp().unwrap();
        sources.unchanged_since(&stamp).unwrap();
        fs::write(dir.path().join("test"), "longer than it was before").unwrap();
        let at = sources.unchanged_since(&stamp).fails("data");
        at.is_at("test", None);
    }
}
