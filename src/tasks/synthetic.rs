//! Generated tasks that ask at the last tokens of a sequence: the settings, the checks and the splits that they share.

use super::limits::{self, Length, Lengths, Rule};
use super::{NoRecall, Objective, Sizes, Splits, Task, TaskEntry};
use crate::config::TaskConfig;
use crate::error::{refuse, Result};
use crate::ops::rng::Rng;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What tells one of these tasks from the others.
#[derive(Debug)]
pub(super) struct Synthetic {
    pub name: &'static str,
    /// What a sentence calls it.
    pub title: &'static str,
    /// The names of its settings in a config.
    pub fields: &'static [&'static str],
    /// Its own rules of V, L and the answers of an example; L is at least 1 and no less than the answers by them.
    pub rules: fn(usize, Length, usize) -> Vec<Rule>,
    /// Of V: among how many tokens a guess is that knows the rules alone, and what they are called.
    pub guess: fn(usize) -> (usize, &'static str),
    /// Fills the tokens of one example, each below V, and its answers, which stand at the last tokens.
    pub draw: fn(&mut Rng, &mut [u32], u32, &mut [u32]),
}

/// The fields of a task that asks for one answer.
pub(super) const ONE_ANSWER: &[&str] = &[
    "data_seed",
    "vocab_size",
    "seq_len",
    "test_seq_len",
    "train_examples",
    "val_examples",
    "test_examples",
];

/// A guess among all tokens.
pub(super) fn all_tokens(vocab_size: usize) -> (usize, &'static str) {
    (vocab_size, "tokens")
}

/// The settings of such a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// Seed of the data. Recipes take that of the run, or fix it.
    pub data_seed: u64,
    /// Vocabulary V.
    pub vocab_size: usize,
    /// Tokens an example, L, with the questions at the end.
    pub seq_len: usize,
    /// Tokens a test example, where they are not as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_seq_len: Option<usize>,
    /// Tokens to copy, k, in a task that copies: its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_tokens: Option<usize>,
    /// Training examples, generated once, used in the same order every epoch.
    pub train_examples: usize,
    /// Validation examples, which end the training and choose the epoch; with 0 the test examples do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub val_examples: usize,
    /// Test examples.
    pub test_examples: usize,
}

/// Whether there is nothing to say.
pub(super) fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The field that not every task has.
const COPY_TOKENS: &str = "copy_tokens";

impl Settings {
    fn lengths(&self) -> Lengths {
        Lengths::new(self.seq_len, self.test_seq_len)
    }

    /// Answers an example.
    fn answers(&self) -> usize {
        self.copy_tokens.unwrap_or(1)
    }
}

/// One run's task.
struct Run {
    task: &'static Synthetic,
    settings: Settings,
}

impl Synthetic {
    /// The row of the task; `read` is [`Self::read`] of it.
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

    /// Types the settings of one run.
    pub fn read(&'static self, config: &TaskConfig) -> Result<Box<dyn Task>> {
        let settings: Settings = config.typed()?;
        let name = self.name;
        match (self.fields.contains(&COPY_TOKENS), settings.copy_tokens) {
            (true, None) => refuse!("task {name}: missing field `{COPY_TOKENS}`"),
            (false, Some(_)) => refuse!("task {name}: unknown field `{COPY_TOKENS}`"),
            _ => {}
        }
        Ok(Box::new(Run {
            task: self,
            settings,
        }))
    }
}

impl Task for Run {
    fn config(&self) -> TaskConfig {
        let settings = Settings {
            test_seq_len: self.settings.lengths().test,
            ..self.settings.clone()
        };
        TaskConfig::new(self.task.name, &settings)
    }

    fn sizes(&self) -> Sizes {
        let s = &self.settings;
        let examples = [s.train_examples, s.val_examples, s.test_examples];
        Sizes::of_tokens(s.vocab_size, s.lengths().tokens(), s.answers(), examples)
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
        let s = &self.settings;
        let draw = |rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32]| {
            (self.task.draw)(rng, tokens, s.vocab_size as u32, answers);
        };
        let (name, seed) = (self.task.name, s.data_seed);
        Ok(Splits::drawn(name, seed, &self.sizes(), draw))
    }

    fn title(&self) -> String {
        let copied = self.settings.copy_tokens;
        let copied = copied.map(|k| format!(", {k} tokens"));
        let (title, lengths) = (self.task.title, self.settings.lengths().title());
        format!("{title} ({lengths}{})", copied.unwrap_or_default())
    }

    fn without_recall(&self) -> Option<NoRecall> {
        let (answers, called) = (self.task.guess)(self.settings.vocab_size);
        Some(NoRecall {
            accuracy: 1.0 / answers as f64,
            predictor: format!("a guess among all {answers} {called}"),
        })
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
