//! Induction heads (Olsson et al. 2022) as a synthetic task, from section 3.1 of Fu et al. 2023, "Hungry Hungry
//! Hippos". A sequence of random tokens contains a special token ⊢ once and ends with it again. The answer is the token
//! that followed its first occurrence:
//!
//! ```text
//! tokens   a b c ⊢ f g h i j ⊢
//! label    - - - - - - - - - f
//! ```
//!
//! ⊢ is token 0, all others are 1 .. V - 1. The paper's sizes are L = 30, V = 20, 5,000 training and 500 test examples.

use super::limits::{Length, Rule};
use super::synthetic::{Synthetic, SyntheticSettings, WithoutSkill};
use super::{TaskEntry, NO_RECALL};
use crate::ops::rng::Rng;

pub(super) const ENTRY: TaskEntry = INDUCTION.entry(
    "induction heads: the token that followed a special token",
    &[
        "dsf induction --mixer ssd",
        "dsf induction --mixer softmax --seq-len 64 --seed 1",
        "dsf induction --preset paper --mixer s6 --lr 1e-3",
    ],
    include_str!("../recipes/induction.toml"),
    |config| Synthetic::read(&INDUCTION, config),
);

const INDUCTION: Synthetic = Synthetic {
    name: "induction",
    title: "induction heads",
    rules,
    draw,
    without_skill: WithoutSkill::MostShown {
        token: "the token shown most often",
        label: NO_RECALL,
        vote: |_, token, _, _| i32::from(token != SPECIAL),
    },
    ..Synthetic::ONE_ANSWER
};

/// The special token ⊢.
const SPECIAL: u32 = 0;

fn rules(settings: &SyntheticSettings, length: Length) -> Vec<Rule> {
    vec![
        Rule::new(
            length.tokens >= 3,
            length.typed(),
            "no room for the special token, the token after it and the special token at the end. Give at least 3",
        ),
        Rule::new(
            settings.v() >= 3,
            ("--vocab-size", settings.v()),
            "leaves fewer than two tokens besides the special one. Give at least 3",
        ),
    ]
}

/// Fills the tokens and the answer of one example.
fn draw(rng: &mut Rng, settings: &SyntheticSettings, tokens: &mut [u32], answers: &mut [u32]) {
    let last = tokens.len() - 1;
    tokens.fill_with(|| SPECIAL + 1 + rng.below(settings.v() as u32 - 1));
    // The first ⊢ stands at most at last - 2, so that an ordinary token follows it.
    let first = rng.below(last as u32 - 1) as usize;
    (tokens[first], tokens[last]) = (SPECIAL, SPECIAL);
    answers[0] = tokens[first + 1];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{
        assert_refused, assert_seeded, assert_tested_at_another_length, assert_uniform, paper, per_token,
    };
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_answer_is_the_token_after_the_first_of_two_special_tokens(
            vocab_size in 3..40_usize, seq_len in 3..50_usize, data_seed in 0..1_u64 << 40,
        ) {
            let settings = SyntheticSettings {
                data_seed, train_examples: 9, test_examples: 4, ..paper(vocab_size, seq_len)
            };
            let (train, test) = per_token(&*INDUCTION.of(&settings));
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
    fn every_answer_and_every_place_of_the_first_special_token_is_as_likely_as_any_other() {
        let (train, _) = per_token(&*INDUCTION.of(&paper(20, 30)));
        let examples = || (0..train.len()).map(|i| train.batch(i..i + 1));
        assert_uniform(examples().map(|e| e.answers[0]), 1..20);
        assert_uniform(examples().map(|e| e.tokens.iter().position(|t| *t == SPECIAL)), (0..28).map(Some));
    }

    #[test]
    fn the_token_shown_most_often_is_right_at_a_seventh() {
        let found = INDUCTION.of(&paper(20, 30)).without_skill().unwrap();
        assert!((found.accuracy - 0.145).abs() < 0.01, "{}", found.accuracy);
    }

    #[test]
    fn an_example_is_a_function_of_seed_split_and_index() {
        assert_seeded(&INDUCTION, &paper(20, 30));
    }

    #[test]
    fn the_test_may_have_another_length() {
        assert_tested_at_another_length(&INDUCTION, &paper(20, 30));
    }

    #[test]
    fn sizes_without_data_are_refused_by_their_flag() {
        let own = [(20, 2, "--seq-len"), (2, 30, "--vocab-size")];
        assert_refused(&INDUCTION, &paper(20, 30), &own);
        let (smallest, _) = per_token(&*INDUCTION.of(&paper(3, 3)));
        assert_eq!(smallest.batch(0..1).tokens[0], SPECIAL);
    }
}
