//! State tracking: word problems of finite groups (Merrill et al. 2024, "The Illusion of State in State-Space Models"). A
//! sequence of group elements is read, and the answer at each position is the product of all elements so far:
//!
//! ```text
//! tokens   1 0 1 1 0       (parity: the group of two elements)
//! label    1 1 0 1 1
//! ```
//!
//! Parity and sums modulo m commute, words of S3, S4, A5 and S5 do not; A5 and S5 are not solvable, so that no circuit of
//! constant depth and threshold gates is known for their words. Models that solve a group at the training length but not
//! beyond it (`--test-seq-len`) have learnt a shortcut instead of the state.

use super::groups::Group;
use super::limits::{Length, Rule};
use super::synthetic::{Synthetic, SyntheticSettings, WithoutSkill};
use super::{NoSkill, TaskEntry};
use crate::ops::rng::Rng;
use std::sync::OnceLock;

pub(super) const ENTRY: TaskEntry = STATE_TRACKING.entry(
    "state tracking: products of the group elements read so far, such as parity",
    &[
        "dsf state-tracking --mixer lstm",
        "dsf state-tracking --mixer delta-net --option negative_eigenvalues=true --test-seq-len 256",
        "dsf state-tracking --group s5 --mixer mamba --layers 4",
    ],
    include_str!("../recipes/state_tracking.toml"),
    |config| Synthetic::read(&STATE_TRACKING, config),
);

const STATE_TRACKING: Synthetic = Synthetic {
    name: "state-tracking",
    title: "state tracking",
    fields: &[
        "data_seed",
        "group",
        "seq_len",
        "test_seq_len",
        "train_examples",
        "fresh_examples",
        "val_examples",
        "test_examples",
    ],
    rules,
    vocabulary: |settings| group(settings).order(),
    answers: |_, seq_len| seq_len,
    without_skill: WithoutSkill::Computed(guess),
    details: |settings| [format!(", {}", group(settings).title()), format!("/{}", group(settings).name())],
    draw,
    ..Synthetic::ONE_ANSWER
};

fn group(settings: &SyntheticSettings) -> Group {
    settings.group.unwrap_or(Group::Z2)
}

fn rules(_settings: &SyntheticSettings, length: Length) -> Vec<Rule> {
    vec![Rule::new(length.tokens >= 2, length.typed(), "has no product of two elements. Give at least 2")]
}

/// The first answer is the first token; a prediction without the state guesses all others.
fn guess(settings: &SyntheticSettings) -> NoSkill {
    let length = settings.test_seq_len.unwrap_or(settings.seq_len) as f64;
    let guessed = 1.0 / group(settings).order() as f64;
    NoSkill {
        accuracy: (1.0 + (length - 1.0) * guessed) / length,
        predictor: "the first answer and a guess of the others".to_owned(),
        label: "no state tracking",
    }
}

/// Products of the group, which are computed once for the process.
fn products(group: Group) -> &'static [u32] {
    static KNOWN: [OnceLock<Vec<u32>>; 9] = [const { OnceLock::new() }; 9];
    KNOWN[group as usize].get_or_init(|| group.products())
}

/// Fills the tokens and the answers of one example.
fn draw(rng: &mut Rng, settings: &SyntheticSettings, tokens: &mut [u32], answers: &mut [u32]) {
    let group = group(settings);
    let (order, products) = (group.order() as u32, products(group));
    let mut state = 0;
    for (token, answer) in tokens.iter_mut().zip(answers) {
        *token = rng.below(order);
        state = products[(state * order + *token) as usize];
        *answer = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{assert_seeded, assert_uniform, paper, per_token, refuses};
    use proptest::prelude::*;

    fn words(group: Group, seq_len: usize) -> SyntheticSettings {
        SyntheticSettings { vocab_size: None, group: Some(group), ..paper(0, seq_len) }
    }

    proptest! {
        #[test]
        fn the_parity_at_each_position_is_that_of_the_bits_so_far(
            seq_len in 2..70_usize, test_seq_len in 2..70_usize, data_seed in 0..1_u64 << 40,
        ) {
            let settings = SyntheticSettings {
                data_seed, train_examples: 9, test_examples: 4, test_seq_len: Some(test_seq_len),
                ..words(Group::Z2, seq_len)
            };
            let (train, test) = per_token(&*STATE_TRACKING.of(&settings));
            prop_assert_eq!((train.seq_len(), test.seq_len()), (seq_len, test_seq_len));
            for (i, data) in (0..9).map(|i| (i, &train)).chain((0..4).map(|i| (i, &test))) {
                let example = data.batch(i..i + 1);
                let ones = example.tokens.iter().scan(0, |ones, bit| { *ones += bit; Some(*ones % 2) });
                prop_assert!(ones.eq(example.answers.iter().copied()));
                prop_assert!(example.positions.iter().copied().eq(0..data.seq_len() as u32));
            }
        }
    }

    /// The same permutations composed by hand: numbers are ranks among all permutations of three things.
    #[test]
    fn the_words_of_s3_are_products_of_permutations() {
        let permutations = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let (train, _) = per_token(&*STATE_TRACKING.of(&words(Group::S3, 12)));
        for example in (0..100).map(|i| train.batch(i..i + 1)) {
            let mut state = [0, 1, 2];
            for (token, answer) in example.tokens.iter().zip(example.answers) {
                state = state.map(|point| permutations[*token as usize][point]);
                assert_eq!(state, permutations[*answer as usize]);
            }
        }
    }

    #[test]
    fn every_element_is_as_likely_as_any_other_a_token_and_an_answer() {
        let (train, _) = per_token(&*STATE_TRACKING.of(&words(Group::S3, 40)));
        let examples = || (0..train.len()).map(|i| train.batch(i..i + 1));
        assert_uniform(examples().flat_map(|e| e.tokens.to_vec()), 0..6);
        assert_uniform(examples().flat_map(|e| e.answers.to_vec()), 0..6);
    }

    #[test]
    fn an_example_is_a_function_of_seed_split_and_index() {
        assert_seeded(&STATE_TRACKING, &words(Group::S5, 20));
    }

    #[test]
    fn a_single_element_is_no_word() {
        refuses(&*STATE_TRACKING.of(&words(Group::S3, 1)), "--seq-len").gives("1");
        let tested = SyntheticSettings { test_seq_len: Some(1), ..words(Group::S3, 8) };
        refuses(&*STATE_TRACKING.of(&tested), "--test-seq-len").gives("1");
    }

    #[test]
    fn a_guess_knows_the_first_answer_alone() {
        let task = STATE_TRACKING.of(&words(Group::Z2, 40));
        let guess = task.without_skill().unwrap();
        assert_eq!((guess.accuracy, guess.skill()), (20.5 / 40.0, "state tracking"));
        assert_eq!(task.title(), "state tracking (L = 40, parity)");
        assert_eq!(task.label(), "L=40/z2");
        assert_eq!(task.sizes().vocab_size, 2);
    }
}
