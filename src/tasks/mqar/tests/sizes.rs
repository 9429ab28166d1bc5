//! Sizes that are accepted and rejected.

use super::super::MqarConfig;
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
        val_examples: 0,
        train_examples: 100_000,
        test_examples: 3_000,
    }
}

/// Error of the check after `change`, without the task's name.
fn refusal(change: impl FnOnce(&mut MqarConfig)) -> String {
    let mut config = accepted();
    change(&mut config);
    let message = config.check().unwrap_err().to_string();
    message.strip_prefix("mqar: ").unwrap().to_owned()
}

#[test]
fn no_pairs_are_refused() {
    let message = refusal(|c| c.kv_pairs = 0);
    assert_eq!(
        message,
        "--kv-pairs 0 leaves nothing to recall. Give at least 1"
    );
}

#[test]
fn an_odd_length_is_refused() {
    let message = refusal(|c| c.seq_len = 63);
    assert!(message.starts_with("--seq-len 63 is odd, "), "{message}");
}

#[test]
fn more_pairs_than_positions_are_refused() {
    let message = refusal(|c| c.kv_pairs = 17);
    let place = "--kv-pairs 17 with --seq-len 64: each pair takes four positions";
    assert!(message.starts_with(place), "{message}");
    assert!(message.ends_with("or at least --seq-len 68"), "{message}");
}

#[test]
fn more_pairs_than_a_machine_can_count_are_refused() {
    let message = refusal(|c| c.kv_pairs = usize::MAX);
    assert!(message.contains("four positions"), "{message}");
}

#[test]
fn an_odd_vocabulary_is_refused() {
    let message = refusal(|c| c.vocab_size = 8191);
    assert!(
        message.starts_with("--vocab-size 8191 is odd, "),
        "{message}"
    );
}

#[test]
fn a_vocabulary_not_above_the_length_is_refused() {
    let message = refusal(|c| c.vocab_size = 64);
    assert!(
        message.starts_with("--vocab-size 64 must exceed --seq-len 64"),
        "{message}"
    );
}

#[test]
fn too_few_keys_are_refused_by_the_vocabulary_rule() {
    let message = refusal(|c| (c.kv_pairs, c.vocab_size) = (16, 32));
    assert!(
        message.starts_with("--vocab-size 32 must exceed"),
        "{message}"
    );
}

#[test]
fn a_vocabulary_beyond_every_device_is_refused() {
    let message = refusal(|c| c.vocab_size = usize::MAX - 1);
    assert!(
        message.ends_with("beyond the largest vocabulary. Give at most 16777216"),
        "{message}"
    );
}

#[test]
fn empty_splits_are_refused() {
    let message = refusal(|c| c.train_examples = 0);
    assert_eq!(
        message,
        "--train-examples 0 leaves an empty split. Give at least 1"
    );
    let message = refusal(|c| c.test_examples = 0);
    assert_eq!(
        message,
        "--test-examples 0 leaves an empty split. Give at least 1"
    );
}

#[test]
fn splits_beyond_host_memory_are_refused() {
    let message = refusal(|c| c.test_examples = usize::MAX);
    assert!(
        message.starts_with("--test-examples 18446744073709551615 with --seq-len 64"),
        "{message}"
    );
    assert!(
        message.ends_with("Give at most --test-examples 33554432"),
        "{message}"
    );
}

#[test]
fn a_length_beyond_every_device_is_refused_with_its_vocabulary() {
    let message = refusal(|c| (c.seq_len, c.vocab_size) = (1 << 40, 1 << 41));
    assert!(message.starts_with("--vocab-size"), "{message}");
}

#[test]
fn a_data_seed_that_numpy_cannot_take_is_refused() {
    let message = refusal(|c| c.data_seed = 1 << 32);
    assert!(
        message.starts_with("--data-seed 4294967296 is beyond numpy's largest seed"),
        "{message}"
    );
}

#[test]
fn the_sizes_of_the_paper_are_accepted() {
    for (seq_len, kv_pairs) in [(64, 4), (128, 8), (256, 16), (512, 64)] {
        let task = MqarConfig {
            seq_len,
            kv_pairs,
            ..accepted()
        };
        assert!(task.check().is_ok(), "{seq_len}");
    }
}

#[test]
fn variants_that_do_not_fit_are_refused_by_their_flags() {
    let native = |change: fn(&mut MqarConfig)| {
        refusal(|c| {
            c.data = Generator::Native;
            change(c);
        })
    };
    let cases: [(fn(&mut MqarConfig), _); 8] = [
        (|c| c.key_tokens = 0, "--key-tokens 0 is no length of a key. Give 1 to 8"),
        (|c| c.key_tokens = 9, "--key-tokens 9 is no length of a key. Give 1 to 8"),
        (|c| c.passes = 0, "--passes 0 shows no pair. Give at least 1"),
        (
            |c| c.overwrites = 5,
            "--overwrites 5 with --kv-pairs 4: a pair is overwritten once at most. Give at most 4",
        ),
        (
            |c| (c.key_tokens, c.passes) = (3, 4),
            "--kv-pairs 4 --key-tokens 3 --passes 4 with --seq-len 64: a pair takes 4 positions each time that it is \
             shown, and 4 to be asked for. Give fewer pairs, or at least --seq-len 80",
        ),
        (
            |c| c.passes = usize::MAX,
            "--kv-pairs 4 --passes 18446744073709551615 with --seq-len 64: a pair takes 2",
        ),
        (
            |c| c.test_seq_len = Some(12),
            "--kv-pairs 4 with --test-seq-len 12: each pair takes four positions, two to show it and two to ask for \
             it. Give fewer pairs, or at least --test-seq-len 16",
        ),
        (
            |c| c.test_seq_len = Some(33),
            "--test-seq-len 33 is odd, but slots are two positions wide. Give an even length",
        ),
    ];
    for (change, sentence) in cases {
        let message = native(change);
        assert!(message.starts_with(sentence), "{message}");
    }
    let odd = MqarConfig {
        data: Generator::Native,
        key_tokens: 2,
        vocab_size: 8191,
        seq_len: 63,
        ..accepted()
    };
    assert!(odd.check().is_ok());
}

#[test]
fn variants_are_not_drawn_by_numpy_and_other_lengths_are() {
    let cases: [(fn(&mut MqarConfig), _); 3] = [
        (|c| c.key_tokens = 2, "--key-tokens 2"),
        (|c| c.overwrites = 1, "--overwrites 1"),
        (|c| c.passes = 2, "--passes 2"),
    ];
    for (change, flag) in cases {
        let wanted = format!("{flag} is of our own generator: take --data native, or leave it out");
        assert_eq!(refusal(change), wanted);
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
