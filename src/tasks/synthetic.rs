//! Settings, checks and splits shared by generated tasks with labels at the last tokens of a sequence.

use super::groups::Group;
use super::limits::{self, Length, Rule, SequenceLengths};
use super::most_shown::{self, Questions};
use super::splits::SequenceForm;
use super::{Dataset, ExampleSizes, ExamplesMade, NoSkill, Objective, Splits, Task, TaskEntry, NO_RECALL};
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
    /// Names among them that a config may leave out, of settings that not all of these tasks have.
    pub optional: &'static [&'static str],
    /// Rules of the task for sequences of one length. They must require it to be at least 1 and at least the number of
    /// answers.
    pub rules: fn(&SyntheticSettings, Length) -> Vec<Rule>,
    /// Number of tokens, V.
    pub vocabulary: fn(&SyntheticSettings) -> usize,
    /// Number of answers, at the last positions of a sequence of a length.
    pub answers: fn(&SyntheticSettings, usize) -> usize,
    /// Prediction without the skill that the task tests.
    pub without_skill: WithoutSkill,
    /// Settings beside the length in a sentence, such as `, 8 tokens`, and in a list, such as `/8`.
    pub details: fn(&SyntheticSettings) -> [String; 2],
    /// Fills the tokens of one example, each below V, and its answers, the labels of the last tokens.
    pub draw: fn(&mut Rng, &SyntheticSettings, &mut [u32], &mut [u32]),
}

impl Synthetic {
    /// Task of one answer, which is shown before the question.
    pub const ONE_ANSWER: Self = Self {
        name: "",
        title: "",
        fields: ONE_ANSWER,
        optional: &[],
        rules: |_, _| Vec::new(),
        vocabulary: |settings| settings.vocab_size.unwrap_or(0),
        answers: |_, _| 1,
        without_skill: WithoutSkill::MostShown {
            token: "the token shown most often",
            label: NO_RECALL,
            vote: |_, _, _, _| 1,
        },
        details: |_| [String::new(), String::new()],
        draw: |_, _, _, _| {},
    };
}

/// Prediction without the skill that a task tests.
#[derive(Debug)]
pub(super) enum WithoutSkill {
    /// The [token shown most often](super::most_shown).
    MostShown {
        /// Description of the token.
        token: &'static str,
        label: &'static str,
        /// Vote of a token, by its position and the length of the sequence.
        vote: fn(&SyntheticSettings, u32, usize, usize) -> i32,
    },
    /// One that follows from the settings.
    Computed(fn(&SyntheticSettings) -> NoSkill),
}

/// Fields of a task with one answer.
const ONE_ANSWER: &[&str] = &[
    "data_seed",
    "vocab_size",
    "seq_len",
    "test_seq_len",
    "train_examples",
    "fresh_examples",
    "val_examples",
    "test_examples",
];

/// Settings of a synthetic task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SyntheticSettings {
    /// Seed of the data. Recipes set it to the run's seed, or fix it.
    pub data_seed: u64,
    /// Vocabulary size V, in tasks where nothing else determines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocab_size: Option<usize>,
    /// Number of tokens per example, L, with the questions at the end.
    pub seq_len: usize,
    /// Number of tokens per test example; `None` for that of training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_seq_len: Option<usize>,
    /// Number of tokens to copy, k, in a copying task; also the number of answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_tokens: Option<usize>,
    /// Form of the copying task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<CopyForm>,
    /// Number of tokens of a key, n, of the look-up forms of copying; `None` in the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_tokens: Option<usize>,
    /// Group whose products are the answers of state tracking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
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

impl SyntheticSettings {
    fn lengths(&self) -> SequenceLengths {
        SequenceLengths::new(self.seq_len, self.test_seq_len)
    }

    /// Vocabulary size, of a task that has the setting.
    pub fn v(&self) -> usize {
        self.vocab_size.unwrap_or(0)
    }

