//! The data. A task is one file, which types its settings and makes its examples, and one row of
//! [`TASKS`]; everything above this room asks the row, the [`Task`] that it reads, or the objective.

mod documents;
mod induction;
mod limits;
mod lines;
pub mod lra;
pub mod mqar;
mod parquet;
mod recall;
mod selective_copying;
mod slices;
mod sources;
mod splits;
mod synthetic;
#[cfg(test)]
mod testing;
mod text;
#[cfg(test)]
mod toy;
pub mod wikitext;

pub use crate::config::Objective;
pub use documents::Documents;
pub use slices::{Slice, Slices};
pub use sources::{Sources, DIGEST};
pub use splits::{Batch, Dataset, Splits, TrainValTest, IGNORED};
pub use text::{Counts, Ids, Text};

use crate::config::{RunConfig, TaskConfig, FORMAT};
use crate::error::{unknown_value, Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Every task, in the order of listings.
pub static TASKS: &[TaskEntry] = &[
    mqar::ENTRY,
    induction::ENTRY,
    recall::ENTRY,
    selective_copying::ENTRY,
    lra::ENTRY,
    wikitext::ENTRY,
    #[cfg(test)]
    toy::ENTRY,
];

/// What the program knows of a task without its settings.
#[derive(Debug)]
pub struct TaskEntry {
    /// As typed, and the `name` in the task of a [`RunConfig`].
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Three commands for its help, the simplest first.
    pub examples: [&'static str; 3],
    /// The defaults of its runs: presets, protocols and hyperparameters by mixer, in TOML.
    pub recipe: &'static str,
    /// The names of its settings in a config.
    pub fields: &'static [&'static str],
    /// What a model is trained to predict.
    pub objective: Objective,
    /// The name of the metric by which its runs are compared.
    pub headline: &'static str,
    /// What `dsf report` needs to show its runs, e.g. `--table 3`; nothing where it shows them anyway.
    pub report: &'static str,
    /// Its files, where there are some to download.
    pub files: Option<Files>,
    /// Types the settings of one run.
    pub read: fn(&TaskConfig) -> Result<Box<dyn Task>>,
}

/// Where a task's downloads lie, and how they are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// The folder of what `dsf data fetch` has downloaded.
    pub root: fn() -> Result<PathBuf>,
    /// What is downloaded.
    pub about: &'static str,
    /// The flags of `dsf data fetch` that say what is wanted.
    pub flags: &'static str,
}

/// The settings of one run's task, typed.
pub trait Task {
    /// The document of these settings, with everything left out that goes without saying.
    fn config(&self) -> TaskConfig;

    /// The numbers that models, trainers and estimates need.
    fn sizes(&self) -> Sizes;

    /// Refuses settings from which no data can be made, naming the rule and the flag.
    fn check(&self) -> Result<()>;

    /// Makes the splits, or reads them from files under `data_dir`; `None` is where downloads lie.
    fn load(&self, data_dir: Option<&Path>) -> Result<Splits>;

    /// What a sentence calls it: `MQAR (L = 64, 4 pairs)`.
    fn title(&self) -> String;

    /// The best accuracy without recall; `None` where the data say that better (a majority-class baseline, a unigram model).
    fn without_recall(&self) -> Option<NoRecall> {
        None
    }

    /// The answers of `test`, one of its test sets, in slices whose accuracies are told apart; `None` where it tells none apart.
    fn slices(&self, _test: &Dataset) -> Option<Slices> {
        None
    }

    /// Whether every sequence that a model of it reads, trained or tested, has as many tokens.
    fn has_one_length(&self) -> bool {
        let sizes = self.sizes();
        sizes.seq_len == sizes.test_seq_len
    }

    /// What tells it from others in a list of runs: `L=64/4`.
    fn label(&self) -> String;

    /// The flags of a sweep to suggest after a run of `mixer`.
    fn next(&self, mixer: &str) -> String;

