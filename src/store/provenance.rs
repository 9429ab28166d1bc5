//! Where, when and by what a run was trained. Recorded, never part of a run's identity.

use crate::error::{ensure, Result};
use crate::ops::Simd;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// What `env.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of this program.
    pub version: String,
    /// Commit it was built from, or `unknown`.
    pub git_commit: String,
    /// Whether uncommitted changes were built in.
    pub dirty: bool,
    /// Name of the host.
    pub host: String,
    /// Model of its processor.
    pub cpu: String,
    /// Instruction set of the ops, such as `avx2`; empty in runs of versions that did not say.
    #[serde(default)]
    pub simd: String,
    /// Operating system and architecture.
    pub os: String,
    /// Device as chosen, e.g. `cpu` or `cuda:0`.
    pub device: String,
    /// Threads in use.
    pub threads: usize,
    /// When the run was first begun (UTC); kept over interruptions.
    pub started: String,
    /// The command that was typed last to train it, as a shell reads it; empty in runs of versions that did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl Provenance {
    /// The facts of this process, and the present time.
    pub fn collect(device: &str, threads: usize) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            git_commit: option_env!("DSF_GIT_COMMIT").unwrap_or("unknown").into(),
            dirty: option_env!("DSF_GIT_DIRTY") == Some("true"),
            host: host(),
            cpu: cpu(),
            simd: Simd::current().name().into(),
            os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            device: device.into(),
            threads,
            started: utc_now(),
            command: String::new(),
        }
    }

    /// The commit, marked as `git describe --dirty` does.
    pub fn commit(&self) -> String {
        let mark = if self.dirty { "-dirty" } else { "" };
        format!("{}{mark}", self.git_commit)
    }
}

/// Now, in UTC, to the second: `2026-01-31T23:59:59Z`.
pub fn utc_now() -> String {
    // A clock beyond the years that have four digits is set wrong; the record of a run is no place to fail.
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or(jiff::Timestamp::MAX);
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The most memory that this process has held so far, where the system tells.
pub fn peak_memory_bytes() -> Option<u64> {
    bytes_of("/proc/self/status", "VmHWM")
}

/// Processes that the system has killed so far because memory ran out, where it tells.
pub fn memory_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

/// Name of this host.
pub fn host() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let variable = |name| std::env::var(name).ok();
    kernel
        .or_else(|| variable("HOSTNAME"))
        .or_else(|| variable("COMPUTERNAME"))
        .map_or("unknown".into(), |name| name.trim().into())
}

/// Bytes of main memory, where the system tells.
pub fn memory_bytes() -> Option<u64> {
    bytes_of("/proc/meminfo", "MemTotal")
}

/// The most memory that this process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// How much.
    pub bytes: u64,
    /// What sets it, as a sentence names it.
    pub of: &'static str,
}

/// The tightest of the machine's memory, the control groups that this process is in (batch systems and containers
/// set them), and the limit of its address space (`ulimit -v`), where the system tells.
pub fn memory_limit() -> Option<MemoryLimit> {
    let limit = |bytes: Option<u64>, of| bytes.map(|bytes| MemoryLimit { bytes, of });
    let space = rustix::process::getrlimit(rustix::process::Resource::As).current;
    [
        limit(memory_bytes(), "this machine's memory"),
        limit(
            group_limit(Path::new("/sys/fs/cgroup")),
            "the memory limit of this job",
        ),
        limit(space, "the limit of this process (`ulimit -v`)"),
    ]
    .into_iter()
    .flatten()
    .min_by_key(|limit| limit.bytes)
}

/// Refuses `what`, which needs this many bytes, where this process may not take as many; `remedy` says what would need fewer.
pub fn check_memory(needed: f64, what: &str, remedy: &str) -> Result<()> {
    let Some(limit) = memory_limit() else {
        return Ok(());
    };
    let room = limit.bytes as f64;
    ensure!(
        needed <= room,
        "{what} needs about {} of memory, and {} is {}: {remedy}",
        gigabytes(needed),
        limit.of,
        gigabytes(room)
    );
    Ok(())
}

/// `70 MB`, `1.4 GB`.
pub fn gigabytes(count: f64) -> String {
    if count < 0.95e9 {
        return format!("{:.0} MB", (count / 1e6).ceil());
    }
    format!("{:.1} GB", count / 1e9)
}

/// The tightest limit of the control group of this process, of version 2, and of the groups around it.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = root.join(own);
    let around = folder
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    let limits = around.filter_map(|folder| {
        let text = fs::read_to_string(folder.join("memory.max")).ok()?;
        text.trim().parse().ok() // "max" is no limit
    });
    limits.min()
}

/// A field that one of the system's files gives in KiB.
fn bytes_of(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let kib = colon_field(&text, name)?.split_whitespace().next()?;
    Some(kib.parse::<u64>().ok()? * 1024)
}

/// Model of the processor.
pub fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    colon_field(&text, "model name")
        .unwrap_or("unknown")
        .to_owned()
}

fn colon_field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_utc_to_the_second() {
        let now = utc_now();
        assert_eq!(now.len(), "2026-01-31T23:59:59Z".len(), "{now}");
        now.parse::<jiff::Timestamp>().unwrap();
    }

    #[test]
    fn fields_of_proc_files_are_found_by_their_whole_name() {
        let text = "model\t\t: 85\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(colon_field(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(colon_field(text, "stepping"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn peak_memory_is_more_than_a_megabyte() {
        assert!(peak_memory_bytes().unwrap() > 1 << 20);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_limited_by_the_machine_at_least() {
        let limit = memory_limit().unwrap();
        assert!(
            limit.bytes <= memory_bytes().unwrap() && limit.bytes > 1 << 26,
            "{limit:?}"
        );
    }

    #[test]
    fn a_build_with_changes_says_so_in_its_commit() {
        let mut provenance = Provenance::collect("cpu", 2);
        provenance.git_commit = "3f2c1e0".into();
        provenance.dirty = true;
        assert_eq!(provenance.commit(), "3f2c1e0-dirty");
    }
}
