//! Tests of the generators: every answer is determined, quantities have their distributions, sizes are checked.

use super::skills::Skill;
use super::{MadSettings, ENTRY};
use crate::config::TaskConfig;
use crate::error::testing::Fails;
use crate::tasks::splits::NO_ANSWER;
use crate::tasks::testing::{assert_uniform, per_token, per_token_splits, refuses};
use crate::tasks::{Dataset, Task};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn settings(skill: Skill, vocab_size: usize, seq_len: usize) -> MadSettings {
    MadSettings {
        data_seed: 0,
        skill,
        vocab_size,
        seq_len,
        test_seq_len: None,
        copy_tokens: (skill == Skill::Copying).then_some(4),
        noise: (skill == Skill::NoisyRecall).then_some(0.2),
        train_examples: 2_000,
        fresh_examples: false,
        val_examples: 0,
        test_examples: 500,
    }
}

/// Each task at small sizes.
fn all() -> Vec<MadSettings> {
    Skill::ALL.map(|skill| settings(skill, 24, 16)).to_vec()
}

fn read(settings: &MadSettings) -> Box<dyn Task> {
    TaskConfig::new(ENTRY.name, settings).read().unwrap()
}

/// Tokens and answers of each example.
fn examples(data: &Dataset) -> impl Iterator<Item = (&[u32], &[u32])> {
    (0..data.len()).map(|i| data.batch(i..i + 1)).map(|example| (example.tokens, example.answers))
}

proptest! {
    /// Pairs of keys and values, of which a repeated key has the value it had before.
    #[test]
    fn recall_asks_for_values_that_were_shown(
        half in 2..12_u32, pairs in 2..20_usize, noise in 0.0..0.9_f64, noisy: bool, data_seed in 0..1_u64 << 40,
    ) {
        let skill = if noisy { Skill::NoisyRecall } else { Skill::Recall };
        let v = 2 * half as usize + if noisy { 16 } else { 0 };
        let few = MadSettings {
            data_seed, noise: noisy.then_some(noise), train_examples: 20, test_examples: 20,
            ..settings(skill, v, 2 * pairs)
        };
        let (train, test) = per_token(&*read(&few));
        for (tokens, labels) in examples(&train) {
            prop_assert_eq!(tokens.len(), 2 * pairs - 1);
            prop_assert_eq!(&tokens[1..], &labels[..2 * pairs - 2]);
            let value = *labels.last().unwrap();
            prop_assert!((half..2 * half).contains(&value));
        }
        for (tokens, labels) in examples(&test) {
            let mut values = BTreeMap::new();
            for pair in 0..pairs {
                let (key, value) = (tokens[2 * pair], tokens.get(2 * pair + 1));
                if pair > 0 {
                    prop_assert_eq!(labels[2 * pair - 1], NO_ANSWER, "no key is asked for");
                }
                if key >= 2 * half {
                    prop_assert!(noisy && value.is_some_and(|token| *token >= 2 * half));
                    prop_assert_eq!(labels[2 * pair], NO_ANSWER);
                    continue;
                }
                prop_assert!(key < half);
                let known = values.get(&key).copied();
                prop_assert_eq!(labels[2 * pair], known.unwrap_or(NO_ANSWER));
                if let Some(value) = value {
                    prop_assert_eq!(*values.entry(key).or_insert(*value), *value);
                } else {
                    prop_assert!(known.is_some(), "the last pair was shown before");
                }
            }
        }
    }

    /// The last key of a test has three tokens, was shown before, and its value is known.
    #[test]
    fn fuzzy_recall_asks_for_a_pair_that_was_shown(
        v in 7..40_u32, seq_len in 13..80_usize, data_seed in 0..1_u64 << 40,
    ) {
        let few = MadSettings {
            data_seed, train_examples: 20, test_examples: 20, ..settings(Skill::FuzzyRecall, v as usize, seq_len)
        };
        let (train, test) = per_token(&*read(&few));
        for (tokens, labels) in examples(&train) {
            prop_assert_eq!(&tokens[1..], &labels[..seq_len - 1]);
        }
        let half = (v - 1) / 2;
        for (tokens, labels) in examples(&test) {
            // The whole sequence, whose last token is an answer only.
            let last = *labels.last().unwrap();
            prop_assert_ne!(last, NO_ANSWER);
            let mut rest: &[u32] = &[tokens, &[last]].concat();
            let mut labels = labels.to_vec();
            labels.insert(0, NO_ANSWER);
            let padded = rest.iter().take_while(|token| **token == v - 1).count();
            rest = &rest[padded..];
            let (mut at, mut values) = (padded, BTreeMap::new());
            let mut known = false;
            while !rest.is_empty() {
                let (key, after) = rest.split_at(3);
                let size = after.iter().take_while(|token| **token >= half).count();
                let (value, left) = after.split_at(size);
                prop_assert!((1..=3).contains(&size) && key.iter().all(|token| *token < half));
                known = values.contains_key(key);
                let shown = values.entry(key.to_vec()).or_insert_with(|| value.to_vec());
                prop_assert_eq!(&shown[..], value);
                for (i, token) in key.iter().chain(value).enumerate() {
                    let answer = if i >= 3 && known { *token } else { NO_ANSWER };
                    prop_assert_eq!(labels[at + i], answer);
                }
                (at, rest) = (at + 3 + size, left);
            }
            prop_assert!(known, "the pair that is asked for was shown");
        }
    }

    #[test]
    fn the_answers_of_copying_are_the_tokens_among_blanks(
        v in 4..30_u32, copied in 1..9_usize, spare in 0..20_usize, data_seed in 0..1_u64 << 40,
    ) {
        let seq_len = 2 * copied + 1 + spare;
        let few = MadSettings {
            data_seed, copy_tokens: Some(copied), train_examples: 20, test_examples: 5,
            ..settings(Skill::Copying, v as usize, seq_len)
        };
        for data in per_token_splits(&*read(&few)) {
            for (tokens, answers) in examples(&data) {
                let (shown, asked) = tokens.split_at(seq_len - copied - 1);
                prop_assert_eq!(asked[0], v - 1);
                prop_assert!(asked[1..].iter().all(|token| *token == v - 2));
                let found: Vec<u32> = shown.iter().copied().filter(|token| *token != v - 2).collect();
                prop_assert_eq!(answers, &found[..]);
                prop_assert!(found.iter().all(|token| *token < v - 2));
            }
        }
    }
}

