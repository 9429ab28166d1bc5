//! Helpers shared by the tests of all tasks.

use crate::config::TaskConfig;
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::tasks::synthetic::{Synthetic, SyntheticSettings};
use crate::tasks::{Dataset, Splits, Task};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

/// Folder `name` of real data; `None` and a printed line if there is none.
pub(in crate::tasks) fn real(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("DSF_TEST_DATA");
    if dir.is_none() {
        eprintln!("skipped: DSF_TEST_DATA is not set");
    }
    dir.map(|dir| PathBuf::from(dir).join(name))
}

/// Training and test split of a task of labels at positions.
pub(in crate::tasks) fn per_token(task: &dyn Task) -> (Dataset, Dataset) {
    let [train, _, test] = per_token_splits(task);
    (train, test)
}

/// Training, validation and test split of a task of labels at positions.
pub(in crate::tasks) fn per_token_splits(task: &dyn Task) -> [Dataset; 3] {
    match task.load(None, &mut |_, _| Ok(())).unwrap() {
        Splits::PerToken { train, val, test } => [train, val, test],
        _ => panic!("another objective"),
    }
}

/// Asserts that a task refuses its sizes for `flag`, both when they are checked and when data are made, and returns the
/// refusal.
pub(in crate::tasks) fn refuses(task: &dyn Task, flag: &str) -> Diagnostic {
    let at = task.check().refuses(flag);
    assert_eq!(task.load(None, &mut |_, _| Ok(())).refuses(flag), at);
    at
}

/// Asserts that `drawn` has each of `values` equally often, within five standard deviations, and nothing else.
pub(in crate::tasks) fn assert_uniform<T: Ord + Debug>(
    drawn: impl IntoIterator<Item = T>,
    values: impl IntoIterator<Item = T>,
) {
    let mut counts: BTreeMap<T, usize> = values.into_iter().map(|value| (value, 0)).collect();
    let of = counts.len() as f64;
    for value in drawn {
        let known = counts.contains_key(&value);
        assert!(known, "{value:?} is drawn");
        counts.entry(value).and_modify(|count| *count += 1);
    }
    let draws = counts.values().sum::<usize>() as f64;
    let tolerance = 5.0 * (draws / of * (1.0 - 1.0 / of)).sqrt();
    assert!(draws > 25.0 * of, "{draws} draws of {of} values");
    assert!(counts.values().all(|count| (*count as f64 - draws / of).abs() < tolerance), "{counts:?}");
}

impl Synthetic {
    /// Task with these settings.
    pub(in crate::tasks) fn of(&'static self, settings: &SyntheticSettings) -> Box<dyn Task> {
        self.read(&TaskConfig::new(self.name, settings)).unwrap()
    }
}

/// The paper's sizes with another vocabulary and length.
pub(in crate::tasks) fn paper(vocab_size: usize, seq_len: usize) -> SyntheticSettings {
    SyntheticSettings {
        data_seed: 0,
        vocab_size: Some(vocab_size),
        seq_len,
        test_seq_len: None,
        copy_tokens: None,
        form: None,
        key_tokens: None,
        group: None,
        fresh_examples: false,
        val_examples: 0,
        train_examples: 5_000,
        test_examples: 500,
    }
}

/// Asserts that an example is a function of seed, split and index.
pub(in crate::tasks) fn assert_seeded(task: &'static Synthetic, paper: &SyntheticSettings) {
    let data = |change: fn(&mut SyntheticSettings)| {
        let mut settings = paper.clone();
        change(&mut settings);
        per_token(&*task.of(&settings))
    };
    let (train, test) = data(|_| {});
    let (longer, same) = data(|s| s.train_examples = 6_000);
    assert_eq!(longer.batch(0..5_000), train.batch(0..5_000));
    assert_eq!(test, same);
    assert_ne!(train.batch(0..500), test.batch(0..500));
    assert_ne!(data(|s| s.data_seed = 1).1, test);
    let fresh = task.of(&SyntheticSettings { fresh_examples: true, train_examples: 3_000, ..paper.clone() });
    assert_eq!(per_token(&*fresh).0.batch(0..3_000), train.batch(0..3_000));
    assert_eq!(fresh.fresh(1).unwrap().batch(0..3_000), longer.batch(3_000..6_000));
    assert!(task.of(paper).fresh(1).is_none());
    let with_validation = SyntheticSettings { val_examples: 500, ..paper.clone() };
    let [trained, val, tested] = per_token_splits(&*task.of(&with_validation));
    assert_eq!((&trained, &tested), (&train, &test));
    assert_eq!(val.len(), 500);
    assert!(val != test && val.batch(0..500) != train.batch(0..500));
}

