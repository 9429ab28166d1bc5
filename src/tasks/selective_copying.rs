//! Selective copying, from section 3.1 (Figure 2) and 4.1.1 of Gu & Dao 2023, "Mamba": the copying memory problem of
//! Arjovsky et al. 2016 with random positions. Some tokens stand at random positions among noise. As many markers
//! follow, at which the tokens must be repeated in their order:
//!
//! ```text
//! tokens   . a . . b . c . . ? ? ?
//! label    - - - - - - - - - a b c
//! ```
//!
//! The noise `.` is token 0, the marker `?` is V - 1, and the tokens to copy are drawn independently from 1 .. V - 2.
//! All choices of k of the first L - k positions are equally likely. Since there are as many markers as tokens k, the
//! first L - k positions hold all of them. The paper's sizes are L = 4096, V = 16 and k = 16.

use super::limits::{Length, Rule};
use super::synthetic::{Synthetic, SyntheticSettings, WithoutSkill};
use super::{TaskEntry, NO_COPYING};
use crate::ops::rng::Rng;

pub(super) const ENTRY: TaskEntry = SELECTIVE_COPYING.entry(
    "selective copying: tokens among noise, in their order",
    &[
        "dsf selective-copying --mixer s6",
        "dsf selective-copying --mixer linear --seq-len 128 --copy-tokens 16 --seed 1",
        "dsf selective-copying --preset paper --mixer mamba --lr 1e-4",
    ],
    include_str!("../recipes/selective_copying.toml"),
    |config| Synthetic::read(&SELECTIVE_COPYING, config),
);

const SELECTIVE_COPYING: Synthetic = Synthetic {
    name: "selective-copying",
    title: "selective copying",
    fields: &[
        "data_seed",
        "vocab_size",
        "seq_len",
        "test_seq_len",
        "copy_tokens",
        "train_examples",
        "fresh_examples",
        "val_examples",
        "test_examples",
    ],
    rules,
    answers: |settings, _| copied(settings),
    without_skill: WithoutSkill::MostShown {
        token: "the token shown most often",
        label: NO_COPYING,
        vote: |settings, token, _, _| i32::from(token != NOISE && token as usize != settings.v() - 1),
    },
    details: |settings| [format!(", {} tokens", copied(settings)), format!("/{}", copied(settings))],
    draw,
    ..Synthetic::ONE_ANSWER
};

/// Number of tokens to copy, k.
fn copied(settings: &SyntheticSettings) -> usize {
    settings.copy_tokens.unwrap_or(0)
}

/// Token between the tokens to copy.
const NOISE: u32 = 0;

fn rules(settings: &SyntheticSettings, length: Length) -> Vec<Rule> {
    let (vocab_size, copied) = (settings.v(), copied(settings));
    let seq_len = length.tokens;
    vec![
        Rule::new(copied > 0, ("--copy-tokens", copied), "leaves nothing to copy. Give at least 1"),
        Rule::new(
            copied <= seq_len / 2,
            length.typed(),
            format!(
                "no room for --copy-tokens {copied}: each takes one position, and a marker at the end another. Give \
                 fewer, or a length of at least {}",
                copied.saturating_mul(2)
            ),
        ),
        Rule::new(
            vocab_size >= 4,
            ("--vocab-size", vocab_size),
            "leaves fewer than two tokens besides the noise and the marker. Give at least 4",
        ),
    ]
}

/// Fills the tokens and the answers of one example.
fn draw(rng: &mut Rng, settings: &SyntheticSettings, tokens: &mut [u32], answers: &mut [u32]) {
    let vocab_size = settings.v() as u32;
    answers.fill_with(|| NOISE + 1 + rng.below(vocab_size - 2));
    let (places, markers) = tokens.split_at_mut(tokens.len() - answers.len());
    markers.fill(vocab_size - 1);
    scatter(rng, answers, places, NOISE);
}

