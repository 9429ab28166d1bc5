//! Sizes that are accepted and rejected.

use super::super::MqarConfig;
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::tasks::testing::per_token;
use crate::tasks::{Generator, Task};

/// Shortest task of the paper's J.1.
fn accepted() -> MqarConfig {
    MqarConfig {
        data: Generator::Numpy,
        data_seed: 0,
        vocab_size: 8192,
        seq_len: 64,
        test_seq_len: None,
        kv_pairs: 4,
        key_tokens: 1,
        overwrites: 0,
        passes: 1,
        fresh_examples: false,
        val_examples: 0,
        train_examples: 100_000,
        test_examples: 3_000,
    }
}

/// Asserts that the config is refused for `flag` after `change`, and returns the refusal.
fn refuses(change: impl FnOnce(&mut MqarConfig), flag: &str) -> Diagnostic {
    let mut config = accepted();
    change(&mut config);
    config.check().refuses(flag)
}

#[test]
fn sizes_that_make_no_data_are_refused_by_their_flag() {
    type Change = fn(&mut MqarConfig);
    let cases: [(Change, &str, &str, &[&str]); 9] = [
        (|c| c.kv_pairs = 0, "--kv-pairs", "0", &["1"]),
        (|c| c.seq_len = 63, "--seq-len", "63", &[]),
        (|c| c.kv_pairs = 17, "--kv-pairs", "17", &["--seq-len 64", "--seq-len 68"]),
        (|c| c.kv_pairs = usize::MAX, "--kv-pairs", "18446744073709551615", &["--seq-len 64"]),
        (|c| c.vocab_size = 8191, "--vocab-size", "8191", &[]),
        (|c| c.vocab_size = 64, "--vocab-size", "64", &["--seq-len 64"]),
        // Too few keys for the pairs.
        (|c| (c.kv_pairs, c.vocab_size) = (16, 32), "--vocab-size", "32", &["--seq-len 64"]),
        (|c| c.vocab_size = usize::MAX - 1, "--vocab-size", "18446744073709551614", &["16777216"]),
        (|c| (c.seq_len, c.vocab_size) = (1 << 40, 1 << 41), "--vocab-size", "2199023255552", &["16777216"]),
    ];
    for (change, flag, value, names) in cases {
        refuses(change, flag).gives(value).names(names);
    }
}

#[test]
fn splits_that_are_empty_or_beyond_host_memory_are_refused() {
    refuses(|c| c.train_examples = 0, "--train-examples").gives("0");
    refuses(|c| c.test_examples = 0, "--test-examples").gives("0");
    refuses(|c| c.test_examples = usize::MAX, "--test-examples")
        .gives("18446744073709551615")
        .names(&["--seq-len 64", "33554432"]);
}

#[test]
fn a_data_seed_that_numpy_cannot_take_is_refused() {
    refuses(|c| c.data_seed = 1 << 32, "--data-seed").gives("4294967296").names(&["4294967295", "--seed"]);
}

#[test]
fn the_sizes_of_the_paper_are_accepted() {
    for (seq_len, kv_pairs) in [(64, 4), (128, 8), (256, 16), (512, 64)] {
        let task = MqarConfig { seq_len, kv_pairs, ..accepted() };
        assert!(task.check().is_ok(), "{seq_len}");
    }
}

#[test]
fn variants_that_do_not_fit_are_refused_by_their_flags() {
    type Change = fn(&mut MqarConfig);
    let cases: [(Change, &str, &str, &[&str]); 8] = [
        (|c| c.key_tokens = 0, "--key-tokens", "0", &["1 to 8"]),
        (|c| c.key_tokens = 9, "--key-tokens", "9", &["1 to 8"]),
        (|c| c.passes = 0, "--passes", "0", &["1"]),
        (|c| c.overwrites = 5, "--overwrites", "5", &["--kv-pairs 4", "at most 4"]),
        (
            |c| (c.key_tokens, c.passes) = (3, 4),
            "--kv-pairs",
            "4",
            &["--key-tokens 3", "--passes 4", "--seq-len 64", "--seq-len 80"],
        ),
        (|c| c.passes = usize::MAX, "--kv-pairs", "4", &["--passes 18446744073709551615", "--seq-len 64"]),
        (|c| c.test_seq_len = Some(12), "--kv-pairs", "4", &["--test-seq-len 12", "--test-seq-len 16"]),
        (|c| c.test_seq_len = Some(33), "--test-seq-len", "33", &[]),
    ];
    for (change, flag, value, names) in cases {
        let native = |c: &mut MqarConfig| {
            c.data = Generator::Native;
            change(c);
        };
        refuses(native, flag).gives(value).names(names);
    }
    let odd = MqarConfig { data: Generator::Native, key_tokens: 2, vocab_size: 8191, seq_len: 63, ..accepted() };
    assert!(odd.check().is_ok());
}

#[test]
fn variants_are_not_drawn_by_numpy_and_other_lengths_are() {
    let cases: [(fn(&mut MqarConfig), _, _); 3] = [
        (|c| c.key_tokens = 2, "--key-tokens", "2"),
        (|c| c.overwrites = 1, "--overwrites", "1"),
        (|c| c.passes = 2, "--passes", "2"),
    ];
    for (change, flag, value) in cases {
        refuses(change, flag).gives(value).names(&["--data native"]);
    }
    let small = |seq_len, test_seq_len| MqarConfig {
        seq_len,
        test_seq_len,
        train_examples: 4,
        test_examples: 20,
        ..accepted()
    };
    let (train, test) = per_token(&small(64, Some(96)));
    assert_eq!(train, per_token(&small(64, None)).0);
    assert_eq!(test, per_token(&small(96, None)).1);
}
