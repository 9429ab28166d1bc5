//! Task for tests, in one file and one row of `TASKS`, as a contributor would add it. The label of the last token is
//! the token `lag` positions before it.
//!
//! The table of settings has no row for `lag`; tests add one.

use crate::config::TaskConfig;
use crate::error::Result;
use crate::tasks::limits::{self, SequenceLengths};
use crate::tasks::splits::SequenceForm;
use crate::tasks::{ExampleSizes, ExamplesMade, Objective, Splits, Task, TaskEntry};
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(in crate::tasks) const ENTRY: TaskEntry = TaskEntry {
    name: "toy",
    about: "a toy: the token some places back",
    examples: &["dsf toy", "dsf toy --mixer ssd", "dsf toy --preset smoke"],
    recipe: r#"
        rates = [1e-2]
        protocols = ["matched"]
        why-protocols = "a toy has one protocol"

        [sweep]
        mixer = ["softmax", "linear"]

        [[layer]]
        of = "base"
        [layer.set]
        protocol = "matched"
        mixer = "softmax"
        d = 16
        n = 16
        heads = 1
        layers = 2
        layout = "transformer"
        state-mixer = "mlp"
        positions = true
        schedule = "constant"
        dropout = 0.0
        weight-decay = 0.0
        lr = 1e-2
        epochs = 4
        batch-size = 16
        stop-at = 1.0
        seed = 7
        vocab-size = 4
        seq-len = 4
        train-examples = 256
        test-examples = 64
    "#,
    fields: &["data_seed", "vocab_size", "seq_len", "train_examples", "test_examples", "lag"],
    objective: Objective::PerToken,
    headline: "accuracy",
    files: None,
    read: |config| Ok(Box::new(config.typed::<ToyConfig>()?)),
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToyConfig {
    data_seed: u64,
    vocab_size: usize,
    seq_len: usize,
    train_examples: usize,
    test_examples: usize,
    #[serde(default)]
    lag: usize,
}

impl Task for ToyConfig {
    fn config(&self) -> TaskConfig {
        TaskConfig::new(ENTRY.name, self)
    }

    fn sizes(&self) -> ExampleSizes {
        let examples = [self.train_examples, 0, self.test_examples];
        ExampleSizes::of_tokens(self.vocab_size, [self.seq_len; 2], [1; 2], examples)
    }

    fn check(&self) -> Result<()> {
        let examples = [self.train_examples, 0, self.test_examples];
        let lengths = SequenceLengths::new(self.seq_len, None);
        limits::check(ENTRY.name, &[], self.vocab_size, lengths, examples)
    }

    fn load(&self, _data_dir: Option<&Path>, _made: ExamplesMade) -> Result<Splits> {
        let forms = [(); 2].map(|()| SequenceForm::last(self.seq_len, 1));
        let examples = self.sizes().examples;
        let splits = Splits::drawn(ENTRY.name, self.data_seed, examples, &forms, |stream, tokens, answers, _| {
            tokens.fill_with(|| stream.below(self.vocab_size as u32));
            answers[0] = tokens[self.seq_len - 1 - self.lag];
        });
        Ok(splits)
    }

    fn title(&self) -> String {
        format!("a toy (L = {})", self.seq_len)
    }

    fn label(&self) -> String {
        format!("L={}", self.seq_len)
    }
}