/// Asserts that another test length changes the test split only.
pub(in crate::tasks) fn assert_tested_at_another_length(task: &'static Synthetic, paper: &SyntheticSettings) {
    let plain = task.of(paper);
    let (seq_len, sizes) = (paper.seq_len, plain.sizes());
    for test_seq_len in [seq_len + 7, seq_len - 3] {
        let at = |settings: &SyntheticSettings| {
            task.of(&SyntheticSettings { test_seq_len: Some(test_seq_len), ..settings.clone() })
        };
        let other = at(paper);
        let (train, test) = per_token(&*other);
        assert_eq!(train, per_token(&*plain).0);
        // The test split equals that of a run whose examples all have this length.
        let all = SyntheticSettings { seq_len: test_seq_len, ..paper.clone() };
        assert_eq!(test, per_token(&*task.of(&all)).1);
        let (longest, labels) = (seq_len.max(test_seq_len), sizes.labels_per_example);
        assert_eq!(other.sizes().longest(), longest);
        assert_eq!(other.sizes().labels_per_example, labels);
        assert_eq!(other.sizes().tokens_per_example(), sizes.tokens_per_example());
        let said = format!("L = {seq_len}, tested at {test_seq_len}");
        assert!(other.title().contains(&said), "{}", other.title());
        assert!(other.label().starts_with(&format!("L={seq_len}->{test_seq_len}")));
        assert_ne!(other.config(), plain.config());
    }
    // A test length equal to that of training is left out of the config.
    let same = task.of(&SyntheticSettings { test_seq_len: Some(seq_len), ..paper.clone() });
    assert_eq!(same.config(), plain.config());
    assert_eq!((same.title(), same.label()), (plain.title(), plain.label()));
}

/// Asserts that sizes without data are rejected by flag: by the task's own rules for V and L, and by the common limits.
pub(in crate::tasks) fn assert_refused(
    task: &'static Synthetic,
    paper: &SyntheticSettings,
    own: &[(usize, usize, &str)],
) {
    for &(vocab_size, seq_len, flag) in own {
        let settings = SyntheticSettings { vocab_size: Some(vocab_size), seq_len, ..paper.clone() };
        let value = match flag {
            "--seq-len" => seq_len,
            _ => vocab_size,
        };
        refuses(&*task.of(&settings), flag).gives(&value.to_string());
    }
    type Change = fn(&mut SyntheticSettings);
    let all: [(Change, _, _, &[&str]); 5] = [
        (|s| s.vocab_size = Some(1 << 25), "--vocab-size", "33554432", &["16777216"]),
        (|s| s.train_examples = 0, "--train-examples", "0", &["1"]),
        (|s| s.test_examples = 1 << 40, "--test-examples", "1099511627776", &["--seq-len"]),
        (|s| s.test_seq_len = Some(1), "--test-seq-len", "1", &[]),
        (
            |s| (s.test_seq_len, s.test_examples) = (Some(1 << 20), 1 << 12),
            "--test-examples",
            "4096",
            &["--test-seq-len 1048576"],
        ),
    ];
    for (change, flag, value, names) in all {
        let mut settings = paper.clone();
        change(&mut settings);
        refuses(&*task.of(&settings), flag).gives(value).names(names);
    }
}