    /// The files that [`Self::load`] reads; `None` of data that are generated or part of the program.
    ///
    /// # Errors
    /// Files that are not there.
    fn sources(&self, _data_dir: Option<&Path>) -> Result<Option<Sources>> {
        Ok(None)
    }

    /// The files that [`Self::prepare`] makes, named so that equal names are equal files; `None` where
    /// there is nothing to make.
    fn prepared(&self) -> Option<String> {
        None
    }

    /// Makes files that [`Self::load`] would make, and tells `watch` how far it is.
    ///
    /// # Errors
    /// Those of [`Self::load`], what the disk refuses, and what `watch` returns.
    fn prepare(&self, _data_dir: Option<&Path>, _watch: Watch) -> Result<()> {
        Ok(())
    }

    /// [`Self::sizes`] with the number of examples that the data turn out to have.
    fn counted(&self, _data_dir: Option<&Path>) -> Result<Sizes> {
        Ok(self.sizes())
    }
}

/// The best accuracy of a predictor that knows the law by which examples are drawn and compares no tokens: an accuracy at or
/// below it shows no recall.
#[derive(Clone, Debug, PartialEq)]
pub struct NoRecall {
    /// 0 to 1.
    pub accuracy: f64,
    /// The predictor: `position alone`, or a guess among some answers.
    pub predictor: String,
}

/// How far the making of files is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// `train`, `val` or `test`; empty while another process makes them.
    pub split: &'static str,
    /// Bytes of its sources that have been read.
    pub done: u64,
    /// Bytes of its sources.
    pub total: u64,
}

/// Hears of progress, and may give up.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> Result<()>;

/// The sizes of a task's examples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Rows of the token table, V.
    pub vocab_size: usize,
    /// Tokens of the longest sequence that is trained on, L.
    pub seq_len: usize,
    /// Tokens of the longest sequence that is tested.
    pub test_seq_len: usize,
    /// Sequences an example: 2 in tasks of pairs.
    pub documents: usize,
    /// Labels an example.
    pub labels_per_example: usize,
    /// Values that a label can take, C.
    pub classes: usize,
    /// Token t as one number is `scale t + shift`, for models that embed no tokens.
    pub scalar: (f64, f64),
    /// Examples of the training, the validation and the test split; of a text that is not limited,
    /// about so many.
    pub examples: [usize; 3],
}

impl Sizes {
    /// Of sequences whose labels are tokens themselves.
    fn of_tokens(
        vocab_size: usize,
        [seq_len, test_seq_len]: [usize; 2],
        labels: usize,
        examples: [usize; 3],
    ) -> Self {
        Self {
            vocab_size,
            seq_len,
            test_seq_len,
            documents: 1,
            labels_per_example: labels,
            classes: vocab_size,
            scalar: (1.0, 0.0),
            examples,
        }
    }

    /// Tokens of a training example at most.
    pub fn tokens_per_example(&self) -> usize {
        self.seq_len * self.documents
    }

    /// Tokens of a tested example at most.
    pub fn tokens_per_tested_example(&self) -> usize {
        self.test_seq_len * self.documents
    }

    /// Tokens of the longest sequence that a model reads.
    pub fn longest(&self) -> usize {
        self.seq_len.max(self.test_seq_len)
    }

    /// Examples that are tested after an epoch.
    pub fn tested_examples(&self) -> usize {
        self.examples[1] + self.examples[2]
    }
}

/// Where examples come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// Our own: seeded, parallel, fast.
    Native,
    /// Bit for bit what numpy's legacy generator gives the released code.
    Numpy,
    /// Nothing is generated: files of the released data.
    Files,
}

/// The task called `name`, or the sentence that says which there are.
pub fn find(name: &str) -> Result<&'static TaskEntry> {
    let known = TASKS.iter().map(|entry| entry.name);
    let found = TASKS.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| unknown_value("--task", "task", name, known))
}

