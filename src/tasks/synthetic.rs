//! Settings, checks and splits shared by generated tasks with labels at the last tokens of a sequence.

use super::limits::{self, Length, Rule, SequenceLengths};
use super::{Dataset, ExampleSizes, NoRecall, Objective, Splits, Task, TaskEntry};
use crate::config::TaskConfig;
use crate::error::{refuse, Result};
use crate::ops::rng::Rng;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Description of one of these tasks.
#[derive(Debug)]
pub(super) struct Synthetic {
    pub name: &'static str,
    /// Name for a sentence.
    pub title: &'static str,
    /// Names of its settings in a config.
    pub fields: &'static [&'static str],
    /// Rules of the task for V, L and the number of answers per example. They must require L to be at least 1 and at
    /// least the number of answers.
    pub rules: fn(usize, Length, usize) -> Vec<Rule>,
    /// Number of tokens among which an uninformed guess chooses for a given V, and their description.
    pub guess: fn(usize) -> (usize, &'static str),
    /// Fills the tokens of one example, each below V, and its answers, the labels of the last tokens.
    pub draw: fn(&mut Rng, &mut [u32], u32, &mut [u32]),
}

/// Fields of a task with one answer.
pub(super) const ONE_ANSWER: &[&str] = &[
    "data_seed",
    "vocab_size",
    "seq_len",
    "test_seq_len",
    "train_examples",
    "fresh_examples",
    "val_examples",
    "test_examples",
];

/// Guess among all tokens.
pub(super) fn all_tokens(vocab_size: usize) -> (usize, &'static str) {
    (vocab_size, "tokens")
}

/// Settings of a synthetic task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SyntheticSettings {
    /// Seed of the data. Recipes set it to the run's seed, or fix it.
    pub data_seed: u64,
    /// Vocabulary size V.
    pub vocab_size: usize,
    /// Number of tokens per example, L, with the questions at the end.
    pub seq_len: usize,
    /// Number of tokens per test example; `None` for that of training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_seq_len: Option<usize>,
    /// Number of tokens to copy, k, in a copying task; also the number of answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_tokens: Option<usize>,
    /// Number of training examples of an epoch.
    pub train_examples: usize,
    /// Whether every epoch has new training examples; otherwise all have the same, in the same order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh_examples: bool,
    /// Number of validation examples, which end the training and select the epoch; if 0, the test examples do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub val_examples: usize,
    pub test_examples: usize,
}

/// Whether the field has its default value and is left out of the config.
pub(super) fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Field that only copying tasks have.
const COPY_TOKENS: &str = "copy_tokens";

impl SyntheticSettings {
    fn lengths(&self) -> SequenceLengths {
        SequenceLengths::new(self.seq_len, self.test_seq_len)
    }

    /// Number of answers per example.
    fn answers(&self) -> usize {
        self.copy_tokens.unwrap_or(1)
    }
}

struct SyntheticRun {
    task: &'static Synthetic,
    settings: SyntheticSettings,
}

impl Synthetic {
    /// Row of the task; `read` must call [`Self::read`] of this task.
    pub const fn entry(
        &self,
        about: &'static str,
        examples: [&'static str; 3],
        recipe: &'static str,
        read: fn(&TaskConfig) -> Result<Box<dyn Task>>,
    ) -> TaskEntry {
        TaskEntry {
            name: self.name,
            about,
            examples,
            recipe,
            fields: self.fields,
            objective: Objective::PerToken,
            headline: "accuracy",
            report: "",
            files: None,
            read,
        }
    }

    /// Parses the settings of one run.
    pub fn read(&'static self, config: &TaskConfig) -> Result<Box<dyn Task>> {
        let settings: SyntheticSettings = config.typed()?;
        let name = self.name;
        match (self.fields.contains(&COPY_TOKENS), settings.copy_tokens) {
            (true, None) => refuse!("task {name}: missing field `{COPY_TOKENS}`"),
            (false, Some(_)) => refuse!("task {name}: unknown field `{COPY_TOKENS}`"),
            _ => {}
        }
        Ok(Box::new(SyntheticRun { task: self, settings }))
    }
}

impl SyntheticRun {
    /// Fills the tokens and the answers of an example.
    fn draw(&self, rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32]) {
        (self.task.draw)(rng, tokens, self.settings.vocab_size as u32, answers);
    }
}

impl Task for SyntheticRun {
    fn config(&self) -> TaskConfig {
        let settings = SyntheticSettings { test_seq_len: self.settings.lengths().test, ..self.settings.clone() };
        TaskConfig::new(self.task.name, &settings)
    }

    fn sizes(&self) -> ExampleSizes {
        let s = &self.settings;
        let examples = [s.train_examples, s.val_examples, s.test_examples];
        ExampleSizes::of_tokens(s.vocab_size, s.lengths().tokens(), s.answers(), examples)
    }

    fn check(&self) -> Result<()> {
        let s = &self.settings;
        let rules = s.lengths().each();
        let rules = rules.map(|length| (self.task.rules)(s.vocab_size, length, s.answers()));
        let examples = self.sizes().examples;
        let (name, lengths) = (self.task.name, s.lengths());
        limits::check(name, &rules.concat(), s.vocab_size, lengths, examples)
    }

    fn load(&self, _data_dir: Option<&Path>) -> Result<Splits> {
        self.check()?;
        let draw = |rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32]| self.draw(rng, tokens, answers);
        Ok(Splits::drawn(self.task.name, self.settings.data_seed, &self.sizes(), draw))
    }

    fn fresh(&self, epoch: usize) -> Option<Dataset> {
        let s = &self.settings;
        let draw = |rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32]| self.draw(rng, tokens, answers);
        let examples = epoch * s.train_examples..(epoch + 1) * s.train_examples;
        s.fresh_examples.then(|| Splits::training(self.task.name, s.data_seed, &self.sizes(), examples, draw))
    }

    fn title(&self) -> String {
        let copied = self.settings.copy_tokens.map(|k| format!(", {k} tokens"));
        let (title, lengths) = (self.task.title, self.settings.lengths().title());
        format!("{title} ({lengths}{})", copied.unwrap_or_default())
    }

    fn without_recall(&self) -> Option<NoRecall> {
        let (answers, called) = (self.task.guess)(self.settings.vocab_size);
        Some(NoRecall { accuracy: 1.0 / answers as f64, predictor: format!("a guess among all {answers} {called}") })
    }

    fn label(&self) -> String {
        let copied = self.settings.copy_tokens.map(|k| format!("/{k}"));
        self.settings.lengths().label() + &copied.unwrap_or_default()
    }

    fn next(&self, mixer: &str) -> String {
        let seq_len = self.settings.seq_len;
        format!("--mixer {mixer} --seq-len {seq_len},{}", 2 * seq_len)
    }
}
