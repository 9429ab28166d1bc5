//! Limits on the sizes of generated tasks, with messages that name the task and the flag.

use crate::error::{ensure, Result};
use std::fmt;

/// Largest vocabulary; its f32 embedding table has 64 GiB at d = 1024.
const MAX_VOCAB: usize = 1 << 24;

/// Largest number of tokens in a split, 8 GiB of host memory.
const MAX_TOKENS: usize = 1 << 31;

/// Condition on one size of a task.
#[derive(Clone)]
pub(super) struct Rule {
    pub holds: bool,
    /// Flag and value that are rejected if the condition does not hold.
    pub flag: &'static str,
    pub value: usize,
    /// Reason of the rejection.
    pub why: String,
}

impl Rule {
    pub fn new(holds: bool, (flag, value): (&'static str, usize), why: impl Into<String>) -> Self {
        Self { holds, flag, value, why: why.into() }
    }
}

/// Sequence lengths of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SequenceLengths {
    /// Length in tokens of a training example.
    pub train: usize,
    /// Length in tokens of a test example; `None` if it is that of training.
    pub test: Option<usize>,
}

/// Sequence length of one split, and the flag that sets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    pub flag: &'static str,
    pub tokens: usize,
}

impl Length {
    /// Flag and value.
    pub fn typed(self) -> (&'static str, usize) {
        (self.flag, self.tokens)
    }
}

impl fmt::Display for Length {
    /// Writes the flag and its value as typed.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.flag, self.tokens)
    }
}

impl SequenceLengths {
    /// Lengths of a run whose training examples have `train` tokens. A test length equal to `train` is dropped.
    pub fn new(train: usize, test: Option<usize>) -> Self {
        let test = test.filter(|test| *test != train);
        Self { train, test }
    }

    /// Lengths in tokens of a training and of a test example.
    pub fn tokens(self) -> [usize; 2] {
        self.each().map(|length| length.tokens)
    }

    /// Lengths of the training and of the test split.
    pub fn each(self) -> [Length; 2] {
        let train = Length { flag: "--seq-len", tokens: self.train };
        let test = self.test.map(|tokens| Length { flag: "--test-seq-len", tokens });
        [train, test.unwrap_or(train)]
    }

    /// Text for a sentence, such as `L = 64, tested at 128`.
    pub fn title(self) -> String {
        let test = self.test.map(|test| format!(", tested at {test}"));
        format!("L = {}{}", self.train, test.unwrap_or_default())
    }

    /// Text for a list of runs, such as `L=64->128`.
    pub fn label(self) -> String {
        let test = self.test.map(|test| format!("->{test}"));
        format!("L={}{}", self.train, test.unwrap_or_default())
    }
}

/// Checks the sizes of a run of `task`: its own `rules`, which must require both lengths to be at least 1, the limit of
/// the vocabulary, and `examples` (training, validation, test). Fails with the flag of a rule that does not hold, of a
/// vocabulary beyond the limit, or of a split that is too large or, for training and test, empty.
pub(super) fn check(
    task: &str,
    rules: &[Rule],
    vocab_size: usize,
    lengths: SequenceLengths,
    examples: [usize; 3],
) -> Result<()> {
    for Rule { holds, flag, value, why } in rules {
        ensure!(*holds, flag(flag) = value, "{why}");
    }
    ensure!(
        vocab_size <= MAX_VOCAB,
        flag "--vocab-size" = vocab_size, "exceeds the largest vocabulary of {task}: give at most {MAX_VOCAB}");
    let [train, test] = lengths.each();
    let splits = [("--train-examples", train, 1), ("--val-examples", test, 0), ("--test-examples", test, 1)];
    for ((flag, length, least), examples) in splits.into_iter().zip(examples) {
        let most = MAX_TOKENS / length.tokens;
        ensure!(examples >= least, flag(flag) = examples, "leaves an empty split of {task}: give at least 1");
        ensure!(
            examples <= most,
            flag(flag) = examples,
            "with {length} a split of {task} would exceed {MAX_TOKENS} tokens: give at most {most}"
        );
    }
    Ok(())
}
