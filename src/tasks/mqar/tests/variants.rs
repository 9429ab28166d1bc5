//! Properties of keys of several tokens, overwritten pairs, several passes, and tests of another length.

use super::*;
use std::collections::BTreeMap;

/// Config with the smallest vocabulary and `spare` tokens more than the pairs take.
fn variant([key_tokens, kv_pairs, overwrites, passes]: [usize; 4], spare: usize, data_seed: u64) -> MqarConfig {
    let needed = (key_tokens + 1) * (passes * kv_pairs + overwrites + kv_pairs);
    let odd = key_tokens == 1 && spare % 2 == 1;
    let seq_len = needed + spare + usize::from(odd);
    let vocab_size = seq_len + 1 + usize::from(key_tokens == 1);
    MqarConfig { data_seed, key_tokens, overwrites, passes, ..config(Generator::Native, seq_len, kv_pairs, vocab_size) }
}

prop_compose! {
    fn variants()(key_tokens in 1..5_usize, kv_pairs in 1..12_usize, passes in 1..4_usize)(
        overwrites in 0..=kv_pairs, spare in 0..40_usize, data_seed in 0..1_u64 << 40,
        key_tokens in Just(key_tokens), kv_pairs in Just(kv_pairs), passes in Just(passes),
    ) -> MqarConfig {
        variant([key_tokens, kv_pairs, overwrites, passes], spare, data_seed)
    }
}

/// Keys and values that an example shows, in order, and the tokens after them.
fn shown<'a>(config: &MqarConfig, tokens: &'a [u32]) -> (Vec<(&'a [u32], u32)>, &'a [u32]) {
    let (n, count) = (config.key_tokens, config.passes * config.kv_pairs + config.overwrites);
    let (context, questions) = tokens.split_at((n + 1) * count);
    let pairs = context.chunks_exact(n + 1);
    (pairs.map(|pair| (&pair[..n], pair[n])).collect(), questions)
}

proptest! {
    #[test]
    fn every_pass_shows_all_pairs_and_some_are_shown_once_more_with_another_value(
        config in variants(),
    ) {
        for example in examples(&train(&config)) {
            let (pairs, _) = shown(&config, example.tokens);
            let (passes, again) = pairs.split_at(config.passes * config.kv_pairs);
            let first: BTreeMap<_, _> = passes[..config.kv_pairs].iter().copied().collect();
            prop_assert_eq!(first.len(), config.kv_pairs);
            for pass in passes.chunks_exact(config.kv_pairs) {
                prop_assert_eq!(&pass.iter().copied().collect::<BTreeMap<_, _>>(), &first);
            }
            let again: BTreeMap<_, _> = again.iter().copied().collect();
            prop_assert_eq!(again.len(), config.overwrites);
            prop_assert!(again.keys().all(|key| first.contains_key(key)));
            let values: HashSet<u32> = first.values().chain(again.values()).copied().collect();
            prop_assert_eq!(values.len(), config.kv_pairs + config.overwrites);
        }
    }

    #[test]
    fn a_key_is_asked_by_all_of_its_tokens_and_the_answer_under_the_last_is_its_last_value(
        config in variants(),
    ) {
        let (n, width) = (config.key_tokens, config.key_tokens + 1);
        for example in examples(&train(&config)) {
            let (pairs, questions) = shown(&config, example.tokens);
            let start = example.tokens.len() - questions.len();
            let values: HashMap<_, _> = pairs.into_iter().collect();
            let mut asked = HashSet::new();
            let mut rest = questions.to_vec();
            for (&position, answer) in example.positions.iter().zip(example.answers) {
                let place = position as usize + 1 - n - start;
                prop_assert!(place.is_multiple_of(width));
                let key = &questions[place..place + n];
                prop_assert_eq!(values.get(key), Some(answer));
                prop_assert!(asked.insert(key));
                rest[place..place + n].fill(0);
            }
            prop_assert_eq!(asked.len(), config.kv_pairs);
            prop_assert!(example.positions.windows(2).all(|p| p[0] < p[1]));
            prop_assert!(rest.iter().all(|token| *token == 0));
        }
    }

    #[test]
    fn every_place_of_a_key_has_tokens_of_its_own_and_as_few_as_there_can_be(config in variants()) {
        let (n, part) = (config.key_tokens, config.vocab_size / (config.key_tokens + 1));
        for example in examples(&train(&config)) {
            let (pairs, _) = shown(&config, example.tokens);
            for place in 0..n {
                let tokens: HashSet<usize> = pairs.iter().map(|(key, _)| key[place] as usize).collect();
                let from = (place * part).max(1);
                prop_assert!(tokens.iter().all(|token| (from..(place + 1) * part).contains(token)));
                let fewest = (1..).find(|m: &usize| m.pow(n as u32) >= config.kv_pairs).unwrap();
                prop_assert!(tokens.len() <= fewest);
            }
            prop_assert!(pairs.iter().all(|(_, value)| *value as usize >= n * part));
            prop_assert!(pairs.iter().all(|(_, value)| (*value as usize) < config.vocab_size));
        }
    }

    #[test]
    fn a_test_of_another_length_is_that_of_runs_of_this_length(
        config in variants(), more in 1..9_usize,
    ) {
        let length = config.seq_len + 2 * more;
        let longer = MqarConfig { seq_len: length, vocab_size: config.vocab_size + 40, ..config.clone() };
        let here = MqarConfig { seq_len: config.seq_len, test_seq_len: Some(length), ..longer.clone() };
        let (train, test) = per_token(&here);
        prop_assert_eq!(&test, &per_token(&longer).1);
        prop_assert_eq!(train, per_token(&MqarConfig { test_seq_len: None, ..here.clone() }).0);
        // The lengths of training and test can be exchanged.
        let shorter = MqarConfig { test_seq_len: Some(config.seq_len), ..longer };
        prop_assert_eq!(per_token(&shorter).1.seq_len(), config.seq_len);
        prop_assert_eq!(shorter.sizes().longest(), here.sizes().longest());
    }
}

/// For N = 2, keys are those of Zoology's compositional MQAR.
#[test]
fn if_all_combinations_are_keys_every_token_of_a_key_is_needed_for_its_value() {
    for [n, k, m] in [[2, 4, 2], [2, 9, 3], [3, 8, 2], [8, 256, 2]] {
        let config = variant([n, k, 0, 1], 3, 5);
        for example in examples(&train(&config)) {
            let (pairs, _) = shown(&config, example.tokens);
            let without = |place: usize| {
                let mut keys: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
                for (key, _) in &pairs {
                    let mut others = key.to_vec();
                    others.remove(place);
                    *keys.entry(others).or_default() += 1;
                }
                keys
            };
            for place in 0..n {
                assert!(without(place).values().all(|values| *values == m));
            }
        }
    }
}

/// Counts of the results of `of` over the training examples.
fn counts<K: Ord>(config: &MqarConfig, of: impl Fn(&[(&[u32], u32)]) -> K) -> BTreeMap<K, u32> {
    let mut counts = BTreeMap::new();
    for example in examples(&train(config)) {
        *counts.entry(of(&shown(config, example.tokens).0)).or_default() += 1;
    }
    counts
}

#[test]
fn every_order_of_a_later_pass_and_every_choice_of_pairs_is_as_likely_as_any_other() {
    let config = MqarConfig { train_examples: 12_000, ..variant([1, 3, 2, 3], 0, 0) };
    let order = |first: &[(&[u32], u32)], then: &[(&[u32], u32)]| -> Vec<usize> {
        let place = |key: &[u32]| first.iter().position(|(other, _)| *other == key);
        then.iter().filter_map(|(key, _)| place(key)).collect()
    };
    // Each has six outcomes, the orders of three or the ordered choices of two of three; the standard deviation is 41.
    let second = counts(&config, |pairs| order(&pairs[..3], &pairs[3..6]));
    let third = counts(&config, |pairs| order(&pairs[3..6], &pairs[6..9]));
    let again = counts(&config, |pairs| order(&pairs[..3], &pairs[9..]));
    for counts in [second, third, again] {
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| count.abs_diff(2_000) < 205), "{counts:?}");
    }
}

