//! What a measurement ran on, and what else ran there.

use crate::error::{Error, Result};
use crate::store::Provenance;
use serde::Serialize;
use std::fs;

/// The facts that stand beside every number.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// The widest instruction set that the fused ops found and therefore use.
    pub instruction_set: &'static str,
    /// Threads computed with.
    pub threads: usize,
    /// Runnable tasks over the last minute, ours included, where the system tells.
    pub load_average: Option<f64>,
    /// Commit of this program, with `-dirty` where it was changed.
    pub commit: String,
}

impl Machine {
    /// The machine as it is now.
    pub fn now(threads: usize) -> Self {
        let provenance = Provenance::collect("cpu", threads);
        Self {
            commit: provenance.commit(),
            cpu: provenance.cpu,
            instruction_set: instruction_set(),
            threads,
            load_average: load_average(),
        }
    }
}

/// The choice that the fused ops make between the versions of each hot loop.
fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return "avx512f";
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return "avx2+fma";
        }
    }
    "baseline"
}

fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Refuses `what` if it needs more bytes than this machine has; `give` is the remedy.
pub(super) fn fits(needed: f64, what: &str, give: &str) -> Result<()> {
    match memory_bytes() {
        Some(there) if needed > there => Err(Error::usage(format!(
            "{what} would take at least {:.0} GB of memory, and this machine has {:.0}: give {give}",
            needed / 1e9,
            there / 1e9
        ))),
        _ => Ok(()),
    }
}

/// Bytes of main memory, where the system tells.
fn memory_bytes() -> Option<f64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(1024.0 * kib)
}
