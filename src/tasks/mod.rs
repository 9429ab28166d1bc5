//! The data: a task makes two splits in host memory, once, before training.

mod lines;
pub mod lra;
pub mod mqar;
mod mt19937;
mod parquet;
#[cfg(test)]
mod testing;
pub mod wikitext;

use crate::config::TaskConfig;
use crate::error::Result;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

/// The dense label of a position without one; the loss and the accuracy pass over it.
pub const IGNORED: i64 = -100;

/// One split: `N` examples of `L` tokens, each with `k` labelled positions; row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    seq_len: usize,
    labels_per_example: usize,
    tokens: Vec<u32>,
    positions: Vec<u32>,
    answers: Vec<u32>,
}

/// Consecutive examples of a [`Dataset`]. Each slice is row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// (B, L) inputs.
    pub tokens: &'a [u32],
    /// (B, k) labelled positions within their example, ascending.
    pub positions: &'a [u32],
    /// (B, k) the right answer at each labelled position.
    pub answers: &'a [u32],
}

/// The splits of a task.
#[derive(Clone, Debug)]
pub enum Data {
    /// Sequences of one length, with labels at some of their positions.
    Recall {
        /// What is trained on.
        train: Dataset,
        /// What is reported.
        test: Dataset,
    },
    /// Labelled documents.
    Documents(lra::Splits),
    /// Windows of a text.
    Text(wikitext::Splits),
}

/// Generates the splits, or reads them from under `data_dir`; `None` is where downloads lie.
pub fn load(config: &TaskConfig, data_dir: Option<&Path>) -> Result<Data> {
    match config {
        TaskConfig::Mqar(mqar) => {
            let (train, test) = mqar::load(mqar)?;
            Ok(Data::Recall { train, test })
        }
        TaskConfig::Lra(lra) => lra::load(lra, data_dir).map(Data::Documents),
        TaskConfig::Wikitext(text) => wikitext::load(text, data_dir).map(Data::Text),
    }
}

impl Data {
    /// What the reader of files should know but that stops nothing.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Recall { .. } => &[],
            Self::Documents(splits) => &splits.warnings,
            Self::Text(splits) => &splits.warnings,
        }
    }

    /// What the commonest answer scores on the test split, in a task of classes.
    pub fn majority(&self) -> Option<f64> {
        match self {
            Self::Recall { .. } | Self::Text(_) => None,
            Self::Documents(splits) => Some(splits.test.majority()),
        }
    }

    /// Digits over all examples where they may come from files; empty where the config says it all.
    pub fn digest(&self) -> String {
        match self {
            Self::Recall { .. } => String::new(),
            Self::Documents(splits) => splits.fingerprint(),
            Self::Text(splits) => splits.fingerprint(),
        }
    }
}

/// Refuses a task whose files are not there: see [`load`].
pub fn ready(config: &TaskConfig, data_dir: Option<&Path>) -> Result<()> {
    match config {
        TaskConfig::Mqar(_) => Ok(()),
        TaskConfig::Lra(lra) => lra::ready(lra, data_dir),
        TaskConfig::Wikitext(text) => wikitext::ready(text, data_dir),
    }
}

/// Refuses sizes from which no data can be made; [`load`] asks it first.
pub fn check(config: &TaskConfig) -> Result<()> {
    match config {
        TaskConfig::Mqar(mqar) => mqar::check(mqar),
        TaskConfig::Lra(lra) => lra::check(lra),
        TaskConfig::Wikitext(text) => wikitext::check(text),
    }
}

/// Twelve hex digits of the SHA-256 over `parts`, one behind the other.
fn fingerprint<'a>(parts: impl Iterator<Item = Cow<'a, [u8]>>) -> String {
    let mut hash = Sha256::new();
    parts.for_each(|part| hash.update(part));
    hex::encode(&hash.finalize()[..6])
}

impl Dataset {
    /// Examples, N.
    pub fn len(&self) -> usize {
        self.tokens.len() / self.seq_len
    }

    /// Whether there is no example at all.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens an example, L.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// Labelled positions an example, k.
    pub fn labels_per_example(&self) -> usize {
        self.labels_per_example
    }

    /// The examples in `range`; like a slice, it panics past the end.
    pub fn batch(&self, range: Range<usize>) -> Batch<'_> {
        let rows = |width: usize| range.start * width..range.end * width;
        Batch {
            tokens: &self.tokens[rows(self.seq_len)],
            positions: &self.positions[rows(self.labels_per_example)],
            answers: &self.answers[rows(self.labels_per_example)],
        }
    }

    /// (N, L) inputs.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// (N, L) labels as the released code stores them: [`IGNORED`] wherever nothing is asked.
    pub fn dense_labels(&self) -> Vec<i64> {
        let mut labels = vec![IGNORED; self.tokens.len()];
        let k = self.labels_per_example;
        let asked = self.positions.iter().zip(&self.answers).enumerate();
        for (i, (&position, &answer)) in asked {
            labels[i / k * self.seq_len + position as usize] = answer.into();
        }
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_examples() -> Dataset {
        Dataset {
            seq_len: 3,
            labels_per_example: 1,
            tokens: vec![1, 2, 3, 4, 5, 6],
            positions: vec![0, 2],
            answers: vec![7, 8],
        }
    }

    #[test]
    fn a_batch_holds_the_rows_of_its_range() {
        let second = Batch {
            tokens: &[4, 5, 6],
            positions: &[2],
            answers: &[8],
        };
        assert_eq!(two_examples().batch(1..2), second);
    }

    #[test]
    fn dense_labels_hold_each_answer_at_its_position() {
        let labels = two_examples().dense_labels();
        assert_eq!(labels, [7, IGNORED, IGNORED, IGNORED, IGNORED, 8]);
    }
}
