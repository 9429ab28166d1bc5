//! Provenance of a run: host, time, build and device. It is recorded, but no part of a run's identity.

use crate::config::Precision;
use crate::error::{ensure, Result};
use crate::gpu::Factors;
use crate::ops::Simd;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// Contents of `env.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version of this program.
    pub version: String,
    /// Commit of the build, or `unknown`.
    pub git_commit: String,
    /// Whether the build contains uncommitted changes.
    pub dirty: bool,
    /// Name of the host.
    pub host: String,
    /// Model of the host's processor.
    pub cpu: String,
    /// Instruction set of the ops, such as `avx2`: the lowest one with which the run has the same bits. Empty in runs of
    /// versions that did not record it.
    #[serde(default)]
    pub simd: String,
    /// Operating system and architecture.
    pub os: String,
    /// Device as chosen, e.g. `cpu` or `cuda:0`.
    pub device: String,
    /// Threads in use.
    pub threads: usize,
    /// Time at which the run was first begun (UTC); kept over interruptions.
    pub started: String,
    /// Last command that trained the run, quoted for a shell; empty in runs of versions that did not record it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl Provenance {
    /// Returns the provenance of a run with this precision, whose products may use units that others do not.
    pub fn in_precision(self, precision: Precision) -> Self {
        let factors = if self.device == "cpu" { precision.factors() } else { Factors::F32 };
        Self { simd: Simd::of_factors(factors).name().into(), ..self }
    }

    /// Collects the provenance of this process at the current time.
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

    /// Commit with the mark `-dirty`, in the format of `git describe --dirty`.
    pub fn commit(&self) -> String {
        let mark = if self.dirty { "-dirty" } else { "" };
        format!("{}{mark}", self.git_commit)
    }
}

/// Current time in UTC, to the second: `2026-01-31T23:59:59Z`.
pub fn utc_now() -> String {
    // A clock beyond the year 9999 is set wrong; that must not fail a run.
    let now = jiff::Timestamp::try_from(SystemTime::now()).unwrap_or(jiff::Timestamp::MAX);
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Peak resident memory of this process in bytes, if the system reports it.
pub fn peak_memory_bytes() -> Option<u64> {
    bytes_of("/proc/self/status", "VmHWM")
}

/// Number of processes that the kernel's OOM killer has killed since boot, if the system reports it.
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

/// Size of the main memory in bytes, if the system reports it.
pub fn memory_bytes() -> Option<u64> {
    bytes_of("/proc/meminfo", "MemTotal")
}

/// Upper limit of the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Limit in bytes.
    pub bytes: u64,
    /// Source of the limit, as printed in a sentence.
    pub of: &'static str,
}

/// Returns the tightest of three limits, if the system reports them: the machine's memory, the control groups of this
/// process (set by batch systems and containers), and the limit of its address space (`ulimit -v`).
pub fn memory_limit() -> Option<MemoryLimit> {
    let limit = |bytes: Option<u64>, of| bytes.map(|bytes| MemoryLimit { bytes, of });
    let space = rustix::process::getrlimit(rustix::process::Resource::As).current;
    [
        limit(memory_bytes(), "this machine's memory"),
        limit(group_limit(Path::new("/sys/fs/cgroup")), "the memory limit of this job"),
        limit(space, "the limit of this process (`ulimit -v`)"),
    ]
    .into_iter()
    .flatten()
    .min_by_key(|limit| limit.bytes)
}

/// Returns an error if `what` needs more bytes than this process may take; `remedy` is the advice in the message.
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

/// Formats a number of bytes: `70 MB`, `1.4 GB`.
pub fn gigabytes(count: f64) -> String {
    if count < 0.95e9 {
        return format!("{:.0} MB", (count / 1e6).ceil());
    }
    format!("{:.1} GB", count / 1e9)
}

/// Returns the tightest limit of this process's control group (version 2) and the groups around it.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = root.join(own);
    let around = folder.ancestors().take_while(|folder| folder.starts_with(root));
    let limits = around.filter_map(|folder| {
        let text = fs::read_to_string(folder.join("memory.max")).ok()?;
        text.trim().parse().ok() // "max" is no limit
    });
    limits.min()
}

/// Returns a field of one of the system's files, converted from KiB to bytes.
fn bytes_of(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let kib = colon_field(&text, name)?.split_whitespace().next()?;
    Some(kib.parse::<u64>().ok()? * 1024)
}

/// Model of the processor.
pub fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    colon_field(&text, "model name").unwrap_or("unknown").to_owned()
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
        assert!(limit.bytes <= memory_bytes().unwrap() && limit.bytes > 1 << 26, "{limit:?}");
    }

    #[test]
    fn a_build_with_changes_says_so_in_its_commit() {
        let mut provenance = Provenance::collect("cpu", 2);
        provenance.git_commit = "3f2c1e0".into();
        provenance.dirty = true;
        assert_eq!(provenance.commit(), "3f2c1e0-dirty");
    }
}
