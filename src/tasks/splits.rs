//! Splits of a task in host memory, in one form for each objective.

use super::documents::Documents;
use super::text::{IdWidth, Ids, TextSize, TokenizedText};
use super::{fingerprint, ExampleSizes, Objective};
use crate::ops::rng::Rng;
use rayon::prelude::*;
use std::ops::Range;

/// Dense label of a position without one, which loss and accuracy ignore.
pub const IGNORED: i64 = -100;

/// Answer of a labelled position that this example has no answer for, which loss and accuracy ignore.
pub const NO_ANSWER: u32 = u32::MAX;

/// Training and test data of a run.
#[derive(Clone, Debug)]
pub enum Splits {
    /// Sequences of one length in each split, with labels at some of their positions.
    PerToken {
        /// Training split.
        train: Dataset,
        /// Validation split, which ends the training and selects the epoch; may be empty.
        val: Dataset,
        /// Test split.
        test: Dataset,
    },
    /// Labelled documents of different lengths.
    Pooled(TrainValTest<Documents>),
    /// Windows of a text.
    NextToken(TrainValTest<TokenizedText>),
}

/// Three splits, and warnings from reading them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainValTest<T> {
    /// Training split.
    pub train: T,
    /// Validation split, which selects the epoch; may be empty.
    pub val: T,
    /// Test split.
    pub test: T,
    /// Warnings about the files, a sentence each.
    pub warnings: Vec<String>,
}

impl<T> From<[T; 3]> for TrainValTest<T> {
    fn from([train, val, test]: [T; 3]) -> Self {
        Self { train, val, test, warnings: Vec::new() }
    }
}

impl<T> TrainValTest<T> {
    /// Training, validation and test split.
    pub fn each(&self) -> [&T; 3] {
        [&self.train, &self.val, &self.test]
    }
}

impl TrainValTest<Documents> {
    /// Twelve hex digits over all tokens and labels, which identify the data of a run.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.each().into_iter().flat_map(Documents::bytes))
    }
}

impl TrainValTest<TokenizedText> {
    /// Twelve hex digits over all ids.
    pub fn fingerprint(&self) -> String {
        let digests = self.each().map(|split| split.digest().into_bytes().into());
        fingerprint(digests.into_iter())
    }
}

impl Splits {
    /// Generates sequences for training and tests of the two `forms`, from the random streams `TASK/train`, `TASK/val`
    /// and `TASK/test` of `seed`. `draw` fills the tokens and the answers of a sequence from its own stream; its last
    /// argument says whether the sequence is for training.
    pub(super) fn drawn(
        task: &str,
        seed: u64,
        examples: [usize; 3],
        [trained, tested]: &[SequenceForm; 2],
        draw: impl Fn(&mut Rng, &mut [u32], &mut [u32], bool) + Sync,
    ) -> Self {
        let [train, val, test] = examples;
        let of_tests = |name: &str, examples| {
            let rng = Rng::new(seed, &format!("{task}/{name}"), 0);
            Dataset::drawn(&rng, 0..examples, tested, |rng, tokens, answers| draw(rng, tokens, answers, false))
        };
        Self::PerToken {
            train: Self::training(task, seed, 0..train, trained, &draw),
            val: of_tests("val", val),
            test: of_tests("test", test),
        }
    }

    /// Generates the training sequences of [`Self::drawn`] with the indices `examples`.
    pub(super) fn training(
        task: &str,
        seed: u64,
        examples: Range<usize>,
        form: &SequenceForm,
        draw: impl Fn(&mut Rng, &mut [u32], &mut [u32], bool) + Sync,
    ) -> Dataset {
        let rng = Rng::new(seed, &format!("{task}/train"), 0);
        Dataset::drawn(&rng, examples, form, |rng, tokens, answers| draw(rng, tokens, answers, true))
    }

