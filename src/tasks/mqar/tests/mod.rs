//! Properties of the data of both generators.

mod sizes;
mod variants;

use super::*;
use crate::error::testing::Fails;
use crate::tasks::testing::{per_token, per_token_splits};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

pub(super) fn config(data: Generator, seq_len: usize, kv_pairs: usize, vocab_size: usize) -> MqarConfig {
    MqarConfig {
        data,
        data_seed: 0,
        vocab_size,
        seq_len,
        test_seq_len: None,
        kv_pairs,
        key_tokens: 1,
        overwrites: 0,
        passes: 1,
        fresh_examples: false,
        val_examples: 0,
        train_examples: 8,
        test_examples: 3,
    }
}

fn train(config: &MqarConfig) -> Dataset {
    per_token(config).0
}

fn generators() -> impl Strategy<Value = Generator> {
    prop_oneof![Just(Generator::Native), Just(Generator::Numpy)]
}

prop_compose! {
    fn valid_configs()(data in generators(), kv_pairs in 1..20_usize, seed in 0..1_u64 << 32)(
        seq_len in (2 * kv_pairs..80).prop_map(|half| 2 * half),
        spare in 1..100_usize,
        data_seed in Just(seed),
        data in Just(data),
        kv_pairs in Just(kv_pairs),
    ) -> MqarConfig {
        MqarConfig { data_seed, ..config(data, seq_len, kv_pairs, seq_len + 2 * spare) }
    }
}

/// Tokens, positions and answers of each example.
fn examples(dataset: &Dataset) -> impl Iterator<Item = crate::tasks::Batch<'_>> {
    (0..dataset.len()).map(|i| dataset.batch(i..i + 1))
}

fn column(context: &[u32], offset: usize) -> HashSet<u32> {
    context.iter().copied().skip(offset).step_by(2).collect()
}

/// The examples of an epoch follow those of the epoch before in the sequence of all examples.
#[test]
fn fresh_examples_continue_those_of_the_epoch_before() {
    let config = config(Generator::Native, 16, 3, 18);
    let fresh = MqarConfig { fresh_examples: true, ..config.clone() };
    let all = train(&MqarConfig { train_examples: 24, ..config.clone() });
    for epoch in 0..3 {
        assert_eq!(fresh.fresh(epoch).unwrap().batch(0..8), all.batch(8 * epoch..8 * epoch + 8));
    }
    assert_eq!(train(&fresh).batch(0..8), all.batch(0..8));
    assert_eq!(config.fresh(1), None);
    MqarConfig { data: Generator::Numpy, ..fresh }.check().refuses("--fresh-examples");
}