/// Two pairs of four cells have six choices.
#[test]
fn keys_of_several_tokens_are_any_of_the_combinations() {
    let config = MqarConfig { train_examples: 12_000, ..variant([2, 3, 0, 1], 0, 0) };
    let missing = |pairs: &[(&[u32], u32)]| {
        let part = |place: usize| {
            let tokens: Vec<u32> = pairs.iter().map(|(key, _)| key[place]).collect();
            // Two of three keys share a token; the missing key has the other one.
            let single = tokens.iter().position(|t| tokens.iter().filter(|o| *o == t).count() == 1);
            single.unwrap()
        };
        (part(0), part(1))
    };
    let counts = counts(&config, missing);
    // The two unpaired tokens are never in one key, because the fourth combination would be shown.
    assert_eq!(counts.len(), 6);
    assert!(counts.values().all(|count| count.abs_diff(2_000) < 205), "{counts:?}");
}

#[test]
fn what_goes_without_saying_is_in_no_document() {
    let plain = variant([1, 4, 0, 1], 0, 0);
    let document = serde_json::to_value(Task::config(&plain)).unwrap();
    let fields: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    let known = ["data", "data_seed", "kv_pairs", "name", "seq_len", "test_examples", "train_examples", "vocab_size"];
    assert_eq!(fields, known);
    let same = MqarConfig { test_seq_len: Some(plain.seq_len), ..plain.clone() };
    assert_eq!(Task::config(&same), Task::config(&plain));
    let other = MqarConfig { test_seq_len: Some(plain.seq_len + 2), ..variant([2, 4, 1, 3], 0, 0) };
    let typed: MqarConfig = Task::config(&other).typed().unwrap();
    assert_eq!(typed, other);
}

#[test]
fn titles_and_labels_name_the_variants() {
    let plain = variant([1, 4, 0, 1], 0, 0);
    assert_eq!((plain.title(), plain.label()), ("MQAR (L = 16, 4 pairs)".into(), "L=16/4".into()));
    let all = MqarConfig { test_seq_len: Some(64), ..variant([2, 4, 1, 3], 0, 0) };
    assert_eq!(all.title(), "MQAR (L = 51, tested at 64, 4 pairs, keys of 2 tokens, 1 overwritten, 3 passes)");
    assert_eq!(all.label(), "L=51->64/4 --key-tokens 2 --overwrites 1 --passes 3");
    assert_eq!(all.without_skill().unwrap().predictor, "position alone");
}