/// Fills `places` with `tokens`, in order at random places, and `blank` elsewhere.
pub(super) fn scatter(rng: &mut Rng, tokens: &[u32], places: &mut [u32], blank: u32) {
    // Each position is taken with probability (tokens left) / (positions left): sampling without replacement (Knuth,
    // The Art of Computer Programming 2, algorithm 3.4.2 S).
    let mut coming = tokens.iter();
    for (left, place) in (1..=places.len() as u32).rev().zip(places) {
        let taken = rng.below(left) < coming.len() as u32;
        *place = if taken { coming.next().copied().unwrap_or(blank) } else { blank };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;
    use crate::tasks::testing::{
        assert_refused, assert_seeded, assert_tested_at_another_length, assert_uniform, paper, per_token, refuses,
    };
    use proptest::prelude::*;

    fn copying(vocab_size: usize, seq_len: usize, copied: usize) -> SyntheticSettings {
        SyntheticSettings { copy_tokens: Some(copied), ..paper(vocab_size, seq_len) }
    }

    proptest! {
        #[test]
        fn the_answers_are_the_tokens_among_noise_before_as_many_markers(
            vocab_size in 4..40_usize, copied in 1..9_usize, spare in 0..30_usize,
            data_seed in 0..1_u64 << 40,
        ) {
            let seq_len = 2 * copied + spare;
            let settings = SyntheticSettings {
                data_seed, train_examples: 9, test_examples: 4, ..copying(vocab_size, seq_len, copied)
            };
            let (train, test) = per_token(&*SELECTIVE_COPYING.of(&settings));
            prop_assert_eq!((train.len(), test.len()), (9, 4));
            for (i, data) in (0..9).map(|i| (i, &train)).chain((0..4).map(|i| (i, &test))) {
                let example = data.batch(i..i + 1);
                let (places, markers) = example.tokens.split_at(seq_len - copied);
                let shown: Vec<u32> = places.iter().copied().filter(|t| *t != NOISE).collect();
                prop_assert_eq!(example.answers, &shown[..]);
                prop_assert!(shown.iter().all(|t| (*t as usize) < vocab_size - 1));
                prop_assert!(markers.iter().all(|t| *t as usize == vocab_size - 1));
                let last: Vec<u32> = (seq_len as u32 - copied as u32..seq_len as u32).collect();
                prop_assert_eq!(example.positions, &last[..]);
            }
        }
    }

    /// All pairs of six positions, and all tokens, are equally likely.
    #[test]
    fn every_choice_of_places_and_every_token_is_as_likely_as_any_other() {
        let settings = SyntheticSettings { train_examples: 30_000, ..copying(7, 8, 2) };
        let (train, _) = per_token(&*SELECTIVE_COPYING.of(&settings));
        let examples = || (0..train.len()).map(|i| train.batch(i..i + 1));
        let taken = |tokens: &[u32]| -> Vec<usize> { (0..6).filter(|i| tokens[*i] != NOISE).collect() };
        let pairs = (0..6).flat_map(|a| (a + 1..6).map(move |b| vec![a, b]));
        assert_uniform(examples().map(|e| taken(e.tokens)), pairs);
        assert_uniform(examples().flat_map(|e| e.answers.to_vec()), 1..6);
    }

    #[test]
    fn an_example_is_a_function_of_seed_split_and_index() {
        assert_seeded(&SELECTIVE_COPYING, &copying(16, 64, 8));
    }

    #[test]
    fn the_test_may_have_another_length() {
        assert_tested_at_another_length(&SELECTIVE_COPYING, &copying(16, 64, 8));
    }

    #[test]
    fn sizes_without_data_are_refused_by_their_flag() {
        let own = [(16, 15, "--seq-len"), (3, 64, "--vocab-size")];
        assert_refused(&SELECTIVE_COPYING, &copying(16, 64, 8), &own);
        let none = &*SELECTIVE_COPYING.of(&copying(16, 64, 0));
        refuses(none, "--copy-tokens").gives("0");
        let all = &*SELECTIVE_COPYING.of(&copying(16, 64, usize::MAX));
        refuses(all, "--seq-len").names(&["--copy-tokens"]);
        let (smallest, _) = per_token(&*SELECTIVE_COPYING.of(&copying(4, 2, 1)));
        assert_eq!(smallest.batch(0..1).tokens[1], 3);
    }

    #[test]
    fn without_the_order_one_token_is_the_best_answer() {
        let task = SELECTIVE_COPYING.of(&copying(16, 64, 8));
        let found = task.without_skill().unwrap();
        assert!((found.accuracy - 0.27).abs() < 0.01, "{}", found.accuracy);
        assert_eq!((found.label, &*found.predictor), ("no copying", "the token shown most often"));
        assert_eq!(task.title(), "selective copying (L = 64, 8 tokens)");
        assert_eq!(task.label(), "L=64/8");
    }

    /// A config with a field that its task does not have, or without one that it has, is rejected.
    #[test]
    fn the_tokens_to_copy_are_a_field_of_this_task_alone() {
        let config = SELECTIVE_COPYING.of(&copying(16, 64, 8)).config();
        let mut without = crate::recipes::run("induction", &[]).unwrap().task;
        assert!(config.read().is_ok() && without.read().is_ok());
        without.set("copy_tokens", 2);
        let plain = crate::config::TaskConfig::new("selective-copying", &paper(16, 64));
        for (task, name) in [(without, "induction"), (plain, "selective-copying")] {
            task.read().fails("refused").names(&[name, "`copy_tokens`"]);
        }
    }
}
