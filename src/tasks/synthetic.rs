//! Generated tasks that ask one question, at the last token of a sequence: the settings, the checks and the splits
//! that they share.

use super::limits::{self, Rule};
use super::{Objective, Sizes, Splits, Task, TaskEntry};
use crate::config::TaskConfig;
use crate::error::Result;
use crate::ops::rng::Rng;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What tells one of these tasks from the others.
#[derive(Debug)]
pub(super) struct Synthetic {
    pub name: &'static str,
    /// What a sentence calls it.
    pub title: &'static str,
    /// Its own rules of V and L; L is at least 1 by them.
    pub rules: fn(usize, usize) -> Vec<Rule>,
    /// Fills the tokens of one example, each below V, and gives its answer.
    pub draw: fn(&mut Rng, &mut [u32], u32) -> u32,
}

/// The settings of such a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// Seed of the data, apart from the model's seed: models vary over the same data.
    pub data_seed: u64,
    /// Vocabulary V.
    pub vocab_size: usize,
    /// Tokens an example, L, with the question at the end.
    pub seq_len: usize,
    /// Training examples, generated once, used in the same order every epoch.
    pub train_examples: usize,
    /// Test examples.
    pub test_examples: usize,
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
            fields: &[
                "data_seed",
                "vocab_size",
                "seq_len",
                "train_examples",
                "test_examples",
            ],
            objective: Objective::PerToken,
            headline: "accuracy",
            report: "",
            files: None,
            read,
        }
    }

    /// Types the settings of one run.
    pub fn read(&'static self, config: &TaskConfig) -> Result<Box<dyn Task>> {
        let settings = config.typed()?;
        Ok(Box::new(Run {
            task: self,
            settings,
        }))
    }
}

impl Task for Run {
    fn config(&self) -> TaskConfig {
        TaskConfig::new(self.task.name, &self.settings)
    }

    fn sizes(&self) -> Sizes {
        let s = &self.settings;
        let examples = [s.train_examples, 0, s.test_examples];
        Sizes::of_tokens(s.vocab_size, s.seq_len, 1, examples)
    }

    fn check(&self) -> Result<()> {
        let s = &self.settings;
        let rules = (self.task.rules)(s.vocab_size, s.seq_len);
        let examples = [s.train_examples, s.test_examples];
        limits::check(self.task.name, &rules, s.vocab_size, s.seq_len, examples)
    }

    fn load(&self, _data_dir: Option<&Path>) -> Result<Splits> {
        self.check()?;
        let s = &self.settings;
        let draw =
            |rng: &mut Rng, tokens: &mut [u32]| (self.task.draw)(rng, tokens, s.vocab_size as u32);
        let (name, seed) = (self.task.name, s.data_seed);
        Ok(Splits::one_label(name, seed, &self.sizes(), draw))
    }

    fn title(&self) -> String {
        format!("{} (L = {})", self.task.title, self.settings.seq_len)
    }

    fn guess(&self) -> Option<(f64, String)> {
        let tokens = self.settings.vocab_size;
        Some((1.0 / tokens as f64, format!("all {tokens} tokens")))
    }

    fn label(&self) -> String {
        format!("L={}", self.settings.seq_len)
    }

    fn next(&self, mixer: &str) -> String {
        let seq_len = self.settings.seq_len;
        format!("--mixer {mixer} --seq-len {seq_len},{}", 2 * seq_len)
    }
}