    /// Settings that only some tasks have: their fields, and whether they are set.
    fn of_some_tasks(&self) -> [(&'static str, bool); 5] {
        [
            ("vocab_size", self.vocab_size.is_some()),
            ("copy_tokens", self.copy_tokens.is_some()),
            ("form", self.form.is_some()),
            ("key_tokens", self.key_tokens.is_some()),
            ("group", self.group.is_some()),
        ]
    }
}

/// Forms of the copying task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CopyForm {
    /// A string, blanks, and as many markers as the string has tokens, at which it is the answer.
    Delayed,
    /// A string, blanks, a marker and the string again, each token of which is the answer at the one before it.
    String,
    /// A string and a key of several of its tokens; the answers are the tokens that followed the key.
    SuffixLookup,
    /// The key first, then the string and a marker.
    PrefixLookup,
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
        examples: &'static [&'static str],
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
            files: None,
            read,
        }
    }

    /// Parses the settings of one run.
    pub fn read(&'static self, config: &TaskConfig) -> Result<Box<dyn Task>> {
        let settings: SyntheticSettings = config.typed()?;
        let name = self.name;
        for (field, set) in settings.of_some_tasks() {
            match (self.fields.contains(&field), set) {
                (false, true) => refuse!("task {name}: unknown field `{field}`"),
                (true, false) if !self.optional.contains(&field) => refuse!("task {name}: missing field `{field}`"),
                _ => {}
            }
        }
        Ok(Box::new(SyntheticRun { task: self, settings }))
    }
}

impl SyntheticRun {
    /// Fills the tokens and the answers of an example.
    fn draw(&self, rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32]) {
        (self.task.draw)(rng, &self.settings, tokens, answers);
    }

    /// Form of the sequences of training and of tests.
    fn forms(&self) -> [SequenceForm; 2] {
        let answers = |seq_len| (self.task.answers)(&self.settings, seq_len);
        self.settings.lengths().tokens().map(|seq_len| SequenceForm::last(seq_len, answers(seq_len)))
    }

    fn vocabulary(&self) -> usize {
        (self.task.vocabulary)(&self.settings)
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
        let answers = s.lengths().tokens().map(|seq_len| (self.task.answers)(s, seq_len));
        ExampleSizes::of_tokens(self.vocabulary(), s.lengths().tokens(), answers, examples)
    }

    fn check(&self) -> Result<()> {
        let s = &self.settings;
        let rules = s.lengths().each();
        let rules = rules.map(|length| (self.task.rules)(s, length));
        let examples = self.sizes().examples;
        let (name, lengths) = (self.task.name, s.lengths());
        limits::check(name, &rules.concat(), self.vocabulary(), lengths, examples)
    }

    fn load(&self, _data_dir: Option<&Path>, _made: ExamplesMade) -> Result<Splits> {
        self.check()?;
        let draw = |rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32], _| self.draw(rng, tokens, answers);
        Ok(Splits::drawn(self.task.name, self.settings.data_seed, self.sizes().examples, &self.forms(), draw))
    }

    fn fresh(&self, epoch: usize) -> Option<Dataset> {
        let s = &self.settings;
        let draw = |rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32], _| self.draw(rng, tokens, answers);
        let examples = epoch * s.train_examples..(epoch + 1) * s.train_examples;
        let [form, _] = self.forms();
        s.fresh_examples.then(|| Splits::training(self.task.name, s.data_seed, examples, &form, draw))
    }

    fn title(&self) -> String {
        let [details, _] = (self.task.details)(&self.settings);
        format!("{} ({}{details})", self.task.title, self.settings.lengths().title())
    }

    fn without_skill(&self) -> Option<NoSkill> {
        let s = &self.settings;
        match &self.task.without_skill {
            WithoutSkill::Computed(prediction) => Some(prediction(s)),
            WithoutSkill::MostShown { token, label, vote } => {
                self.check().ok()?;
                let [_, form] = &self.forms();
                let alike = SyntheticSettings {
                    data_seed: 0,
                    train_examples: 0,
                    val_examples: 0,
                    test_examples: 0,
                    ..s.clone()
                };
                let questions = Questions {
                    of: format!("{} {alike:?}", self.task.name),
                    form,
                    vocab_size: self.vocabulary(),
                    draw: |rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32]| self.draw(rng, tokens, answers),
                };
                let accuracy = most_shown::accuracy(&questions, |at, token| vote(s, token, at, form.seq_len));
                Some(NoSkill { accuracy, predictor: (*token).to_owned(), label })
            }
        }
    }

    fn label(&self) -> String {
        let [_, details] = (self.task.details)(&self.settings);
        self.settings.lengths().label() + &details
    }
}
