//! MAD, mechanistic architecture design (Poli et al. 2024): six small tasks, each of which tests one skill of a mixer, and
//! whose mean accuracy predicts how well architectures of it train at scale.
//!
//! | skill | an example |
//! |---|---|
//! | `recall` | pairs of a key and a value, with repetitions; the value of a key that was shown before |
//! | `noisy-recall` | the same with pairs of noise tokens among them |
//! | `fuzzy-recall` | keys and values of one to three tokens; keys of three in tests |
//! | `copying` | tokens among blanks, to be repeated in order (selective copying) |
//! | `compression` | random tokens, all of which are decoded from the last hidden vector |
//! | `memorization` | keys whose values are the same in every example, and are never shown |
//!
//! In the three tasks of recall every token is a label of the one before it in training, and the values that can be known
//! are the answers of tests. Each accuracy is reported over all answers and, as the authors do, as the mean over classes.

mod fuzzy;
mod skills;

use super::limits::{self, Rule, SequenceLengths};
use super::splits::SequenceForm;
use super::synthetic::is_zero;
use super::{Dataset, ExampleSizes, ExamplesMade, NoSkill, Objective, Splits, Task, TaskEntry};
use crate::config::TaskConfig;
use crate::error::{refuse, Result};
use serde::{Deserialize, Serialize};
use skills::{Skill, SkillSizes};
use std::path::Path;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "mad",
    about: "MAD: recall, noisy and fuzzy recall, copying, compression, memorization",
    examples: &[
        "dsf mad --mixer ssd",
        "dsf mad --skill compression --mixer hyena",
        "dsf mad --preset paper --skill fuzzy-recall --vocab-size 32 --mixer gla",
    ],
    recipe: include_str!("../../recipes/mad.toml"),
    fields: &[
        "data_seed",
        "skill",
        "vocab_size",
        "seq_len",
        "test_seq_len",
        "copy_tokens",
        "noise",
        "train_examples",
        "fresh_examples",
        "val_examples",
        "test_examples",
    ],
    objective: Objective::PerToken,
    headline: "accuracy",
    files: None,
    read,
};

/// Settings of one task of MAD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MadSettings {
    /// Seed of the data, and of the map of memorization.
    data_seed: u64,
    skill: Skill,
    /// Vocabulary size V, with noise and special tokens.
    vocab_size: usize,
    /// Length L of an example. In `recall` and `noisy-recall` the last token is an answer only, so that L - 1 are read.
    seq_len: usize,
    /// Length of a test example; `None` for that of training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test_seq_len: Option<usize>,
    /// Number of tokens to copy, T, in `copying`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    copy_tokens: Option<usize>,
    /// Probability of a pair of noise, in `noisy-recall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noise: Option<f64>,
    train_examples: usize,
    /// Whether every epoch has new training examples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fresh_examples: bool,
    /// Number of validation examples, which select the epoch; if 0, the test examples do.
    #[serde(default, skip_serializing_if = "is_zero")]
    val_examples: usize,
    test_examples: usize,
}

fn read(config: &TaskConfig) -> Result<Box<dyn Task>> {
    let settings: MadSettings = config.typed()?;
    let name = settings.skill.name();
    let own = [
        ("copy_tokens", "--copy-tokens", settings.copy_tokens.is_some(), Skill::Copying),
        ("noise", "--noise", settings.noise.is_some(), Skill::NoisyRecall),
    ];
    for (field, flag, set, skill) in own {
        match (settings.skill == skill, set) {
            (true, false) => refuse!("task mad, {name}: missing field `{field}`"),
            (false, true) => {
                refuse!(flag(flag), "belongs to the skill {}; leave it out for {name}", skill.name())
            }
            _ => {}
        }
    }
    Ok(Box::new(settings))
}

impl MadSettings {
    fn lengths(&self) -> SequenceLengths {
        SequenceLengths::new(self.seq_len, self.test_seq_len)
    }

    /// Forms of the sequences of training and of tests.
    fn forms(&self) -> [SequenceForm; 2] {
        self.lengths().tokens().map(|seq_len| self.skill.form(&self.skill_sizes(), seq_len))
    }

    fn skill_sizes(&self) -> SkillSizes {
        SkillSizes {
            data_seed: self.data_seed,
            vocab_size: self.vocab_size,
            tested: self.lengths().tokens()[1],
            copied: self.copy_tokens.unwrap_or(0),
            noise: self.noise.unwrap_or(0.0),
        }
    }

    /// Name of the random streams.
    fn stream(&self) -> String {
        format!("{}/{}", ENTRY.name, self.skill.name())
    }

    fn rules(&self) -> Vec<Rule> {
        let (lengths, sizes) = (self.lengths().each().into_iter(), self.skill_sizes());
        lengths.flat_map(|length| self.skill.rules(&sizes, length)).collect()
    }
}

impl Task for MadSettings {
    fn config(&self) -> TaskConfig {
        TaskConfig::new(ENTRY.name, &Self { test_seq_len: self.lengths().test, ..self.clone() })
    }

    fn sizes(&self) -> ExampleSizes {
        let forms = self.forms();
        let lengths = forms.each_ref().map(|form| form.seq_len);
        let labels = forms.each_ref().map(|form| form.labelled.len());
        let examples = [self.train_examples, self.val_examples, self.test_examples];
        ExampleSizes::of_tokens(self.vocab_size, lengths, labels, examples)
    }

    fn check(&self) -> Result<()> {
        let examples = [self.train_examples, self.val_examples, self.test_examples];
        limits::check(ENTRY.name, &self.rules(), self.vocab_size, self.lengths(), examples)
    }

    fn load(&self, _data_dir: Option<&Path>, _made: ExamplesMade) -> Result<Splits> {
        self.check()?;
        let examples = self.sizes().examples;
        Ok(Splits::drawn(
            &self.stream(),
            self.data_seed,
            examples,
            &self.forms(),
            self.skill.generator(&self.skill_sizes()),
        ))
    }

    fn fresh(&self, epoch: usize) -> Option<Dataset> {
        let examples = epoch * self.train_examples..(epoch + 1) * self.train_examples;
        let [form, _] = self.forms();
        let draw = || self.skill.generator(&self.skill_sizes());
        self.fresh_examples.then(|| Splits::training(&self.stream(), self.data_seed, examples, &form, draw()))
    }

    fn title(&self) -> String {
        let copied = self.copy_tokens.map(|k| format!(", {k} tokens"));
        let noise = self.noise.map(|p| format!(", noise {p}"));
        let (copied, noise) = (copied.unwrap_or_default(), noise.unwrap_or_default());
        format!("{} of MAD ({}, V = {}{copied}{noise})", self.skill.title(), self.lengths().title(), self.vocab_size)
    }

    fn without_skill(&self) -> Option<NoSkill> {
        self.check().ok()?;
        Some(self.skill.without_skill(&self.skill_sizes()))
    }

    fn has_macro_accuracy(&self) -> bool {
        true
    }

    fn label(&self) -> String {
        let copied = self.copy_tokens.map(|k| format!("/{k}"));
        let noise = self.noise.map(|p| format!("/{p}"));
        let (copied, noise) = (copied.unwrap_or_default(), noise.unwrap_or_default());
        format!("{} {}{copied}{noise}/V={}", self.skill.name(), self.lengths().label(), self.vocab_size)
    }
}

#[cfg(test)]
mod tests;
