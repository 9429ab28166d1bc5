use super::*;
use crate::config::Generator;
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

fn config(train_examples: usize, val_examples: usize, test_examples: usize) -> LraConfig {
    LraConfig {
        dataset: LraDataset::Image,
        data: Generator::Files,
        data_seed: 0,
        vocab_size: 256,
        seq_len: 1024,
        train_examples,
        val_examples,
        test_examples,
    }
}

/// A record of one gray value whose label is the value's last digit.
fn record(value: u8) -> Vec<u8> {
    let mut bytes = vec![value; RECORD];
    bytes[0] = value % 10;
    bytes
}

fn write(dir: &TempDir, name: &str, bytes: &[u8]) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Ten records for training with values 0 to 9, two in each batch; three for testing from 100 on.
fn world() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (batch, name) in TRAIN.iter().enumerate() {
        let first = 2 * batch as u8;
        write(&dir, name, &[record(first), record(first + 1)].concat());
    }
    write(
        &dir,
        TEST,
        &[record(100), record(101), record(102)].concat(),
    );
    dir
}

/// The gray value of every picture of a split, checked against its label and size.
fn values(examples: &Examples) -> Vec<u8> {
    let value = |example| {
        let pixels = examples.document(example, 0);
        assert_eq!(pixels, [pixels[0]; PIXELS]);
        assert_eq!(examples.label(example), pixels[0] % 10);
        pixels[0]
    };
    (0..examples.len()).map(value).collect()
}

#[test]
fn training_records_are_cut_in_the_order_of_the_permutation() {
    let dir = world();
    let splits = load(&config(9, 1, 3), dir.path()).unwrap();
    assert_eq!(values(&splits.train), [2, 6, 1, 8, 4, 5, 0, 9, 3]);
    assert_eq!(values(&splits.val), [7]);
    assert_eq!(values(&splits.test), [100, 101, 102]);
    let fewer = load(&config(2, 0, 1), dir.path()).unwrap();
    assert_eq!(values(&fewer.train), [2, 6]);
    assert!(fewer.val.is_empty());
    assert_eq!(values(&fewer.test), [100]);
}

#[test]
fn sizes_beyond_what_was_found_are_refused_by_their_flag() {
    let dir = world();
    let sizes = [
        (config(10, 1, 3), "--train-examples 10: there are 9"),
        (config(9, 2, 3), "--val-examples 2: there are 1"),
        (config(9, 1, 4), "--test-examples 4: there are 3"),
    ];
    for (config, start) in sizes {
        let message = load(&config, dir.path()).unwrap_err().to_string();
        assert!(message.starts_with(start), "{message}");
    }
}

fn refusal(dir: &TempDir) -> String {
    load(&config(1, 0, 1), dir.path()).unwrap_err().to_string()
}

#[test]
fn a_cut_record_is_named() {
    for (bytes, part) in [
        (
            vec![1; 2 * RECORD + 5],
            "record 2: expected 3073 bytes, found 5",
        ),
        (vec![], "record 0: expected 3073 bytes, found 0"),
    ] {
        let dir = world();
        write(&dir, TRAIN[3], &bytes);
        let message = refusal(&dir);
        assert!(
            message.contains(&format!("data_batch_4.bin, {part}")),
            "{message}"
        );
    }
}

#[test]
fn a_label_without_a_class_is_named() {
    let dir = world();
    let mut bytes = record(3).repeat(3);
    bytes[2 * RECORD] = 10;
    write(&dir, TEST, &bytes);
    let message = refusal(&dir);
    let part = "test_batch.bin, record 2: expected a label of 0 to 9, found 10";
    assert!(message.contains(part), "{message}");
}

#[test]
fn a_missing_batch_is_named() {
    let dir = world();
    fs::remove_file(dir.path().join(TRAIN[2])).unwrap();
    assert!(refusal(&dir).contains("data_batch_3.bin"));
}

#[test]
fn gray_keeps_grays_and_weighs_colours() {
    assert!((0..=255).all(|value| gray([value; 3]) == value));
    assert_eq!(gray([255, 0, 0]), 76);
    assert_eq!(gray([0, 255, 0]), 150);
    assert_eq!(gray([0, 0, 255]), 29);
}

fn test_data() -> Option<std::path::PathBuf> {
    let dir = std::env::var_os("DSF_TEST_DATA");
    if dir.is_none() {
        println!("skipped: DSF_TEST_DATA is not set");
    }
    Some(Path::new(&dir?).join("cifar-10"))
}

#[test]
fn exact_records_have_their_labels_and_grays() {
    let Some(dir) = test_data() else { return };
    let mut examples = Examples::new(1);
    read_batch(&dir.join("exact/data_batch_1.first140.bin"), &mut examples).unwrap();
    assert_eq!(examples.len(), 140);
    let labels: Vec<u8> = (0..10).map(|i| examples.label(i)).collect();
    assert_eq!(labels, [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]);
    assert_eq!(examples.document(0, 0)[..6], [61, 45, 48, 57, 78, 96]);
}

#[test]
fn a_smaller_set_of_batches_is_a_whole_one() {
    let Some(dir) = test_data() else { return };
    let splits = load(&config(900, 100, 300), &dir.join("jpeg-decoded")).unwrap();
    let sizes = [&splits.train, &splits.val, &splits.test].map(Examples::len);
    assert_eq!(sizes, [900, 100, 300]);
    assert_eq!(splits.test.majority(), 0.1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_cut_or_changed_batch_is_examples_or_a_sentence_with_its_name(
        at in 0..2 * RECORD,
        value in any::<u8>(),
        keep in prop_oneof![Just(2 * RECORD), Just(RECORD), 0..2 * RECORD],
    ) {
        let dir = world();
        let mut bytes = record(3).repeat(2);
        bytes[at] = value;
        bytes.truncate(keep);
        write(&dir, TRAIN[4], &bytes);
        match load(&config(1, 0, 1), dir.path()) {
            Ok(splits) => prop_assert_eq!(splits.train.tokens(), PIXELS),
            Err(error) => prop_assert!(error.to_string().contains("data_batch_5.bin, record")),
        }
    }
}
