//! Sizes that no generated task can have, refused in a sentence that names the task and the flag.

use crate::error::{ensure, Result};
use std::fmt;

/// Beyond this the embedding table alone outgrows any device.
const MAX_VOCAB: usize = 1 << 24;

/// Tokens a split, 8 GiB of host memory.
const MAX_TOKENS: usize = 1 << 31;

/// A limit of one size of a task.
#[derive(Clone)]
pub(super) struct Rule {
    pub holds: bool,
    /// The flag that is refused where it does not hold, and its value.
    pub flag: &'static str,
    pub value: usize,
    /// The reason of the refusal.
    pub why: String,
}

impl Rule {
    pub fn new(holds: bool, (flag, value): (&'static str, usize), why: impl Into<String>) -> Self {
        Self {
            holds,
            flag,
            value,
            why: why.into(),
        }
    }
}

/// How long the sequences of a run are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    /// Tokens of a training example.
    pub train: usize,
    /// Tokens of a test example, where they are not as many.
    pub test: Option<usize>,
}

/// The length of one split, and the flag that sets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    pub flag: &'static str,
    pub tokens: usize,
}

impl Length {
    /// The flag and its value.
    pub fn typed(self) -> (&'static str, usize) {
        (self.flag, self.tokens)
    }
}

impl fmt::Display for Length {
    /// As typed.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.flag, self.tokens)
    }
}

impl Lengths {
    /// Those of a run whose training examples have `train` tokens; a test length that says the same says nothing.
    pub fn new(train: usize, test: Option<usize>) -> Self {
        let test = test.filter(|test| *test != train);
        Self { train, test }
    }

    /// Tokens of a training and of a test example.
    pub fn tokens(self) -> [usize; 2] {
        self.each().map(|length| length.tokens)
    }

    /// That of the training and that of the test split.
    pub fn each(self) -> [Length; 2] {
        let train = Length {
            flag: "--seq-len",
            tokens: self.train,
        };
        let test = self.test.map(|tokens| Length {
            flag: "--test-seq-len",
            tokens,
        });
        [train, test.unwrap_or(train)]
    }

    /// In a sentence: `L = 64, tested at 128`.
    pub fn title(self) -> String {
        let test = self.test.map(|test| format!(", tested at {test}"));
        format!("L = {}{}", self.train, test.unwrap_or_default())
    }

    /// In a list of runs: `L=64->128`.
    pub fn label(self) -> String {
        let test = self.test.map(|test| format!("->{test}"));
        format!("L={}{}", self.train, test.unwrap_or_default())
    }
}

/// Refuses a run of `task` that breaks one of its own `rules`, which hold both lengths to at least 1; a vocabulary beyond
/// the largest; and `examples` (training, validation, test) that are too many, or none in the training or test split.
pub(super) fn check(
    task: &str,
    rules: &[Rule],
    vocab_size: usize,
    lengths: Lengths,
    examples: [usize; 3],
) -> Result<()> {
    for Rule {
        holds,
        flag,
        value,
        why,
    } in rules
    {
        ensure!(*holds, flag(flag) = value, "{why}");
    }
    ensure!(
        vocab_size <= MAX_VOCAB,
        flag "--vocab-size" = vocab_size, "beyond the largest vocabulary of {task}: give at most {MAX_VOCAB}");
    let [train, test] = lengths.each();
    let splits = [
        ("--train-examples", train, 1),
        ("--val-examples", test, 0),
        ("--test-examples", test, 1),
    ];
    for ((flag, length, least), examples) in splits.into_iter().zip(examples) {
        let most = MAX_TOKENS / length.tokens;
        ensure!(
            examples >= least,
            flag(flag) = examples,
            "leaves an empty split of {task}: give at least 1"
        );
        ensure!(
            examples <= most,
            flag(flag) = examples,
            "with {length} a split of {task} would exceed {MAX_TOKENS} tokens: give at most {most}"
        );
    }
    Ok(())
}