/// Keys are drawn uniformly with replacement, each keeps a value drawn uniformly, and the last pair repeats one of the
/// different keys shown, each as likely as any other.
#[test]
fn keys_values_and_questions_of_recall_are_uniform() {
    for (skill, v, noise) in [(Skill::Recall, 16, None), (Skill::NoisyRecall, 32, Some(0.3))] {
        let (train, _) = per_token(&*read(&MadSettings { noise, ..settings(skill, v, 16) }));
        let (mut keys, mut values, mut ranks) = (Vec::new(), Vec::new(), Vec::new());
        for (tokens, _) in examples(&train) {
            let (asked, shown) = tokens.split_last().unwrap();
            let mut first: Vec<u32> = Vec::new();
            for pair in shown.chunks_exact(2).filter(|pair| pair[0] < 8) {
                keys.push(pair[0]);
                if !first.contains(&pair[0]) {
                    first.push(pair[0]);
                    values.push(pair[1]);
                }
            }
            if first.len() == 4 {
                ranks.push(first.iter().position(|key| key == asked).unwrap());
            }
        }
        assert_uniform(keys, 0..8);
        assert_uniform(values, 8..16);
        assert_uniform(ranks, 0..4);
    }
}

/// Keys and values have one, two or three tokens, equally often, and all ordered choices of different tokens are equally
/// likely; the pair that is asked for is shown in every quarter of the sequence.
#[test]
fn lengths_tokens_and_places_of_fuzzy_recall_are_uniform() {
    let (train, test) = per_token(&*read(&settings(Skill::FuzzyRecall, 9, 64)));
    let is_key = |token: &u32| *token < 4;
    let first = |tokens: &[u32]| -> (Vec<u32>, Vec<u32>) {
        let shown = || tokens.iter().copied().skip_while(|token| *token == 8);
        let key: Vec<u32> = shown().take_while(is_key).collect();
        let value = shown().skip(key.len()).take_while(|token| !is_key(token)).collect();
        (key, value)
    };
    let trained: Vec<_> = examples(&train).map(|(tokens, _)| first(tokens)).collect();
    assert_uniform(trained.iter().map(|(key, _)| key.len()), 1..4);
    assert_uniform(trained.iter().map(|(_, value)| value.len()), 1..4);
    let pairs = |of: &[u32]| (of.len() == 2).then(|| [of[0], of[1]]);
    let choices = |low: u32| {
        let all = (low..low + 4).flat_map(move |a| (low..low + 4).map(move |b| [a, b]));
        all.filter(|[a, b]| a != b)
    };
    assert_uniform(trained.iter().filter_map(|(key, _)| pairs(key)), choices(0));
    assert_uniform(trained.iter().filter_map(|(_, value)| pairs(value)), choices(4));
    assert!(examples(&test).all(|(tokens, _)| first(tokens).0.len() == 3));

    let many = MadSettings { test_examples: 2_000, ..settings(Skill::FuzzyRecall, 41, 160) };
    let mut quarters = [0; 4];
    for (tokens, _) in examples(&per_token(&*read(&many)).1) {
        let end = tokens.iter().rposition(|token| *token < 20).unwrap() + 1;
        let key = &tokens[end - 3..end];
        quarters[tokens.windows(3).position(|window| window == key).unwrap() / 40] += 1;
    }
    assert!(quarters.iter().all(|count| *count > 2_000 / 6), "{quarters:?}");
}