proptest! {
    #[test]
    fn every_answer_was_shown_with_its_key_before_it_is_asked(config in valid_configs()) {
        for example in examples(&train(&config)) {
            let context = &example.tokens[..2 * config.kv_pairs];
            let shown: HashMap<_, _> = context.chunks_exact(2).map(|p| (p[0], p[1])).collect();
            for (&position, answer) in example.positions.iter().zip(example.answers) {
                let asked = example.tokens[position as usize];
                prop_assert_eq!(shown.get(&asked), Some(answer));
            }
        }
    }

    #[test]
    fn keys_and_values_are_distinct_and_from_their_halves(config in valid_configs()) {
        let half = config.vocab_size as u32 / 2;
        for example in examples(&train(&config)) {
            let context = &example.tokens[..2 * config.kv_pairs];
            let (keys, values) = (column(context, 0), column(context, 1));
            prop_assert_eq!((keys.len(), values.len()), (config.kv_pairs, config.kv_pairs));
            prop_assert!(keys.iter().all(|&key| 0 < key && key < half));
            prop_assert!(values.iter().all(|&v| half <= v && v < 2 * half));
        }
    }

    #[test]
    fn labelled_positions_ascend_an_even_distance_after_the_context(config in valid_configs()) {
        let context = 2 * config.kv_pairs as u32;
        for example in examples(&train(&config)) {
            prop_assert_eq!(example.positions.len(), config.kv_pairs);
            prop_assert!(example.positions.windows(2).all(|p| p[0] < p[1]));
            prop_assert!(example.positions.iter().all(|p| *p >= context && p % 2 == 0));
            prop_assert!(example.positions.iter().all(|p| (*p as usize) < config.seq_len));
        }
    }

    #[test]
    fn fillers_are_zero(config in valid_configs()) {
        for example in examples(&train(&config)) {
            let asked: HashSet<_> = example.positions.iter().map(|&p| p as usize).collect();
            let after_context = example.tokens.iter().enumerate().skip(2 * config.kv_pairs);
            for (position, &token) in after_context {
                prop_assert_eq!(token != 0, asked.contains(&position));
            }
        }
    }

    #[test]
    fn another_seed_draws_other_data(config in valid_configs()) {
        // The vocabulary is large enough that two seeds do not agree by chance.
        let config = MqarConfig { train_examples: 40, vocab_size: 4096, ..config };
        let other = MqarConfig { data_seed: config.data_seed ^ 1, ..config.clone() };
        prop_assert_ne!(train(&config), train(&other));
    }

    #[test]
    fn the_seed_decides_the_data_however_many_threads_draw_it(config in valid_configs()) {
        let config = MqarConfig { train_examples: 200, ..config };
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| per_token(&config))
        };
        prop_assert_eq!(on(1), on(2));
    }
}

#[test]
fn the_splits_have_their_sizes_and_share_no_beginning() {
    for data in [Generator::Native, Generator::Numpy] {
        let (train, test) = per_token(&config(data, 64, 4, 8192));
        assert_eq!((train.len(), test.len()), (8, 3));
        assert_ne!(train.batch(0..3), test.batch(0..3));
    }
}

/// Slots of an example in the order in which they were drawn, which is the order of its keys.
fn drawn_slots(tokens: &[u32], kv_pairs: usize) -> Vec<usize> {
    let (context, queries) = tokens.split_at(2 * kv_pairs);
    let slot_of = |key: u32| queries.iter().position(|&t| t == key).unwrap() / 2;
    context.iter().step_by(2).map(|&key| slot_of(key)).collect()
}

/// Probability of drawing `slots` in this order by drawing, removing and renormalising.
fn probability(slots: &[usize], weights: &[f64]) -> f64 {
    let mut rest: f64 = weights.iter().sum();
    slots.iter().fold(1.0, |probability, &slot| {
        let step = weights[slot] / rest;
        rest -= weights[slot];
        probability * step
    })
}

fn chi_square(counts: &HashMap<Vec<usize>, u32>, weights: &[f64], draws: usize) -> f64 {
    let s = weights.len();
    let triples = (0..s * s * s).map(|i| vec![i / (s * s), i / s % s, i % s]);
    let distinct = triples.filter(|t| t[0] != t[1] && t[1] != t[2] && t[2] != t[0]);
    let term = |triple: Vec<usize>| {
        let expected = draws as f64 * probability(&triple, weights);
        let count = f64::from(counts.get(&triple).copied().unwrap_or(0));
        (count - expected).powi(2) / expected
    };
    distinct.map(term).sum()
}

#[test]
fn slots_are_drawn_removed_and_renormalised() {
    let draws = 60_000;
    for data in [Generator::Native, Generator::Numpy] {
        let config = MqarConfig { train_examples: draws, ..config(data, 16, 3, 18) };
        let mut counts = HashMap::new();
        for example in examples(&train(&config)) {
            *counts.entry(drawn_slots(example.tokens, 3)).or_default() += 1;
        }
        let weights = [1_f64, 2.0, 3.0, 4.0, 5.0].map(|g| g.powf(-0.99));
        // There are 60 ordered triples and so 59 degrees of freedom; one sample in 3000 exceeds 103.
        let statistic = chi_square(&counts, &weights, draws);
        assert!(statistic < 103.0, "{data:?}: {statistic}");
    }
}

