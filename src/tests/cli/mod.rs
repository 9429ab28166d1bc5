//! The binary as a person types it.

mod bench;
mod claims;
mod cluster;
mod data;
mod errors;
mod generate;
mod golden;
mod hosts;
mod inspect;
mod lra;
mod notices;
mod packaging;
mod programs;
#[cfg(not(feature = "cuda"))] // README speaks of the default build
mod readme;
pub(crate) mod recovery;
mod report;
mod runs;
mod show;
mod sources;
mod sweeps;
mod text;
mod wikitext;
mod wikitext_tools;

use assert_cmd::Command;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder of its own, and `dsf` called inside it.
pub(crate) struct World {
    dir: TempDir,
}

/// What a call came to.
pub(crate) struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// The event of an error, as programs read it under `--json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Fault {
    pub kind: String,
    pub code: i32,
    pub flag: Option<String>,
    pub value: Option<String>,
    pub path: Option<PathBuf>,
    pub line: Option<u64>,
    pub row: Option<u64>,
    /// For people. Tests look in it for names, commands and numbers alone, see [`Self::names`].
    pub reason: String,
}

impl World {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `dsf` with `line` split at blanks.
    pub fn dsf(&self, line: &str) -> Said {
        self.call(&line.split_whitespace().collect::<Vec<_>>(), b"")
    }

    /// [`Self::dsf`] under an instruction set.
    pub fn dsf_with(&self, simd: &str, line: &str) -> Said {
        self.dsf_in(("DSF_SIMD", simd), line)
    }

    /// [`Self::dsf`] with a variable of the environment.
    pub fn dsf_in(&self, (name, value): (&str, &str), line: &str) -> Said {
        let mut command = self.command(&line.split_whitespace().collect::<Vec<_>>());
        Said::of(command.env(name, value))
    }

    /// The error that `dsf` with `line` ends in.
    pub fn fault(&self, line: &str) -> Fault {
        self.dsf(&format!("{line} --json")).fault()
    }

    /// Asserts that `dsf` refuses `line` for `flag` before it makes anything, and gives the error.
    pub fn refuses(&self, line: &str, flag: &str) -> Fault {
        let existed = self.path("results").exists();
        let fault = self.fault(line);
        assert_eq!(
            (fault.kind.as_str(), fault.flag.as_deref()),
            ("refused", Some(flag)),
            "{line}: {fault:?}"
        );
        assert_eq!(
            self.path("results").exists(),
            existed,
            "{line}: a refusal makes nothing"
        );
        fault
    }

    pub fn call(&self, arguments: &[&str], stdin: &[u8]) -> Said {
        Said::of(self.command(arguments).write_stdin(stdin))
    }

    /// [`Self::dsf`] in an address space of so many KiB.
    pub fn dsf_within(&self, kib: u32, line: &str) -> Said {
        let program = assert_cmd::cargo::cargo_bin("dsf");
        let script = format!("ulimit -v {kib}; exec {} {line}", program.display());
        let mut command = Command::new("sh");
        Said::of(self.at_home(command.args(["-c", &script])))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::cargo_bin("dsf").unwrap();
        self.at_home(command.args(arguments));
        command
    }

    fn at_home<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(self.dir.path())
            .env_remove("DSF_OUT")
            .env_remove("DSF_DATA")
            .env("HF_HOME", self.path("home"))
    }

    /// The only run under `out`.
    pub fn only_run(&self, out: &str) -> PathBuf {
        let runs = self.runs(out);
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.into_iter().next().unwrap()
    }

    /// The folders of all runs under `out`, sorted.
    pub fn runs(&self, out: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(out).join("runs")).unwrap();
        let mut runs: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        runs.sort();
        runs
    }
}

impl Said {
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts success and gives stdout.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// Asserts refusal with exit code 2 and one clear sentence, and gives it.
    pub fn refused(self) -> String {
        self.ends(2)
    }

    /// Asserts an end with the exit code `code` and one clear sentence, and gives it.
    pub fn ends(self, code: i32) -> String {
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.out, self.err
        );
        assert!(!self.err.contains("panicked"), "{}", self.err);
        assert_eq!(self.out, "", "a refusal leaves stdout empty");
        self.err
    }
}

impl Said {
    /// The error of a call with `--json`: the last event on stdout, a sentence on stderr, and the exit code of its kind.
    pub fn fault(self) -> Fault {
        let last = self.out.lines().last().unwrap_or_default();
        let fault: Fault = serde_json::from_str(last)
            .unwrap_or_else(|e| panic!("{e}: {}\n{}", self.out, self.err));
        assert_eq!(self.code, fault.code, "{fault:?}");
        let sentence = self.err.lines().any(|line| line.starts_with("error: "));
        assert!(sentence && !self.err.contains("panicked"), "{}", self.err);
        fault
    }
}

impl Fault {
    /// Asserts that the reason names each of `names`: flags, values, commands, files or numbers, and no other words.
    #[track_caller]
    pub fn names(&self, names: &[&str]) -> &Self {
        for name in names {
            assert!(self.reason.contains(name), "{name}: {self:?}");
        }
        self
    }

    /// Asserts the place in a file.
    #[track_caller]
    pub fn at(&self, path: impl AsRef<Path>, line: Option<u64>) -> &Self {
        let found = (self.path.as_deref(), self.line);
        assert_eq!(found, (Some(path.as_ref()), line), "{self:?}");
        self
    }
}

/// The epochs of a run without their times: every number that must repeat to the bit.
pub(crate) fn numbers(run: &Path) -> Vec<String> {
    let text = fs::read_to_string(run.join("metrics.csv")).unwrap();
    let kept = |line: &str| line.split(',').take(5).collect::<Vec<_>>().join(",");
    let numbers: Vec<String> = text.lines().map(kept).collect();
    assert_eq!(numbers[0], "epoch,train_loss,test_loss,accuracy,lr");
    numbers
}