#[test]
fn places_and_tokens_of_selective_copying_are_uniform() {
    let few = MadSettings { copy_tokens: Some(2), train_examples: 6_000, ..settings(Skill::Copying, 6, 9) };
    let (train, _) = per_token(&*read(&few));
    let places = examples(&train).map(|(tokens, _)| (0..6).filter(|i| tokens[*i] != 4).collect::<Vec<usize>>());
    assert_uniform(places, (0..6).flat_map(|a| (a + 1..6).map(move |b| vec![a, b])));
    assert_uniform(examples(&train).flat_map(|(_, answers)| answers.to_vec()), 0..4);
}

#[test]
fn keys_of_memorization_are_uniform() {
    let (train, _) = per_token(&*read(&settings(Skill::Memorization, 33, 32)));
    let keys = examples(&train).flat_map(|(tokens, _)| tokens.iter().step_by(2).copied().collect::<Vec<_>>());
    assert_uniform(keys, 0..16);
}

#[test]
fn compression_asks_for_all_tokens() {
    let (train, _) = per_token(&*read(&settings(Skill::Compression, 16, 32)));
    assert!(examples(&train).all(|(tokens, answers)| (tokens, tokens[31]) == (answers, 15)));
    assert_uniform(examples(&train).flat_map(|(tokens, _)| tokens[..31].to_vec()), 0..15);
}

#[test]
fn memorization_has_one_map_for_all_examples() {
    let of = |data_seed| {
        let (train, test) = per_token(&*read(&MadSettings { data_seed, ..settings(Skill::Memorization, 64, 32) }));
        let mut map = BTreeMap::new();
        for (tokens, answers) in examples(&train).chain(examples(&test)) {
            for (pair, answer) in tokens.chunks_exact(2).zip(answers) {
                assert_eq!(pair[1], 63);
                assert_eq!(map.insert(pair[0], *answer).unwrap_or(*answer), *answer);
            }
        }
        assert_eq!(train.batch(0..1).positions, (1..32).step_by(2).collect::<Vec<u32>>());
        map
    };
    let map = of(0);
    assert!(map.keys().copied().eq(0..31), "all keys are asked for");
    let mut values: Vec<u32> = map.values().copied().collect();
    values.sort_unstable();
    values.dedup();
    assert!(values.len() == 31 && values.iter().all(|value| (31..63).contains(value)));
    assert_ne!(map, of(1));
}

#[test]
fn a_pair_is_noise_as_often_as_the_setting_says() {
    let noisy = MadSettings { noise: Some(0.4), ..settings(Skill::NoisyRecall, 32, 64) };
    let (train, _) = per_token(&*read(&noisy));
    let noise = |tokens: &[u32]| tokens.iter().step_by(2).filter(|token| **token >= 16).count();
    let found: usize = examples(&train).map(|(tokens, _)| noise(tokens)).sum();
    // All of 32 pairs but the one that is kept free and the last.
    let expected = 0.4 * 30.0 * 2_000.0;
    assert!((found as f64 - expected).abs() < 5.0 * (expected * 0.6).sqrt(), "{found} of {expected}");
}

/// Half of the sequences of a test have another number of answers than those of training, and they are fewer.
#[test]
fn an_example_is_a_function_of_seed_split_and_index() {
    for settings in all() {
        let data = |change: fn(&mut MadSettings)| {
            let mut settings = settings.clone();
            change(&mut settings);
            read(&settings)
        };
        let (train, test) = per_token(&*data(|_| {}));
        let (longer, same) = per_token(&*data(|s| s.train_examples = 3_000));
        assert_eq!(longer.batch(0..2_000), train.batch(0..2_000));
        assert_eq!(test, same);
        assert_ne!(per_token(&*data(|s| s.data_seed = 1)).1, test);
        let fresh = data(|s| s.fresh_examples = true);
        assert_eq!(per_token(&*fresh).0, train);
        let second = data(|s| s.train_examples = 4_000);
        assert_eq!(fresh.fresh(1).unwrap().batch(0..2_000), per_token(&*second).0.batch(2_000..4_000));
        let sizes = data(|s| s.test_seq_len = Some(32)).sizes();
        let (_, tested) = per_token(&*data(|s| s.test_seq_len = Some(32)));
        assert_eq!(sizes.test_seq_len, tested.seq_len());
        assert_eq!(sizes.labels_per_tested_example, tested.labels_per_example());
    }
}

