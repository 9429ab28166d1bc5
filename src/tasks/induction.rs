//! Induction heads (Olsson et al. 2022) as a synthetic task: section 3.1 of Fu et al. 2023, "Hungry Hungry
//! Hippos". Random tokens hold a special token ⊢ once, and end with it again; the answer is the token that
//! followed it the first time:
//!
//! ```text
//! tokens   a b c ⊢ f g h i j ⊢
//! label    - - - - - - - - - f
//! ```
//!
//! ⊢ is token 0, all others are 1 .. V - 1. The paper's sizes are L = 30, V = 20, 5,000 training and 500 test
//! examples.

use super::limits::{check_splits, check_vocabulary, require};
use super::{Objective, Sizes, Splits, Task, TaskEntry};
use crate::config::TaskConfig;
use crate::error::Result;
use crate::ops::rng::Stream;
use serde::{Deserialize, Serialize};
use std::path::Path;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "induction",
    about: "induction heads: the token that followed a special token",
    recipe: include_str!("../recipes/induction.toml"),
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
    read: |config| Ok(Box::new(config.typed::<InductionConfig>()?)),
};

/// The special token ⊢.
const SPECIAL: u32 = 0;

/// The settings of the task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InductionConfig {
    /// Seed of the data, apart from the model's seed: models vary over the same data.
    pub data_seed: u64,
    /// Vocabulary V with the special token.
    pub vocab_size: usize,
    /// Tokens an example, L, with the special token at the end.
    pub seq_len: usize,
    /// Training examples, generated once, used in the same order every epoch.
    pub train_examples: usize,
    /// Test examples.
    pub test_examples: usize,
}

impl From<InductionConfig> for TaskConfig {
    fn from(config: InductionConfig) -> Self {
        Self::new(ENTRY.name, &config)
    }
}

impl Task for InductionConfig {
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
                "--seq-len {l} has no room for the special token, the token behind it and the special \
                 token at the end. Give at least 3"
            )
        })?;
        require(ENTRY.name, v >= 3, || {
            format!(
                "--vocab-size {v} leaves nothing to tell apart: one token is the special one. Give at \
                 least 3"
            )
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
            |stream, tokens| draw(stream, tokens, self.vocab_size as u32),
        );
        Ok(splits)
    }

    fn title(&self) -> String {
        format!("induction heads (L = {})", self.seq_len)
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

/// Fills one example and gives its answer.
fn draw(stream: &mut Stream, tokens: &mut [u32], vocab_size: u32) -> u32 {
    let last = tokens.len() - 1;
    tokens.fill_with(|| SPECIAL + 1 + stream.below(vocab_size - 1));
    // A token that is not the last special one stands behind the first.
    let first = stream.below(last as u32 - 1) as usize;
    (tokens[first], tokens[last]) = (SPECIAL, SPECIAL);
    tokens[first + 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{per_token, refusal};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The paper's sizes.
    fn paper() -> InductionConfig {
        InductionConfig {
            data_seed: 0,
            vocab_size: 20,
            seq_len: 30,
            train_examples: 5_000,
            test_examples: 500,
        }
    }

    proptest! {
        #[test]
        fn the_answer_is_the_token_behind_the_first_of_two_special_tokens(
            vocab_size in 3..40_usize, seq_len in 3..50_usize, data_seed in 0..1_u64 << 40,
        ) {
            let config = InductionConfig {
                data_seed, vocab_size, seq_len, train_examples: 9, test_examples: 4,
            };
            let (train, test) = per_token(&config);
            prop_assert_eq!((train.len(), test.len()), (9, 4));
            for (i, data) in (0..9).map(|i| (i, &train)).chain((0..4).map(|i| (i, &test))) {
                let example = data.batch(i..i + 1);
                let special: Vec<usize> = (0..seq_len)
                    .filter(|p| example.tokens[*p] == SPECIAL)
                    .collect();
                prop_assert_eq!(special.len(), 2);
                prop_assert_eq!(special[1], seq_len - 1);
                prop_assert_eq!(example.positions, &[seq_len as u32 - 1][..]);
                prop_assert_eq!(example.answers, &[example.tokens[special[0] + 1]][..]);
                prop_assert!(example.tokens.iter().all(|t| (*t as usize) < vocab_size));
            }
        }
    }

    #[test]
    fn every_token_is_an_answer_and_every_place_holds_the_first_special_token() {
        let (train, _) = per_token(&paper());
        let examples = || (0..train.len()).map(|i| train.batch(i..i + 1));
        let answers: BTreeSet<u32> = examples().map(|e| e.answers[0]).collect();
        assert!(answers.into_iter().eq(1..20));
        let places: BTreeSet<Option<usize>> = examples()
            .map(|e| e.tokens.iter().position(|t| *t == SPECIAL))
            .collect();
        assert!(places.into_iter().eq((0..28).map(Some)));
    }

    #[test]
    fn an_example_is_a_function_of_seed_split_and_index() {
        let (train, test) = per_token(&paper());
        let more = InductionConfig {
            train_examples: 6_000,
            ..paper()
        };
        let (longer, same) = per_token(&more);
        assert_eq!(longer.batch(0..5_000), train.batch(0..5_000));
        assert_eq!(test, same);
        assert_ne!(train.batch(0..500), test.batch(0..500));
        let other = InductionConfig {
            data_seed: 1,
            ..paper()
        };
        assert_ne!(per_token(&other).1, test);
    }

    type Case = (fn(&mut InductionConfig), &'static str);

    #[test]
    fn sizes_without_data_are_refused_by_their_flag() {
        let cases: &[Case] = &[
            (|c| c.seq_len = 2, "--seq-len 2 has no room"),
            (|c| c.vocab_size = 2, "--vocab-size 2 leaves nothing"),
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
                message.starts_with(&format!("induction: {sentence}")),
                "{message}"
            );
        }
        let smallest = InductionConfig {
            vocab_size: 3,
            seq_len: 3,
            ..paper()
        };
        assert_eq!(per_token(&smallest).0.batch(0..1).tokens[0], SPECIAL);
    }
}
