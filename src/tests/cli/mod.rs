//! The binary as a person types it.

mod bench;
mod claims;
mod cluster;
mod data;
mod errors;
mod fine_tuning;
mod generate;
mod golden;
mod hosts;
mod inspect;
mod lra;
mod notices;
mod packaging;
mod pretrained;
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
mod tour;
mod wikitext;
mod wikitext_tools;

use assert_cmd::Command;
use insta::Settings;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder of its own, and `dsf` called inside it.
pub(crate) struct World {
    dir: TempDir,
}

/// Exit code and output of a call.
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
        Self { dir: tempfile::tempdir().unwrap() }
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
        self.dsf(&format!("--json {line}")).fault()
    }

    /// [`Self::fault`] of `kind`.
    #[track_caller]
    pub fn fails(&self, line: &str, kind: &str) -> Fault {
        let fault = self.fault(line);
        assert_eq!(fault.kind, kind, "{line}: {fault:?}");
        fault
    }

    /// Asserts that `dsf` refuses `line` for `flag` before it makes anything, and gives the error.
    #[track_caller]
    pub fn refuses(&self, line: &str, flag: &str) -> Fault {
        let existed = self.path("results").exists();
        let fault = self.fault(line);
        assert_eq!((fault.kind.as_str(), fault.flag.as_deref()), ("refused", Some(flag)), "{line}: {fault:?}");
        assert_eq!(self.path("results").exists(), existed, "{line}: a refusal makes nothing");
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
            .env_remove("COLUMNS")
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

    /// The objects of `--json`.
    pub fn objects(&self) -> Vec<Value> {
        let each = self.out.lines();
        each.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}{}", self.err))).collect()
    }

    /// The last of them.
    pub fn object(&self) -> Value {
        let last = self.objects().pop();
        last.unwrap_or_else(|| panic!("no object: {}", self.err))
    }

    /// Asserts success and gives stdout.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// The error of a call with `--json`: the last event on stdout, a sentence on stderr, and the exit code of its
    /// kind.
    pub fn fault(self) -> Fault {
        let last = self.out.lines().last().unwrap_or_default();
        let fault: Fault = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {}\n{}", self.out, self.err));
        assert_eq!(self.code, fault.code, "{fault:?}");
        let sentence = self.err.lines().any(|line| line.starts_with("error: "));
        assert!(sentence && !self.err.contains("panicked"), "{}", self.err);
        fault
    }
}

impl Fault {
    /// Asserts that the reason names each of `names`: flags, values, commands, files or numbers, never pieces of prose.
    #[track_caller]
    pub fn names(&self, names: &[&str]) -> &Self {
        for name in names {
            assert!(self.reason.contains(name), "{name}: {self:?}");
        }
        self
    }

    /// Asserts the flag.
    #[track_caller]
    pub fn of(&self, flag: &str) -> &Self {
        assert_eq!(self.flag.as_deref(), Some(flag), "{self:?}");
        self
    }