#[test]
fn native_draws_every_key_and_value_equally_often() {
    let config = MqarConfig { train_examples: 20_000, ..config(Generator::Native, 16, 4, 18) };
    let mut counts = [0_u32; 18];
    for example in examples(&train(&config)) {
        example.tokens[..8].iter().for_each(|&t| counts[t as usize] += 1);
    }
    let (keys, values) = (&counts[1..9], &counts[9..]);
    assert!(keys.iter().all(|c| c.abs_diff(20_000 * 4 / 8) < 400), "{keys:?}");
    assert!(values.iter().all(|c| c.abs_diff(20_000 * 4 / 9) < 400), "{values:?}");
}

/// A validation set leaves the training and test examples unchanged, and is another draw of the tested length.
#[test]
fn a_validation_set_is_drawn_from_a_stream_of_its_own() {
    for data in [Generator::Native, Generator::Numpy] {
        let plain = MqarConfig { test_seq_len: Some(20), ..config(data, 16, 2, 64) };
        let with = MqarConfig { val_examples: 3, ..plain.clone() };
        let [train, none, test] = per_token_splits(&plain);
        let [trained, val, tested] = per_token_splits(&with);
        assert!(none.is_empty());
        assert_eq!((trained, &tested), (train, &test));
        assert_eq!((val.len(), val.seq_len()), (3, 20));
        assert_ne!(val, test);
    }
    let most = MqarConfig { val_examples: 1 << 40, ..config(Generator::Native, 16, 2, 64) };
    most.check().refuses("--val-examples").gives("1099511627776");
}

/// Example of the module's documentation, laid out by hand: pairs a 1, b 2, c 3, of which c and a are shown again.
#[test]
fn answers_are_sliced_by_pair_and_by_the_distance_from_the_value_shown_last() {
    let config = MqarConfig { overwrites: 2, ..config(Generator::Native, 16, 3, 64) };
    let [a, b, c] = [1, 2, 3];
    let tokens = vec![a, 41, b, 42, c, 43, c, 44, a, 45, b, 0, a, 0, c, 0];
    let test =
        Dataset { seq_len: 16, labels_per_example: 3, tokens, positions: vec![10, 12, 14], answers: vec![42, 45, 44] };
    let slices = Task::slices(&config, &test).unwrap();
    let of = |right: [f32; 3]| -> Vec<(&str, usize, usize)> {
        let right = slices.right(&right);
        let found = slices.all().into_iter().zip(right);
        let found = found.filter(|(_, right)| *right > 0);
        found.map(|(slice, _)| (slice.by, slice.from, slice.to)).collect()
    };
    assert_eq!(of([1.0, 0.0, 0.0]), [("pair", 1, 1), ("distance", 4, 7)]);
    assert_eq!(of([0.0, 1.0, 0.0]), [("pair", 0, 0), ("distance", 2, 3)]);
    assert_eq!(of([0.0, 0.0, 1.0]), [("pair", 2, 2), ("distance", 4, 7)]);
}

#[test]
fn every_answer_is_in_one_slice_of_each_kind() {
    for (key_tokens, overwrites, passes) in [(1, 0, 1), (2, 1, 1), (1, 2, 2)] {
        let config =
            MqarConfig { key_tokens, overwrites, passes, test_examples: 50, ..config(Generator::Native, 60, 4, 128) };
        let (_, test) = per_token(&config);
        let slices = Task::slices(&config, &test).unwrap().all();
        let of = |by: &str| -> Vec<usize> {
            let of = slices.iter().filter(|slice| slice.by == by);
            of.map(|slice| slice.answers).collect()
        };
        assert_eq!(of("pair"), [50; 4]);
        assert_eq!(of("distance").iter().sum::<usize>(), 200);
    }
}