/// Makes the splits of `config`, or reads them from under `data_dir`; `None` is where downloads lie.
///
/// # Errors
/// Files that are not there, are not those that `config` names by their digest, or change while they are read; and
/// what is wrong in them.
pub fn load(config: &TaskConfig, data_dir: Option<&Path>) -> Result<Splits> {
    let task = config.read()?;
    let Some(sources) = task.sources(data_dir)? else {
        return task.load(data_dir);
    };
    let stamp = sources.stamp()?;
    if let Some(named) = config.source_digest() {
        same_files(named, &sources.digest()?, &*task, data_dir)?;
    }
    let splits = task.load(data_dir)?;
    sources.unchanged_since(&stamp)?;
    Ok(splits)
}

/// Refuses files with the digest `found` where those with the digest `named` are wanted.
fn same_files(named: &str, found: &str, task: &dyn Task, data_dir: Option<&Path>) -> Result<()> {
    if named == found {
        return Ok(());
    }
    let place = data_dir.map_or(String::new(), |dir| format!(" in {}", dir.display()));
    Err(Error::missing(format!(
        "the files of {}{place} have the digest {found}, and those of this run {named}: give the folder of its files by \
         --data-dir, or type its settings without --config for a run on these files",
        task.title()
    )))
}

impl TaskConfig {
    /// The row of its task.
    pub fn entry(&self) -> Result<&'static TaskEntry> {
        find(self.name())
    }

    /// Its settings, typed.
    ///
    /// # Errors
    /// An unknown task, and settings that are missing, unknown or of another type.
    pub fn read(&self) -> Result<Box<dyn Task>> {
        (self.entry()?.read)(self)
    }

    /// The digest of the files that it reads, once [`Self::identify`] has found it.
    pub fn source_digest(&self) -> Option<&str> {
        self.get(DIGEST)?.as_str()
    }

    /// Names the files that the task reads by a digest of their content, so that a run on other files is another run.
    /// What is generated needs none.
    ///
    /// # Errors
    /// Files that are not there, and others than those that are named already.
    pub fn identify(&mut self, data_dir: Option<&Path>) -> Result<()> {
        let task = self.read()?;
        let Some(sources) = task.sources(data_dir)? else {
            self.remove(DIGEST);
            return Ok(());
        };
        let found = sources.digest()?;
        match self.source_digest() {
            Some(named) => same_files(named, &found, &*task, data_dir),
            None => {
                self.set(DIGEST, found);
                Ok(())
            }
        }
    }

    /// The same settings for whatever files are there.
    #[must_use]
    pub fn of_any_files(mut self) -> Self {
        self.remove(DIGEST);
        self
    }

    /// The sizes of its examples. Its errors are those of [`Self::read`].
    pub fn sizes(&self) -> Result<Sizes> {
        Ok(self.read()?.sizes())
    }
}

impl RunConfig {
    /// Parses what [`Self::canonical`] or a run's `config.json` holds. `place` names the source.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let refused = |why: String| Error::corrupt(place, format!("not a run config: {why}"));
        let mut config: Self = serde_json::from_str(text).map_err(|e| refused(e.to_string()))?;
        let task = config.task.read().map_err(|e| refused(e.to_string()))?;
        config.task = task.config();
        if config.format != FORMAT {
            let found = config.format;
            let reason =
                format!("format {found} is not the format {FORMAT} that this version trains");
            return Err(Error::corrupt(place, reason));
        }
        Ok(config)
    }
}

/// SHA-256 of `bytes` in hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Twelve hex digits of the SHA-256 over `parts`, one behind the other.
fn fingerprint<'a>(parts: impl Iterator<Item = Cow<'a, [u8]>>) -> String {
    let mut hash = Sha256::new();
    parts.for_each(|part| hash.update(part));
    hex::encode(&hash.finalize()[..6])
}

#[cfg(test)]
mod tests;
