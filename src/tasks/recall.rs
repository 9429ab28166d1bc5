//! Associative recall of one key (Ba et al. 2016; Graves et al. 2014), from section 3.1 of Fu et al. 2023, "Hungry
//! Hungry Hippos". Keys and values alternate, and the last token is a key that was shown before. The answer is its
//! value:
//!
//! ```text
//! tokens   a 2 c 4 b 3 d 1 a
//! label    - - - - - - - - 2
//! ```
//!
//! Keys are tokens 0 .. V/2 - 1, values V/2 .. V - 1. Within an example a key always has the same value. If L is even,
//! a value without a key begins the sequence. The paper's sizes are L = 20, V = 10, 5,000 training and 500 test
//! examples.

use super::limits::{Length, Rule};
use super::synthetic::{Synthetic, SyntheticSettings, WithoutSkill};
use super::{TaskEntry, NO_RECALL};
use crate::ops::rng::Rng;

pub(super) const ENTRY: TaskEntry = RECALL.entry(
    "associative recall: the value of one key shown earlier",
    &[
        "dsf recall --mixer ssd",
        "dsf recall --mixer qlstm --d 64 --seed 1",
        "dsf recall --preset paper --mixer s6 --lr 1e-3",
    ],
    include_str!("../recipes/recall.toml"),
    |config| Synthetic::read(&RECALL, config),
);

const RECALL: Synthetic = Synthetic {
    name: "recall",
    title: "associative recall",
    rules,
    draw,
    without_skill: WithoutSkill::MostShown {
        token: "the value shown most often",
        label: NO_RECALL,
        vote: |settings, token, _, _| i32::from(token as usize >= settings.v() / 2),
    },
    ..Synthetic::ONE_ANSWER
};

fn rules(settings: &SyntheticSettings, length: Length) -> Vec<Rule> {
    let vocab_size = settings.v();
    let vocabulary = ("--vocab-size", vocab_size);
    vec![
        Rule::new(
            length.tokens >= 3,
            length.typed(),
            "no room for a key, its value and the key at the end. Give at least 3",
        ),
        Rule::new(
            vocab_size.is_multiple_of(2),
            vocabulary,
            "odd, but keys and values share the vocabulary in halves. Give an even size",
        ),
        Rule::new(vocab_size >= 4, vocabulary, "leaves fewer than two values. Give at least 4"),
    ]
}

/// Fills one example and its answer, with keys from the lower half of the vocabulary and values from the upper one.
fn draw(rng: &mut Rng, settings: &SyntheticSettings, tokens: &mut [u32], answers: &mut [u32]) {
    let half = settings.v() as u32 / 2;
    let Some((query, shown)) = tokens.split_last_mut() else {
        return; // rejected by the rules
    };
    let (unpaired, pairs) = shown.split_at_mut(shown.len() % 2);
    unpaired.fill_with(|| half + rng.below(half));
    // Distinct keys shown so far, with their values.
    let mut known: Vec<(u32, u32)> = Vec::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks_exact_mut(2) {
        let key = rng.below(half);
        let value = match known.iter().find(|(other, _)| *other == key) {
            Some((_, value)) => *value,
            None => {
                let value = half + rng.below(half);
                known.push((key, value));
                value
            }
        };
        pair.copy_from_slice(&[key, value]);
    }
    let (key, value) = known[rng.below(known.len() as u32) as usize];
    *query = key;
    answers[0] = value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{
        assert_refused, assert_seeded, assert_tested_at_another_length, assert_uniform, paper, per_token,
    };
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn the_answer_is_the_one_value_of_the_last_token_among_the_pairs_before_it(
            half in 2..20_u32, seq_len in 3..50_usize, data_seed in 0..1_u64 << 40,
        ) {
            let settings = SyntheticSettings {
                data_seed, train_examples: 9, test_examples: 4, ..paper(2 * half as usize, seq_len)
            };
            let (train, test) = per_token(&*RECALL.of(&settings));
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
    fn every_key_and_value_is_as_likely_as_any_other_shown_and_asked() {
        let (train, _) = per_token(&*RECALL.of(&paper(10, 20)));
        let examples = || (0..train.len()).map(|i| train.batch(i..i + 1));
        // Behind the value that is shown without a key.
        assert_uniform(examples().map(|e| e.tokens[1]), 0..5);
        assert_uniform(examples().map(|e| e.tokens[2]), 5..10);
        assert_uniform(examples().map(|e| e.tokens[19]), 0..5);
        assert_uniform(examples().map(|e| e.answers[0]), 5..10);
    }

    #[test]
    fn the_value_shown_most_often_is_right_at_two_fifths() {
        let found = RECALL.of(&paper(10, 20)).without_skill().unwrap();
        assert!((found.accuracy - 0.437).abs() < 0.01, "{}", found.accuracy);
        assert_eq!((found.label, &*found.predictor), ("no recall", "the value shown most often"));
    }

    #[test]
    fn an_example_is_a_function_of_seed_split_and_index() {
        assert_seeded(&RECALL, &paper(10, 20));
    }

    #[test]
    fn the_test_may_have_another_length() {
        assert_tested_at_another_length(&RECALL, &paper(10, 20));
    }

    #[test]
    fn sizes_without_data_are_refused_by_their_flag() {
        let own = [(10, 2, "--seq-len"), (9, 20, "--vocab-size"), (2, 20, "--vocab-size")];
        assert_refused(&RECALL, &paper(10, 20), &own);
    }
}