    /// Asserts the value of the flag.
    #[track_caller]
    pub fn gives(&self, value: &str) -> &Self {
        assert_eq!(self.value.as_deref(), Some(value), "{self:?}");
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

/// Outline of a report in JSON, without the numbers of its cells: its heading, the titles of its grids, the quantities
/// of each and its notes.
pub(crate) fn outline(report: &Value) -> String {
    let mut lines = vec![report["heading"].as_str().unwrap().to_owned()];
    for panel in report["panels"].as_array().unwrap() {
        lines.push(format!("\n{}", panel["title"].as_str().unwrap()));
        let first = lines.len();
        for cell in panel["cells"].as_array().unwrap() {
            let quantity = format!("  {}", cell["quantity"].as_str().unwrap());
            if !lines[first..].contains(&quantity) {
                lines.push(quantity);
            }
        }
    }
    lines.push(String::new());
    let notes = report["notes"].as_array().unwrap().iter();
    lines.extend(notes.map(|note| note.as_str().unwrap().to_owned()));
    lines.join("\n")
}

/// The judgement of `dsf report --claims` on a claim about published runs, at their size, in the study that ends so,
/// beside the confidence of its interval.
pub(crate) fn judged(world: &World, files: &[&str], claim: &str, study: &str) -> Value {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let paths: Vec<String> = files.iter().map(|file| results.join(file).display().to_string()).collect();
    let report = world.dsf(&format!("report {} --claims={claim} --json", paths.join(" "))).object();
    let cells = report["studies"].as_array().unwrap().iter();
    let mut cells = cells.flat_map(|study| study["cells"].as_array().unwrap().clone());
    let found = cells.find(|cell| {
        let ends = cell["study"].as_str().unwrap().ends_with(study);
        cell["level"] == "reduced" && cell["role"] == "claim" && ends
    });
    let mut found = found.unwrap_or_else(|| panic!("{files:?} {claim}: no {study}"));
    found["confidence"] = report["confidence"].clone();
    found
}

/// Several texts as one, each below its name.
pub(crate) fn sections<N: AsRef<str>, T: AsRef<str>>(texts: impl IntoIterator<Item = (N, T)>) -> String {
    let each = texts.into_iter();
    let each = each.map(|(name, text)| format!("== {}\n{}\n", name.as_ref(), text.as_ref()));
    each.collect::<Vec<_>>().join("\n")
}

/// Patterns of what another machine, another day or another commit prints, and what stands for them in files.
const OF_MACHINE: [(&str, &str); 11] = [
    (r"\S+/(release|debug)/dsf\b", "dsf"),
    (r"(/[^\s/]+)*/\.tmp\w{6}", "[folder]"),
    (r"(?m)^(- )?git .*$", "${1}git [commit]"),
    // Not the decimals of a number.
    (r"(?m)(^|[^.\w])[0-9a-f]{12}(-dirty)?\b", "${1}[id]"),
    (r"\bdsf \d+\.\d+\.\d+", "dsf [version]"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "[date]"),
    (r"\b\d+(\.\d+)? (ms|s|min|h|days?)\b( \d+ (s|min|h)\b)*", "[time]"),
    (r"\b\d+(\.\d+)? [kMG]B\b", "[bytes]"),
    (r"\S+ tokens/s\b", "[rate] tokens/s"),
    (r"\b\d+ jobs? of \d+ threads?\b", "[jobs]"),
    (r"\[env: DSF_OUT=[^\]]*\]", "[env: DSF_OUT=]"),
];

/// Patterns of what another instruction set prints after a training of its own: the numbers, and what was best by them.
/// Widths of columns go with their numbers.
const OF_TRAINING: [(&str, &str); 6] = [
    (r"(?m)^hint: .*\n", ""),
    (r"best rates?: ((, )?\S+( a half of the seeds)? \(\d+ cells?\))+", "best rate: [rate]"),
    (r"best on (\S+): .*", "best on $1: [runs]"),
    (r"-?\d+\.\d+(e-?\d+)?", "#"),
    (r"#±#", "#"),
    (r"(\S) {2,}", "$1  "),
];

/// Settings of `shows!`.
pub(crate) fn compared(trained: bool) -> Settings {
    let mut settings = Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    let root = env!("CARGO_MANIFEST_DIR").replace('.', r"\.");
    settings.add_filter(&root, "[root]");
    let patterns = OF_MACHINE.iter();
    let patterns = patterns.chain(OF_TRAINING.iter().filter(|_| trained));
    for (pattern, shown) in patterns {
        settings.add_filter(pattern, *shown);
    }
    settings
}

/// Compares a text with the file `snapshots/NAME.snap` beside the test, but for what changes from machine to machine,
/// and where the text is `trained`, but for the numbers of training.
macro_rules! shows {
    ($name:expr, trained $text:expr) => {
        $crate::cli::compared(true).bind(|| insta::assert_snapshot!($name, $text))
    };
    ($name:expr, $text:expr) => {
        $crate::cli::compared(false).bind(|| insta::assert_snapshot!($name, $text))
    };
}
pub(crate) use shows;

/// The rows of a CSV file as maps from column to text.
pub(crate) fn table(path: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.deserialize().map(|row| row.unwrap()).collect()
}
