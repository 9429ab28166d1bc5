//! Associative recall (Ba et al. 2016; Graves et al. 2014) of one key: section 3.1 of Fu et al. 2023, "Hungry
//! Hungry Hippos". Keys and their values stand in turn, and the last token is a key that was shown before;
//! the answer is its value:
//!
//! ```text
//! tokens   a 2 c 4 b 3 d 1 a
//! label    - - - - - - - - 2
//! ```
//!
//! Keys are tokens 0 .. V/2 - 1, values V/2 .. V - 1. Within an example a key has one value, however often it
//! is shown. Where L is even, the value of a key that is not shown begins the sequence. The paper's sizes are
//! L = 20, V = 10, 5,000 training and 500 test examples.

use super::limits::{check_splits, check_vocabulary, require};
use super::{Objective, Sizes, Splits, Task, TaskEntry};
use crate::config::TaskConfig;
use crate::error::Result;
use crate::ops::rng::Stream;
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "recall",
    about: "associative recall: the value of one key shown earlier",
    recipe: include_str!("../recipes/recall.toml"),
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
    read: |config| Ok(Box::new(config.typed::<RecallConfig>()?)),
};

/// The settings of the task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallConfig {
    /// Seed of the data, apart from the model's seed: models vary over the same data.
    pub data_seed: u64,
    /// Vocabulary V: keys are its lower half, values its upper half.
    pub vocab_size: usize,
    /// Tokens an example, L, with the key at the end.
    pub seq_len: usize,
    /// Training examples, generated once, used in the same order every epoch.
    pub train_examples: usize,
    /// Test examples.
    pub test_examples: usize,
}

impl From<RecallConfig> for TaskConfig {
    fn from(config: RecallConfig) -> Self {
        Self::new(ENTRY.name, &config)
    }
}

impl Task for RecallConfig {
    fn config(&self) -> TaskConfig {
        self.clone().into()
    }

    fn sizes(&self) -> Sizes {
        let examples = [self.train_examples, self.test_examples];
        Sizes::one_label(self.vocab_size, self.seq_len, examples)
    }

    fn check(&self) -> Result<()> {
        let (v, l) = (self.vocab_size, self.seq_len);
        require(ENTRY.name, l >= 3, || {
            format!(
                "--seq-len {l} has no room for a key, its value and the key at the end. Give at least 3"
            )
        })?;
        require(ENTRY.name, v.is_multiple_of(2), || {
            format!(
                "--vocab-size {v} is odd, but keys and values share it in halves. Give an even size"
            )
        })?;
        require(ENTRY.name, v >= 4, || {
            format!("--vocab-size {v} leaves one value, and nothing to recall. Give at least 4")
        })?;
        check_vocabulary(ENTRY.name, v)?;
        check_splits(ENTRY.name, [self.train_examples, self.test_examples], l)
    }

    fn load(&self, _data_dir: Option<&Path>) -> Result<Splits> {
        self.check()?;
        let splits = Splits::one_label(
            ENTRY.name,
            self.data_seed,
            &self.sizes(),
            |stream, tokens| draw(stream, tokens, self.vocab_size as u32 / 2),
        );
        Ok(splits)
    }

    fn title(&self) -> String {
        format!("associative recall (L = {})", self.seq_len)
    }

    fn label(&self) -> String {
        format!("L={}", self.seq_len)
    }

    fn next(&self, mixer: &str) -> String {
        format!(
            "--mixer {mixer} --seq-len {},{}",
            self.seq_len,
            2 * self.seq_len
        )
    }
}

