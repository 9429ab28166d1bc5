//! `dsf doctor`: the state of this machine for training, and remedies for its deficiencies.

mod folder;

use super::data::holdings;
use super::device::DeviceChoice;
use super::print::{self, columns, Align};
use super::{exit, Global};
use crate::error::Result;
use crate::fetch::Completeness as Data;
use crate::ops::Simd;
use crate::store::{cpu, memory_bytes, memory_limit, Provenance};
use crate::sweep::estimate::counted;
use crate::sweep::slurm;
use indicatif::DecimalBytes;
use serde_json::json;
use std::fs;
use std::process::Command;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// No problem.
    Good,
    /// Something is missing that some commands use.
    Absent,
    /// Something is broken that every run needs.
    Bad,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Absent => "absent",
            Self::Bad => "BAD",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq)]
struct Finding {
    name: &'static str,
    state: Severity,
    found: String,
    /// Remedy, if there is one.
    remedy: String,
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: Severity::Good, found: found.into(), remedy: String::new() }
    }

    fn absent(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: Severity::Absent, remedy: remedy.into(), ..Self::good(name, found) }
    }

    fn bad(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: Severity::Bad, ..Self::absent(name, found, remedy) }
    }
}

pub(super) fn main(global: &Global) -> Result<u8> {
    let mut findings = vec![program(), threads(global)?, simd(), gpus(), memory()];
    findings.push(data()?);
    findings.push(scheduler());
    findings.extend(folder::findings(&global.out)?);
    if global.json {
        for finding in &findings {
            print::line(json!({ "event": "finding", "schema": 1, "name": finding.name, "state": finding.state.name(),
                                "found": finding.found, "remedy": finding.remedy }))?;
        }
    } else {
        print::result(&text(&findings))?;
    }
    Ok(if findings.iter().any(|finding| finding.state == Severity::Bad) { exit::CHECK_FAILED } else { exit::DONE })
}

fn text(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let Finding { name, state, found, .. } = finding;
        let said = match finding.remedy.as_str() {
            "" => found.clone(),
            remedy => format!("{found}: {remedy}"),
        };
        vec![state.name().to_owned(), (*name).to_owned(), said]
    };
    let rows: Vec<Vec<String>> = findings.iter().map(row).collect();
    columns(&rows, Align::Left)
}

fn program() -> Finding {
    let origin = Provenance::collect("cpu", 1);
    let cuda = if cfg!(feature = "cuda") { "with" } else { "without" };
    let (version, commit) = (&origin.version, origin.commit());
    let found = format!("dsf {version}, commit {commit}, built {cuda} CUDA, {}", origin.os);
    Finding::good("program", found)
}

/// Checks the threads: processors of the machine, and those that this process may use.
fn threads(global: &Global) -> Result<Finding> {
    let (threads, cpu) = (global.threads()?, cpu());
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let all = text.lines().filter(|line| line.starts_with("processor")).count();
    let found = format!("{}, {cpu}", counted(threads, "thread"));
    Ok(if threads < all && global.threads.is_none() {
        Finding::absent(
            "threads",
            format!("{found}, of {all} processors"),
            "this job or shell was given no more; ask the scheduler for more (--cpus)",
        )
    } else {
        Finding::good("threads", found)
    })
}

fn simd() -> Finding {
    let best = Simd::available().max();
    let chosen = Simd::current();
    match best.filter(|best| *best > chosen) {
        Some(best) => Finding::absent("simd", format!("{chosen}, though the processor has {best}"), "unset DSF_SIMD"),
        None if chosen == Simd::Baseline && cfg!(target_arch = "x86_64") => Finding::absent(
            "simd",
            chosen.to_string(),
            "the processor has no AVX2, so training is several times slower than on one of after 2013",
        ),
        None => Finding::good(
            "simd",
            match chosen {
                Simd::Amx => format!("{chosen}: --precision bf16 and tf32 use its tiles"),
                Simd::Avx512Bf16 => format!("{chosen}: --precision bf16 multiplies up to twice as fast as f32"),
                _ => format!("{chosen}; it has no unit for bf16, so --precision bf16 is no faster than f32"),
            },
        ),
    }
}

fn gpus() -> Finding {
    match DeviceChoice::Cuda(None).gpus() {
        Ok(names) => Finding::good("gpu", names.join(", ")),
        Err(e) => {
            let said = e.to_string();
            let why = said.strip_prefix("--device cuda: ").unwrap_or(&said);
            let (why, remedy) = why.split_once("; ").unwrap_or((why, ""));
            Finding::absent("gpu", why, remedy)
        }
    }
}

fn memory() -> Finding {
    let (Some(all), Some(limit)) = (memory_bytes(), memory_limit()) else {
        let remedy = "runs that do not fit are not refused beforehand";
        return Finding::absent("memory", "this system does not tell how much", remedy);
    };
    let bytes = DecimalBytes(limit.bytes);
    if limit.bytes < all {
        Finding::absent(
            "memory",
            format!("{bytes}, {}, of {} in the machine", limit.of, DecimalBytes(all)),
            "runs that need more are refused; ask the scheduler for more (--mem)",
        )
    } else {
        Finding::good("memory", format!("{bytes}, {}", limit.of))
    }
}

/// Checks the data of the tasks; MQAR and the other synthetic tasks need none.
fn data() -> Result<Finding> {
    let (mut there, mut lacking) = (Vec::new(), Vec::new());
    for holding in holdings(None)? {
        match holding.state {
            Data::Present => there.push(holding.name),
            Data::Absent | Data::Lacks(_) => lacking.push(holding.name),
        }
    }
    let found = if there.is_empty() { "no data but what is generated".to_owned() } else { there.join(", ") };
    Ok(if lacking.is_empty() {
        Finding::good("data", found)
    } else {
        let remedy = format!(
            "`dsf data fetch` gets {}; synthetic tasks need none, and `dsf data list` says where they lie",
            lacking.join(", ")
        );
        Finding::absent("data", found, remedy)
    })
}

fn scheduler() -> Finding {
    let call = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    };
    let Some(config) = call("scontrol", &["show", "config"]) else {
        let remedy =
            "`dsf sweep --executor print` shows the job scripts for a cluster elsewhere, and --shard i/N needs no \
                      scheduler";
        return Finding::absent("slurm", "no cluster answers from here", remedy);
    };
    let most = slurm::max_array_size(&config);
    let most = most.map_or(String::new(), |most| format!("arrays of {most} tasks at most"));
    let partitions = call("sinfo", &["--noheader", "--format=%P up to %l"])
        .unwrap_or_default()
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(", ");
    Finding::good("slurm", format!("{most}; partitions {partitions}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_to_do_behind_a_colon() {
        let findings = [Finding::good("gpu", "cuda:0"), Finding::bad("locks", "none", "use another folder")];
        assert_eq!(text(&findings), "ok   gpu    cuda:0\nBAD  locks  none: use another folder\n");
    }

    #[test]
    fn what_a_machine_lacks_has_a_remedy() {
        for finding in [simd(), gpus(), memory(), scheduler(), data().unwrap()] {
            let told = !finding.remedy.is_empty();
            assert_eq!(told, finding.state != Severity::Good, "{finding:?}");
        }
    }
}
