//! Tasks and their data. A task is one module, which parses its settings and produces its examples, and one row of
//! [`TASKS`]. All other code works with the row, with the [`Task`] that the row reads, or with the objective.

mod copying;
mod documents;
mod groups;
mod induction;
mod limits;
mod lines;
pub mod lra;
mod mad;
mod most_shown;
pub mod mqar;
mod parquet;
mod pixels;
mod recall;
mod selective_copying;
mod slices;
mod sources;
mod splits;
mod state_tracking;
mod synthetic;
mod text;
pub mod wikitext;

pub use crate::config::Objective;
pub use documents::Documents;
pub use slices::{Slice, Slices};
pub use sources::{Sources, DIGEST};
pub use splits::{Batch, Dataset, Splits, TrainValTest, IGNORED, NO_ANSWER};
pub use text::{IdSlice, IdWidth, Ids, TextSize, TokenizedText};

use crate::config::{RunConfig, TaskConfig, FORMAT};
use crate::error::{unknown_value, Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// All tasks, in the order of listings.
pub static TASKS: &[TaskEntry] = &[
    mqar::ENTRY,
    induction::ENTRY,
    recall::ENTRY,
    selective_copying::ENTRY,
    copying::ENTRY,
    state_tracking::ENTRY,
    mad::ENTRY,
    lra::ENTRY,
    pixels::ENTRY,
    wikitext::ENTRY,
    #[cfg(test)]
    tests::toy::ENTRY,
];

/// Properties of a task that do not depend on its settings.
#[derive(Debug)]
pub struct TaskEntry {
    /// Name as typed, and the `name` in the task of a [`RunConfig`].
    pub name: &'static str,
    /// Description in one line, for listings.
    pub about: &'static str,
    /// Example commands for help, the simplest first.
    pub examples: &'static [&'static str],
    /// Defaults of its runs: presets, protocols and hyperparameters by mixer, in TOML.
    pub recipe: &'static str,
    /// Names of its settings in a config.
    pub fields: &'static [&'static str],
    /// Prediction target of the model.
    pub objective: Objective,
    /// Name of the metric by which runs are compared.
    pub headline: &'static str,
    /// Files of the task; `None` if there is nothing to download.
    pub files: Option<Files>,
    /// Parses the settings of one run.
    pub read: fn(&TaskConfig) -> Result<Box<dyn Task>>,
}

/// Downloads of a task: their folder, and the flags that select them.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// Folder of the files that `dsf data fetch` downloads.
    pub root: fn() -> Result<PathBuf>,
    /// Description of the files.
    pub about: &'static str,
    /// Flags of `dsf data fetch` that select the files.
    pub flags: &'static str,
}

/// Parsed task of one run.
pub trait Task {
    /// Returns the settings as a document, without those that have default values.
    fn config(&self) -> TaskConfig;

    /// Sizes needed by models, trainers and estimates.
    fn sizes(&self) -> ExampleSizes;

    /// Checks that data can be made from the settings. Fails with the rule that does not hold and its flag.
    fn check(&self) -> Result<()>;

    /// Generates the splits, or reads them from files under `data_dir`; `None` is the folder of downloads.
    fn load(&self, data_dir: Option<&Path>, made: ExamplesMade) -> Result<Splits>;

    /// Name for a sentence, such as `MQAR (L = 64, 4 pairs)`.
    fn title(&self) -> String;

    /// Best accuracy without the skill that the task tests; `None` if a baseline computed from the data is more informative
    /// (majority class, unigram model).
    fn without_skill(&self) -> Option<NoSkill> {
        None
    }

    /// Accuracy of the predictor of [`Self::without_skill`] in the slice of test answers whose property `by` is between `from`
    /// and `to`; `None` if it is unknown.
    fn without_skill_in(&self, _by: &str, _from: usize, _to: usize) -> Option<f64> {
        None
    }

    /// Slices of the answers of `test`, one of its test sets; `None` if the task has none.
    fn slices(&self, _test: &Dataset) -> Option<Slices> {
        None
    }

    /// Whether runs report the mean accuracy of classes beside that of all answers.
    fn has_macro_accuracy(&self) -> bool {
        false
    }

    /// Whether all sequences that a model of this task reads, in training and tests, have the same length.
    fn has_one_length(&self) -> bool {
        let sizes = self.sizes();
        sizes.seq_len == sizes.test_seq_len
    }

    /// Short text that identifies the task in a list of runs, such as `L=64/4`.
    fn label(&self) -> String;

    /// Files that [`Self::load`] reads; `None` if the data are generated or part of the program. Fails if files are
    /// missing.
    fn sources(&self, _data_dir: Option<&Path>) -> Result<Option<Sources>> {
        Ok(None)
    }

