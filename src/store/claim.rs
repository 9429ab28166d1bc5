//! Claim: the exclusive right of one process to work on a run.
//!
//! A claim is a file created exclusively, together with a lock where the file system has locks. A killed process leaves
//! the file behind. On the same machine the released lock then proves at once that the owner is gone; elsewhere the
//! claim expires when its heartbeat has been silent for long enough. Process id and host name alone decide nothing.

use super::heartbeat::{HeartbeatTiming, BEAT};
use super::{host, read_if_present};
use crate::error::{Error, Result};
use crate::files::{open_lock, remove_if_present};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

pub(super) const LOCK: &str = "lock";
pub(super) const CLAIM: &str = "claim.json";
/// Prefix of temporary files of processes that try to take a claim; the owner of the claim ignores them.
const ASIDE: &str = ".claim-";

/// Longest time for which a new claim may be empty or incomplete.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// Time between two attempts to take a lock.
const RETRY: Duration = Duration::from_millis(5);

/// Contents of a claim: the process that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    /// Host name, for people to read.
    host: String,
    pid: u32,
    /// Boot id of the machine. Containers on one machine share it, as they share its locks.
    boot: String,
    /// Distinguishes claims of one process, and of processes with equal ids on hosts with equal names.
    token: String,
    /// Whether the process also holds the lock.
    locked: bool,
}

/// A claim that lasts until it is dropped, or until another process takes it over because it seems abandoned.
#[derive(Debug)]
pub(super) struct RunClaim {
    path: PathBuf,
    text: Vec<u8>,
    _lock: Option<File>,
}

impl RunClaim {
    /// Claims the run in `folder`, creating the folder. Returns `None` if another process holds the run. `locks` is
    /// false on file systems without locks.
    pub fn take(folder: &Path, locks: bool, timing: HeartbeatTiming) -> Result<Option<Self>> {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let lock = if locks { lock(&folder.join(LOCK), &folder.join(CLAIM))? } else { LockState::Unknown };
        let lock = match lock {
            LockState::Taken => return Ok(None),
            LockState::Held(file) => Some(file),
            LockState::Unknown => None,
        };
        let holder = Holder {
            host: host(),
            pid: std::process::id(),
            boot: boot(),
            token: token(folder)?,
            locked: lock.is_some(),
        };
        let text = serde_json::to_vec(&holder).expect("a claim is plain data");
        let claim = Self { path: folder.join(CLAIM), text, _lock: lock };
        if claim.make()? || claim.remove_abandoned(folder, &holder, timing)? && claim.make()? {
            return Ok(Some(claim));
        }
        claim.forget();
        Ok(None)
    }

    /// Removes the claim of a process that is gone; returns false if it is not, or if another process was faster.
    fn remove_abandoned(&self, folder: &Path, own: &Holder, timing: HeartbeatTiming) -> Result<bool> {
        let left = read_if_present(&self.path)?.unwrap_or_default();
        Ok(is_left_alone(folder, &left, own, timing)? && self.remove(folder, &left)?)
    }

    /// Whether the claim is still held. Checked before anything is published.
    pub fn holds(&self) -> Result<bool> {
        Ok(read_if_present(&self.path)?.is_some_and(|text| text == self.text))
    }

    /// Creates the file; returns false if it exists.
    fn make(&self) -> Result<bool> {
        let mut file = match File::create_new(&self.path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(false),
            made => made.map_err(Error::io("create", &self.path))?,
        };
        let written = file.write_all(&self.text);
        written.map_err(Error::io("write", &self.path))?;
        Ok(true)
    }

    /// Removes the claim `left`; returns false if another process was faster. A claim made in the meantime is put back.
    fn remove(&self, folder: &Path, left: &[u8]) -> Result<bool> {
        let aside = folder.join(format!("{ASIDE}{}", token(folder)?));
        match fs::rename(&self.path, &aside) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
            renamed => renamed.map_err(Error::io("rename", &self.path))?,
        }
        let same = fs::read(&aside).is_ok_and(|text| text == left);
        if !same {
            // If a third process has made a claim by now, the second one notices before it publishes.
            let _ = fs::hard_link(&aside, &self.path);
        }
        remove_if_present(&aside)?;
        Ok(same)
    }

    /// Releases the lock but leaves the file, like a process that was killed.
    #[cfg(test)]
    pub fn crash(mut self) {
        drop(self._lock.take());
        self.text.clear();
    }

    /// Drops a claim whose file was never created, without removing the file.
    fn forget(mut self) {
        self.text.clear();
    }
}