    /// Warnings about the files.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::PerToken { .. } => &[],
            Self::Pooled(splits) => &splits.warnings,
            Self::NextToken(splits) => &splits.warnings,
        }
    }

    /// Accuracy of the majority-class baseline on the test split, for an objective of classes.
    pub fn majority(&self) -> Option<f64> {
        match self {
            Self::Pooled(splits) => Some(splits.test.majority()),
            Self::PerToken { .. } | Self::NextToken(_) => None,
        }
    }

    /// Hex digits over all examples if they may come from files; empty if the config determines them.
    pub fn digest(&self) -> String {
        match self {
            Self::PerToken { .. } => String::new(),
            Self::Pooled(splits) => splits.fingerprint(),
            Self::NextToken(splits) => splits.fingerprint(),
        }
    }

    /// Placeholder data for timing steps: `examples` training examples of full length and one test example, whose
    /// tokens and labels are spread over the vocabulary and have no meaning.
    pub fn placeholder(objective: Objective, sizes: &ExampleSizes, examples: usize) -> Self {
        match objective {
            Objective::PerToken => Self::PerToken {
                train: Dataset::placeholder(sizes, sizes.seq_len, sizes.labels_per_example, examples),
                val: Dataset::placeholder(sizes, sizes.test_seq_len, sizes.labels_per_tested_example, 0),
                test: Dataset::placeholder(sizes, sizes.test_seq_len, sizes.labels_per_tested_example, 1),
            },
            Objective::Pooled => {
                let mut train = Documents::new(sizes.documents);
                for example in 0..examples {
                    let documents = (0..sizes.documents).map(|which| {
                        let first = (example * sizes.documents + which) * sizes.seq_len;
                        let tokens = first..first + sizes.seq_len;
                        tokens.map(|i| (mixed(i) % sizes.vocab_size) as u8).collect()
                    });
                    let documents: Vec<Vec<u8>> = documents.collect();
                    let documents: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
                    train.push(&documents, (example % sizes.classes) as u8);
                }
                let (test, val) = (train.select([0]), Documents::new(sizes.documents));
                Self::Pooled([train, val, test].into())
            }
            Objective::NextToken => {
                let window = sizes.seq_len;
                let text = |windows: usize| {
                    let ids = 0..windows * window + 1;
                    let ids = ids.map(|i| (mixed(i) % sizes.vocab_size) as u32);
                    let ids = Ids::held(ids, IdWidth::of(sizes.vocab_size));
                    TokenizedText::new(ids, TextSize::default(), window, None)
                };
                Self::NextToken([examples, 1, 1].map(text).into())
            }
        }
    }
}

/// Pseudorandom hash of `i`: the upper half of its product with the multiplier of Fibonacci hashing.
fn mixed(i: usize) -> usize {
    ((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// Form of generated sequences: their length, and the positions with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SequenceForm {
    pub seq_len: usize,
    /// Labelled positions, ascending.
    pub labelled: Vec<u32>,
}

impl SequenceForm {
    /// Sequences of `seq_len` tokens with labels at the last `labels` positions.
    pub fn last(seq_len: usize, labels: usize) -> Self {
        Self { seq_len, labelled: ((seq_len - labels) as u32..seq_len as u32).collect() }
    }
}

/// One split: `N` examples of `L` tokens, each with `k` labelled positions; row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    pub(super) seq_len: usize,
    pub(super) labels_per_example: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) positions: Vec<u32>,
    pub(super) answers: Vec<u32>,
}

/// Consecutive examples of a [`Dataset`]. Each slice is row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Inputs, (B, L).
    pub tokens: &'a [u32],
    /// Labelled positions within their example, (B, k), ascending.
    pub positions: &'a [u32],
    /// Correct answer at each labelled position, (B, k); [`NO_ANSWER`] where there is none.
    pub answers: &'a [u32],
}

impl Dataset {
    /// Generates the sequences of `form` with the indices `examples`. `draw` fills the tokens and the answers of a
    /// sequence from the stream of its index under `rng`.
    pub(super) fn drawn(
        rng: &Rng,
        examples: Range<usize>,
        form: &SequenceForm,
        draw: impl Fn(&mut Rng, &mut [u32], &mut [u32]) + Sync,
    ) -> Self {
        let (first, count) = (examples.start, examples.len());
        let (seq_len, labels) = (form.seq_len, form.labelled.len());
        let (mut tokens, mut answers) = (vec![0; count * seq_len], vec![0; count * labels]);
        tokens.par_chunks_mut(seq_len).zip_eq(answers.par_chunks_mut(labels)).enumerate().for_each(
            |(index, (tokens, answers))| {
                draw(&mut rng.at((first + index) as u64), tokens, answers);
            },
        );
        Self { seq_len, labels_per_example: labels, tokens, positions: form.labelled.repeat(count), answers }
    }