/// Fills one example with keys below `half` and values from there on, and gives its answer.
fn draw(stream: &mut Stream, tokens: &mut [u32], half: u32) -> u32 {
    let Some((query, shown)) = tokens.split_last_mut() else {
        return 0; // refused by the check of sizes
    };
    let (unpaired, pairs) = shown.split_at_mut(shown.len() % 2);
    unpaired.fill_with(|| half + stream.below(half));
    // The keys shown so far, each once, with their values.
    let mut known: Vec<(u32, u32)> = Vec::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks_exact_mut(2) {
        let key = stream.below(half);
        let value = match known.iter().find(|(other, _)| *other == key) {
            Some((_, value)) => *value,
            None => {
                let value = half + stream.below(half);
                known.push((key, value));
                value
            }
        };
        pair.copy_from_slice(&[key, value]);
    }
    let (key, value) = known[stream.below(known.len() as u32) as usize];
    *query = key;
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{per_token, refusal};
    use proptest::prelude::*;
    use std::collections::{BTreeSet, HashMap};

    /// The paper's sizes.
    fn paper() -> RecallConfig {
        RecallConfig {
            data_seed: 0,
            vocab_size: 10,
            seq_len: 20,
            train_examples: 5_000,
            test_examples: 500,
        }
    }

    proptest! {
        #[test]
        fn the_answer_is_the_one_value_of_the_last_token_among_the_pairs_before_it(
            half in 2..20_u32, seq_len in 3..50_usize, data_seed in 0..1_u64 << 40,
        ) {
            let config = RecallConfig {
                data_seed, vocab_size: 2 * half as usize, seq_len, train_examples: 9, test_examples: 4,
            };
            let (train, test) = per_token(&config);
            prop_assert_eq!((train.len(), test.len()), (9, 4));
            for (i, data) in (0..9).map(|i| (i, &train)).chain((0..4).map(|i| (i, &test))) {
                let example = data.batch(i..i + 1);
                let (query, shown) = example.tokens.split_last().unwrap();
                let (unpaired, pairs) = shown.split_at(shown.len() % 2);
                prop_assert!(unpaired.iter().all(|value| (half..2 * half).contains(value)));
                let mut values = HashMap::new();
                for pair in pairs.chunks_exact(2) {
                    prop_assert!(pair[0] < half && (half..2 * half).contains(&pair[1]));
                    prop_assert_eq!(*values.entry(pair[0]).or_insert(pair[1]), pair[1]);
                }
                prop_assert_eq!(values.get(query), Some(&example.answers[0]));
                prop_assert_eq!(example.positions, &[seq_len as u32 - 1][..]);
            }
        }
    }

    #[test]
    fn every_key_is_asked_and_every_value_is_an_answer() {
        let (train, _) = per_token(&paper());
        let examples = || (0..train.len()).map(|i| train.batch(i..i + 1));
        let asked: BTreeSet<u32> = examples().map(|e| e.tokens[19]).collect();
        assert!(asked.into_iter().eq(0..5));
        let answers: BTreeSet<u32> = examples().map(|e| e.answers[0]).collect();
        assert!(answers.into_iter().eq(5..10));
    }

    #[test]
    fn an_example_is_a_function_of_seed_split_and_index() {
        let (train, test) = per_token(&paper());
        let more = RecallConfig {
            train_examples: 6_000,
            ..paper()
        };
        let (longer, same) = per_token(&more);
        assert_eq!(longer.batch(0..5_000), train.batch(0..5_000));
        assert_eq!(test, same);
        assert_ne!(train.batch(0..500), test.batch(0..500));
        let other = RecallConfig {
            data_seed: 1,
            ..paper()
        };
        assert_ne!(per_token(&other).1, test);
    }

    type Case = (fn(&mut RecallConfig), &'static str);

    #[test]
    fn sizes_without_data_are_refused_by_their_flag() {
        let cases: &[Case] = &[
            (|c| c.seq_len = 2, "--seq-len 2 has no room"),
            (|c| c.vocab_size = 9, "--vocab-size 9 is odd"),
            (|c| c.vocab_size = 2, "--vocab-size 2 leaves one value"),
            (
                |c| c.vocab_size = 1 << 25,
                "--vocab-size 33554432 is beyond",
            ),
            (
                |c| c.train_examples = 0,
                "--train-examples 0 leaves an empty split",
            ),
            (
                |c| c.test_examples = 1 << 40,
                "--test-examples 1099511627776 with",
            ),
        ];
        for (change, sentence) in cases {
            let mut config = paper();
            change(&mut config);
            let message = refusal(&config);
            assert!(
                message.starts_with(&format!("recall: {sentence}")),
                "{message}"
            );
        }
    }
}