impl Drop for RunClaim {
    fn drop(&mut self) {
        if !self.text.is_empty() && self.holds().unwrap_or(false) {
            let _ = remove_if_present(&self.path);
        }
    }
}

enum LockState {
    Held(File),
    Taken,
    /// The file system has no locks.
    Unknown,
}

/// Takes the lock at `path`. A lock without a `claim` is about to get one, or has an owner that let it go: a child that the
/// owner's process has forked holds a copy of the lock until it executes its program.
fn lock(path: &Path, claim: &Path) -> Result<LockState> {
    let file = open_lock(path)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(LockState::Held(file)),
            Err(TryLockError::WouldBlock) if claim.exists() || begun.elapsed() > WRITTEN_WITHIN => {
                return Ok(LockState::Taken);
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY),
            Err(TryLockError::Error(e)) if has_none(&e) => return Ok(LockState::Unknown),
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", path)(e)),
        }
    }
}

/// Whether a lock failed because the file system has no locks: ENOLCK, ENOSYS or EOPNOTSUPP.
pub(super) fn has_none(error: &std::io::Error) -> bool {
    let numbers = [37, 38, 95];
    error.kind() == ErrorKind::Unsupported
        || cfg!(target_os = "linux") && error.raw_os_error().is_some_and(|n| numbers.contains(&n))
}

/// Whether the process that made the claim `left` is gone.
fn is_left_alone(folder: &Path, left: &[u8], own: &Holder, timing: HeartbeatTiming) -> Result<bool> {
    if serde_json::from_slice::<Value>(left).is_err() {
        // Its process is about to write it, or was killed before it could.
        std::thread::sleep(WRITTEN_WITHIN);
        return Ok(read_if_present(&folder.join(CLAIM))?.is_some_and(|now| now == left));
    }
    let holder: Option<Holder> = serde_json::from_slice(left).ok();
    // A living owner would still hold its lock. Locks of some network file systems are local to one machine.
    if holder.is_some_and(|holder| holder.locked && own.locked && holder.boot == own.boot) {
        return Ok(true);
    }
    // The clock of the file system may differ from the clock of this host, so the age is measured with a new file.
    let probe = folder.join(format!("{ASIDE}now-{}", token(folder)?));
    File::create_new(&probe).map_err(Error::io("create", &probe))?;
    let now = changed(&probe);
    remove_if_present(&probe)?;
    let Some(now) = now else {
        return Ok(false);
    };
    let heard = || {
        let files = [BEAT, CLAIM].iter();
        files.filter_map(|name| changed(&folder.join(name))).max()
    };
    let last = heard();
    Ok(match last.map(|last| now.duration_since(last)) {
        None => false,
        Some(Ok(ago)) => ago > timing.timeout,
        // The clock jumped back. A living process renews its heartbeat at the present time.
        Some(Err(ahead)) if ahead.duration() > timing.timeout => {
            std::thread::sleep(2 * timing.interval);
            heard() == last
        }
        Some(Err(_)) => false,
    })
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// Removes temporary files that killed processes left while they took over a claim, once they are too old to be in use.
pub(super) fn remove_asides(folder: &Path, timing: HeartbeatTiming) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        let aside = entry.file_name().to_string_lossy().starts_with(ASIDE);
        let path = entry.path();
        let age = || changed(&path)?.elapsed().ok();
        if aside && age().is_some_and(|age| age > timing.timeout) {
            remove_if_present(&path)?;
        }
    }
    Ok(())
}

/// Identifies the machine and its current boot.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| host(), |id| id.trim().to_owned())
}