#[test]
fn sizes_without_data_are_refused_by_their_flag() {
    let refused = |skill, vocab_size, seq_len, flag: &str| refuses(&*read(&settings(skill, vocab_size, seq_len)), flag);
    refused(Skill::Recall, 16, 15, "--seq-len").gives("15");
    refused(Skill::Recall, 15, 16, "--vocab-size").gives("15");
    refused(Skill::Recall, 2, 16, "--vocab-size").names(&["4"]);
    refused(Skill::NoisyRecall, 18, 16, "--vocab-size").names(&["16", "20"]);
    refused(Skill::FuzzyRecall, 6, 32, "--vocab-size").names(&["7"]);
    refused(Skill::FuzzyRecall, 16, 12, "--seq-len").names(&["13"]);
    refused(Skill::Copying, 16, 8, "--copy-tokens").names(&["--seq-len 8", "9"]);
    refused(Skill::Copying, 3, 16, "--vocab-size").gives("3");
    refused(Skill::Compression, 2, 16, "--vocab-size").gives("2");
    refused(Skill::Compression, 16, 1, "--seq-len").gives("1");
    refused(Skill::Memorization, 64, 31, "--seq-len").gives("31");
    refused(Skill::Memorization, 4, 32, "--vocab-size").gives("4");
    let odd = MadSettings { test_seq_len: Some(17), ..settings(Skill::Recall, 16, 16) };
    refuses(&*read(&odd), "--test-seq-len").gives("17");
}

#[test]
fn a_setting_of_another_skill_is_refused_by_name() {
    let refused = |change: fn(&mut MadSettings), skill, field| {
        let mut settings = settings(skill, 24, 16);
        change(&mut settings);
        TaskConfig::new(ENTRY.name, &settings).read().fails("refused").names(&[field]);
    };
    refused(|s| s.noise = Some(0.1), Skill::Recall, "noisy-recall");
    refused(|s| s.noise = None, Skill::NoisyRecall, "`noise`");
    refused(|s| s.copy_tokens = Some(3), Skill::Compression, "copying");
    refused(|s| s.copy_tokens = None, Skill::Copying, "`copy_tokens`");
}

/// The level without the skill is that of a constant answer if nothing that is shown may be the answer.
#[test]
fn a_constant_answer_is_right_as_often_as_a_guess() {
    for settings in all() {
        let expected = match settings.skill {
            Skill::Compression => 1.0 / 16.0, // its last token is the same in all examples
            Skill::Memorization => read(&settings).without_skill().unwrap().accuracy,
            _ => continue,
        };
        let (_, test) = per_token(&*read(&settings));
        let answers: Vec<u32> = test.all_answers();
        let mut counts = BTreeMap::new();
        answers.iter().for_each(|answer| *counts.entry(*answer).or_insert(0_u32) += 1);
        let most = *counts.values().max().unwrap() as f64 / answers.len() as f64;
        assert!((most / expected - 1.0).abs() < 0.35, "{:?}: {most}, {expected}", settings.skill);
    }
}

/// Three of these are the sizes of mad-small, which copies more tokens.
#[test]
fn the_token_shown_most_often_is_right_at_a_third_of_recall() {
    let of = |skill, vocab_size, seq_len, expected: f64| {
        let found = read(&settings(skill, vocab_size, seq_len)).without_skill().unwrap();
        assert!((found.accuracy - expected).abs() < 0.01, "{skill:?}: {}", found.accuracy);
    };
    of(Skill::Recall, 16, 32, 0.36);
    of(Skill::NoisyRecall, 32, 32, 0.378);
    of(Skill::FuzzyRecall, 16, 32, 0.219);
    of(Skill::Copying, 16, 48, 0.349);
}

#[test]
fn a_title_names_the_skill_and_its_sizes() {
    let task = read(&settings(Skill::NoisyRecall, 24, 16));
    assert_eq!(task.title(), "noisy recall of MAD (L = 16, V = 24, noise 0.2)");
    assert_eq!(task.label(), "noisy-recall L=16/0.2/V=24");
    assert!(task.has_macro_accuracy());
}