    /// Training examples of an epoch, counted from 0, if every epoch has new ones; [`Self::load`] gives those of epoch
    /// 0.
    fn fresh(&self, _epoch: usize) -> Option<Dataset> {
        None
    }

    /// Name of the files that [`Self::prepare`] makes; equal names are equal files. `None` if there is nothing to make.
    fn prepared(&self) -> Option<String> {
        None
    }

    /// Makes the files that [`Self::load`] would make, and reports its progress to `watch`. Fails as [`Self::load`]
    /// does, if writing fails, or if `watch` fails.
    fn prepare(&self, _data_dir: Option<&Path>, _watch: Watch) -> Result<()> {
        Ok(())
    }

    /// Same as [`Self::sizes`], with the numbers of examples that the data actually have.
    fn counted(&self, _data_dir: Option<&Path>) -> Result<ExampleSizes> {
        Ok(self.sizes())
    }
}

/// Accuracy of a predictor that knows the distribution of the examples but lacks the skill that the task tests. An accuracy
/// at or below it is no evidence of the skill.
#[derive(Clone, Debug, PartialEq)]
pub struct NoSkill {
    /// Accuracy from 0 to 1.
    pub accuracy: f64,
    /// Description of the predictor: `position alone`, `the value shown most often`, or a guess among a number of answers.
    pub predictor: String,
    /// Name of the baseline in tables and pictures: `no ` and the skill, such as `no recall`.
    pub label: &'static str,
}

impl NoSkill {
    /// Guess, without recall, among all `answers` of the kind `called`.
    fn guess(answers: usize, called: &str) -> Self {
        Self {
            accuracy: 1.0 / answers as f64,
            predictor: format!("a guess among all {answers} {called}"),
            label: NO_RECALL,
        }
    }

    /// Name of the skill, such as `recall`.
    pub fn skill(&self) -> &'static str {
        self.label.strip_prefix(NO).unwrap_or(self.label)
    }

    /// Name of the accuracy for programs: `without_recall`, or `without_skill` for any other skill.
    pub fn field(skill: &str) -> &'static str {
        if skill == "recall" {
            "without_recall"
        } else {
            "without_skill"
        }
    }
}

/// Beginning of the label of an accuracy without a skill.
pub const NO: &str = "no ";

/// Label of the accuracy without recall.
const NO_RECALL: &str = "no recall";

/// Label of the accuracy without copying.
const NO_COPYING: &str = "no copying";

/// Progress of the preparation of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparationProgress {
    /// Split in progress: `train`, `val` or `test`; empty while another process makes them.
    pub split: &'static str,
    /// Number of bytes of its sources that have been read.
    pub done: u64,
    /// Size in bytes of its sources.
    pub total: u64,
}

/// Callback for progress. It may return an error to stop.
pub type Watch<'a> = &'a mut dyn FnMut(PreparationProgress) -> Result<()>;

/// Callback for the number of examples generated so far, and of all. It may return an error to stop.
pub type ExamplesMade<'a> = &'a mut dyn FnMut(usize, usize) -> Result<()>;

/// Sizes of a task's examples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExampleSizes {
    /// Number of rows of the token table, V.
    pub vocab_size: usize,
    /// Length in tokens of the longest training sequence, L.
    pub seq_len: usize,
    /// Length in tokens of the longest test sequence.
    pub test_seq_len: usize,
    /// Number of sequences per example: 2 in tasks of pairs.
    pub documents: usize,
    /// Number of labelled positions per training example.
    pub labels_per_example: usize,
    /// Number of labelled positions per test example.
    pub labels_per_tested_example: usize,
    /// Number of classes of a label, C.
    pub classes: usize,
    /// Scale and shift of a token t as a number, `scale t + shift`, for models without token embeddings.
    pub scalar: (f64, f64),
    /// Number of examples of the training, the validation and the test split; approximate for a text without a limit.
    pub examples: [usize; 3],
}

impl ExampleSizes {
    /// Sizes of a task whose labels are tokens; each pair is of training and of tests.
    fn of_tokens(
        vocab_size: usize,
        [seq_len, test_seq_len]: [usize; 2],
        [labels, labels_per_tested_example]: [usize; 2],
        examples: [usize; 3],
    ) -> Self {
        Self {
            vocab_size,
            seq_len,
            test_seq_len,
            documents: 1,
            labels_per_example: labels,
            labels_per_tested_example,
            classes: vocab_size,
            scalar: (1.0, 0.0),
            examples,
        }
    }

    /// Largest number of tokens in a training example.
    pub fn tokens_per_example(&self) -> usize {
        self.seq_len * self.documents
    }