/// Returns a random text, unique among the claims in `folder` of all processes on all hosts.
fn token(folder: &Path) -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| Error::io("draw a random name for a claim in", folder)(e.into()))?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::heartbeat::TIMING;
    use super::*;

    fn age(path: &Path, seconds: u64) {
        let then = SystemTime::now() - Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }

    /// A claim whose process was killed, with or without locks.
    fn abandoned(folder: &Path, locked: bool, boot: &str) {
        let holder = Holder { host: host(), boot: boot.to_owned(), pid: 1, token: token(folder).unwrap(), locked };
        fs::write(folder.join(CLAIM), serde_json::to_vec(&holder).unwrap()).unwrap();
    }

    #[test]
    fn one_process_has_a_run_at_a_time_with_and_without_locks() {
        for locks in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let first = RunClaim::take(dir.path(), locks, TIMING).unwrap().unwrap();
            for other in [true, false] {
                assert!(RunClaim::take(dir.path(), other, TIMING).unwrap().is_none());
            }
            assert!(first.holds().unwrap());
            drop(first);
            assert!(!dir.path().join(CLAIM).exists());
            assert!(RunClaim::take(dir.path(), locks, TIMING).unwrap().is_some());
        }
    }

    /// A forked child that has not yet executed its program holds a copy of the lock, as a second handle of the file does.
    #[test]
    fn a_lock_that_outlives_its_claim_for_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = RunClaim::take(dir.path(), true, TIMING).unwrap().unwrap();
        let copy = first._lock.as_ref().unwrap().try_clone().unwrap();
        drop(first);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(WRITTEN_WITHIN / 20);
                drop(copy);
            });
            assert!(RunClaim::take(dir.path(), true, TIMING).unwrap().is_some());
        });
    }

    #[test]
    fn what_a_killed_process_of_this_machine_had_locked_is_free_at_once() {
        let dir = tempfile::tempdir().unwrap();
        abandoned(dir.path(), true, &boot());
        assert!(RunClaim::take(dir.path(), true, TIMING).unwrap().is_some());
    }

    #[test]
    fn a_claim_of_another_machine_or_without_a_lock_is_free_when_its_heart_is_silent() {
        for (locked, of) in [(true, "elsewhere".to_owned()), (false, boot())] {
            let dir = tempfile::tempdir().unwrap();
            abandoned(dir.path(), locked, &of);
            let path = dir.path().join(CLAIM);
            assert!(RunClaim::take(dir.path(), true, TIMING).unwrap().is_none());
            age(&path, 120);
            let beat = dir.path().join(BEAT);
            fs::write(&beat, "{}").unwrap();
            assert!(RunClaim::take(dir.path(), true, TIMING).unwrap().is_none(), "it beats");
            age(&beat, 120);
            assert!(RunClaim::take(dir.path(), true, TIMING).unwrap().is_some());
        }
    }

    #[test]
    fn a_claim_from_before_the_clock_jumped_back_is_free_unless_its_heart_beats() {
        let dir = tempfile::tempdir().unwrap();
        abandoned(dir.path(), false, "elsewhere");
        let beat = dir.path().join(BEAT);
        fs::write(&beat, "{}").unwrap();
        let timing = HeartbeatTiming { interval: Duration::from_millis(200), timeout: Duration::from_secs(2) };
        let later = SystemTime::now() + Duration::from_secs(3600);
        let future = || {
            let file = File::options().write(true).open(&beat).unwrap();
            file.set_modified(later).unwrap();
        };
        future();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(timing.interval);
                fs::write(&beat, "{}").unwrap();
            });
            assert!(RunClaim::take(dir.path(), false, timing).unwrap().is_none(), "it beats");
        });
        future();
        assert!(RunClaim::take(dir.path(), false, timing).unwrap().is_some());
    }

    #[test]
    fn a_claim_whose_process_was_killed_before_it_wrote_it_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CLAIM);
        for part in ["", "{\"host\":\"lap"] {
            fs::write(&path, part).unwrap();
            assert!(RunClaim::take(dir.path(), false, TIMING).unwrap().is_some());
        }
        fs::write(&path, "").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(WRITTEN_WITHIN / 4);
                abandoned(dir.path(), false, "elsewhere");
            });
            assert!(RunClaim::take(dir.path(), false, TIMING).unwrap().is_none());
        });
    }

    #[test]
    fn what_a_killed_taker_left_is_removed_when_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        for (name, seconds) in [(".claim-old", 120), (".claim-new", 1), ("other", 120)] {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            age(&path, seconds);
        }
        remove_asides(dir.path(), TIMING).unwrap();
        let left = |name: &str| dir.path().join(name).exists();
        assert_eq!([".claim-old", ".claim-new", "other"].map(left), [false, true, true]);
    }

    #[test]
    fn who_is_taken_over_knows_and_leaves_the_claim_of_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let first = RunClaim::take(dir.path(), false, TIMING).unwrap().unwrap();
        age(&dir.path().join(CLAIM), 120);
        let second = RunClaim::take(dir.path(), false, TIMING).unwrap().unwrap();
        assert!(!first.holds().unwrap() && second.holds().unwrap());
        drop(first);
        assert!(second.holds().unwrap());
    }

    #[test]
    fn of_many_that_take_over_at_once_one_has_the_run() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            abandoned(dir.path(), false, "elsewhere");
            age(&dir.path().join(CLAIM), 120);
            let claims: Vec<Option<RunClaim>> = std::thread::scope(|scope| {
                let take = || RunClaim::take(dir.path(), false, TIMING).unwrap();
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            let holding = claims.iter().flatten().filter(|claim| claim.holds().unwrap());
            assert!(holding.count() <= 1);
        }
    }
}