    fn placeholder(sizes: &ExampleSizes, seq_len: usize, labels: usize, examples: usize) -> Self {
        let ids = |count: usize| (0..count).map(|i| (i % sizes.vocab_size) as u32).collect();
        Self {
            seq_len,
            labels_per_example: labels,
            tokens: ids(examples * seq_len),
            positions: SequenceForm::last(seq_len, labels).labelled.repeat(examples),
            answers: ids(examples * labels),
        }
    }

    /// Number of examples, N.
    pub fn len(&self) -> usize {
        self.tokens.len() / self.seq_len
    }

    /// Whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Number of tokens per example, L.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// Number of labelled positions per example, k.
    pub fn labels_per_example(&self) -> usize {
        self.labels_per_example
    }

    /// Examples in `range`. Like a slice, it panics past the end.
    pub fn batch(&self, range: Range<usize>) -> Batch<'_> {
        let rows = |width: usize| range.start * width..range.end * width;
        Batch {
            tokens: &self.tokens[rows(self.seq_len)],
            positions: &self.positions[rows(self.labels_per_example)],
            answers: &self.answers[rows(self.labels_per_example)],
        }
    }

    /// Inputs, (N, L).
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Labels in the format of the released code, (N, L): [`IGNORED`] at positions without one.
    pub fn dense_labels(&self) -> Vec<i64> {
        let mut labels = vec![IGNORED; self.tokens.len()];
        let k = self.labels_per_example;
        let asked = self.positions.iter().zip(&self.answers).enumerate();
        for (i, (&position, &answer)) in asked.filter(|(_, (_, answer))| **answer != NO_ANSWER) {
            labels[i / k * self.seq_len + position as usize] = answer.into();
        }
        labels
    }

    /// All answers, example by example.
    pub fn all_answers(&self) -> Vec<u32> {
        self.answers.iter().copied().filter(|answer| *answer != NO_ANSWER).collect()
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
        let second = Batch { tokens: &[4, 5, 6], positions: &[2], answers: &[8] };
        assert_eq!(two_examples().batch(1..2), second);
    }

    #[test]
    fn dense_labels_hold_each_answer_at_its_position() {
        let labels = two_examples().dense_labels();
        assert_eq!(labels, [7, IGNORED, IGNORED, IGNORED, IGNORED, 8]);
        let unanswered = Dataset { answers: vec![7, NO_ANSWER], ..two_examples() };
        assert_eq!(unanswered.dense_labels()[5], IGNORED);
        assert_eq!(unanswered.all_answers(), [7]);
    }

    #[test]
    fn placeholders_have_as_many_full_examples_as_are_asked_for() {
        let sizes = ExampleSizes {
            vocab_size: 5,
            seq_len: 4,
            test_seq_len: 7,
            documents: 2,
            labels_per_example: 3,
            labels_per_tested_example: 4,
            classes: 2,
            scalar: (1.0, 0.0),
            examples: [9, 9, 9],
        };
        let of = |objective| Splits::placeholder(objective, &sizes, 6);
        let Splits::PerToken { train, val, test } = of(Objective::PerToken) else {
            panic!("another objective");
        };
        assert_eq!((train.len(), val.len(), test.len()), (6, 0, 1));
        assert_eq!(train.batch(5..6).positions, [1, 2, 3]);
        assert_eq!(test.batch(0..1).positions, [3, 4, 5, 6]);
        assert!(train.tokens().iter().all(|token| *token < 5));
        let Splits::Pooled(pooled) = of(Objective::Pooled) else {
            panic!("another objective");
        };
        assert_eq!((pooled.train.len(), pooled.train.longest(5)), (6, 4));
        let Splits::NextToken(text) = of(Objective::NextToken) else {
            panic!("another objective");
        };
        assert_eq!((text.train.windows(), text.test.windows()), (6, 1));
    }

    #[test]
    fn the_fingerprint_depends_on_borders_and_labels() {
        let none = || Documents::new(1);
        let splits = |train: Documents| TrainValTest::from([train, none(), none()]);
        let of = |documents: [&[u8]; 2], label: u8| {
            let mut examples = Documents::new(1);
            examples.push(&[documents[0]], label);
            examples.push(&[documents[1]], 0);
            splits(examples).fingerprint()
        };
        let one = of([&[1, 2], &[3]], 0);
        assert_eq!(one.len(), 12);
        assert_ne!(one, of([&[1], &[2, 3]], 0));
        assert_ne!(one, of([&[1, 2], &[3]], 1));
    }
}