    /// Largest number of tokens in a test example.
    pub fn tokens_per_tested_example(&self) -> usize {
        self.test_seq_len * self.documents
    }

    /// Length in tokens of the longest sequence that a model reads.
    pub fn longest(&self) -> usize {
        self.seq_len.max(self.test_seq_len)
    }

    /// Number of examples tested after an epoch.
    pub fn tested_examples(&self) -> usize {
        self.examples[1] + self.examples[2]
    }
}

/// Source of the examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generator {
    /// Generator of this program: seeded and parallel.
    Native,
    /// Generator of the released code, which draws from numpy's legacy generator, reproduced bit for bit.
    Numpy,
    /// Files of the released data.
    Files,
}

/// Returns the task called `name`. Fails with the list of known tasks.
pub fn find(name: &str) -> Result<&'static TaskEntry> {
    let known = TASKS.iter().map(|entry| entry.name);
    TASKS.iter().find(|entry| entry.name == name).ok_or_else(|| unknown_value("--task", "task", name, known))
}

/// [`load_watched`] without a report.
pub fn load(config: &TaskConfig, data_dir: Option<&Path>) -> Result<Splits> {
    load_watched(config, data_dir, &mut |_, _| Ok(()))
}

/// Generates the splits of `config`, or reads them from under `data_dir`; `None` is the folder of downloads. Generators
/// that take minutes report to `made`. Fails if files are missing, are invalid, do not match the digest in `config`, or
/// change while they are read, and as `made` does.
pub fn load_watched(config: &TaskConfig, data_dir: Option<&Path>, made: ExamplesMade) -> Result<Splits> {
    let task = config.read()?;
    let Some(sources) = task.sources(data_dir)? else { return task.load(data_dir, made) };
    let stamp = sources.stamp()?;
    if let Some(named) = config.source_digest() {
        same_files(named, &sources.digest()?, &*task, data_dir)?;
    }
    let splits = task.load(data_dir, made)?;
    sources.unchanged_since(&stamp)?;
    Ok(splits)
}

/// Fails if `found`, the digest of the files, differs from `named`, the digest in the config.
fn same_files(named: &str, found: &str, task: &dyn Task, data_dir: Option<&Path>) -> Result<()> {
    if named == found {
        return Ok(());
    }
    let reason = format!(
        "the files of {} have the digest {found}, but those of this run have {named}: give their folder with \
         --data-dir, or give the settings as flags instead of --config for a new run on the present files",
        task.title()
    );
    Err(match data_dir {
        Some(dir) => Error::missing_at(dir, reason),
        None => Error::missing(reason),
    })
}

impl TaskConfig {
    /// Row of the task in [`TASKS`].
    pub fn entry(&self) -> Result<&'static TaskEntry> {
        find(self.name())
    }

    /// Parses the settings. Fails for an unknown task and for settings that are missing, unknown or of another type.
    pub fn read(&self) -> Result<Box<dyn Task>> {
        (self.entry()?.read)(self)
    }

    /// Digest of the files that the task reads, once [`Self::identify`] has recorded it.
    pub fn source_digest(&self) -> Option<&str> {
        self.get(DIGEST)?.as_str()
    }

    /// Records a digest of the content of the files that the task reads, so that a run on other files is another run.
    /// Generated data have none. Fails if files are missing or do not match a digest that is already recorded.
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

    /// Same settings without the digest of the files.
    #[must_use]
    pub fn of_any_files(mut self) -> Self {
        self.remove(DIGEST);
        self
    }

    /// Sizes of the task's examples.
    pub fn sizes(&self) -> Result<ExampleSizes> {
        Ok(self.read()?.sizes())
    }
}

impl RunConfig {
    /// Parses the text of [`Self::canonical`] or of a run's `config.json`. `place` names the source in errors.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let refused = |why: String| Error::corrupt(place, format!("not a run config: {why}"));
        let mut config: Self = serde_json::from_str(text).map_err(|e| refused(e.to_string()))?;
        let task = config.task.read().map_err(|e| refused(e.to_string()))?;
        config.task = task.config();
        if config.format != FORMAT {
            let found = config.format;
            let reason = format!("its format is {found}, but this version trains format {FORMAT}");
            return Err(Error::corrupt(place, reason));
        }
        Ok(config)
    }
}

/// SHA-256 of `bytes` in hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Twelve hex digits of the SHA-256 of the concatenated `parts`.
fn fingerprint<'a>(parts: impl Iterator<Item = Cow<'a, [u8]>>) -> String {
    let mut hash = Sha256::new();
    parts.for_each(|part| hash.update(part));
    hex::encode(&hash.finalize()[..6])
}

#[cfg(test)]
mod tests;
#[cfg(test)]
use tests::testing;
