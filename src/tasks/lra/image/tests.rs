use super::super::testing;
use super::*;
use crate::error::testing::Fails;
use crate::error::{Diagnostic, Position};
use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use picture::encode;
use proptest::prelude::*;
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;

fn config(train: usize, val: usize, test: usize) -> LraConfig {
    testing::config(LraDataset::Image, [train, val, test])
}

/// Record of one gray value whose label is the value's last digit.
fn record(value: u8) -> Vec<u8> {
    let mut bytes = vec![value; RECORD];
    bytes[0] = value % 10;
    bytes
}

fn write(dir: &TempDir, name: &str, bytes: &[u8]) {
    let folder = dir.path().join("cifar-10-batches-bin");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), bytes).unwrap();
}

/// Ten training records with values 0 to 9, two in each batch, and three test records from 100 on.
fn world() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (batch, name) in BATCHES[..5].iter().enumerate() {
        let first = 2 * batch as u8;
        write(&dir, name, &[record(first), record(first + 1)].concat());
    }
    write(&dir, BATCHES[5], &[record(100), record(101), record(102)].concat());
    dir
}

/// Gray value of every picture of a split, checked against its label and size.
fn values(examples: &Documents) -> Vec<u8> {
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
        (config(10, 1, 3), "--train-examples", "9"),
        (config(9, 2, 3), "--val-examples", "1"),
        (config(9, 1, 4), "--test-examples", "3"),
    ];
    for (config, flag, found) in sizes {
        let at = load(&config, dir.path()).refuses(flag);
        at.names(&[&format!("{flag} {found}")]);
    }
}

fn refusal(dir: &TempDir) -> Diagnostic {
    load(&config(1, 0, 1), dir.path()).fails("data")
}

#[test]
fn a_cut_record_is_named() {
    for (bytes, record, found) in [(vec![1; 2 * RECORD + 5], 2, "5"), (vec![], 0, "0")] {
        let dir = world();
        write(&dir, BATCHES[3], &bytes);
        refusal(&dir).is_at("data_batch_4.bin", Position::Record(record)).names(&["3073", found]);
    }
}

#[test]
fn a_label_without_a_class_is_named() {
    let dir = world();
    let mut bytes = record(3).repeat(3);
    bytes[2 * RECORD] = 10;
    write(&dir, BATCHES[5], &bytes);
    refusal(&dir).is_at("test_batch.bin", Position::Record(2)).names(&["0 to 9", "10"]);
}

#[test]
fn a_missing_batch_is_named() {
    let dir = world();
    let batch = dir.path().join("cifar-10-batches-bin").join(BATCHES[2]);
    fs::remove_file(batch).unwrap();
    let at = load(&config(1, 0, 1), dir.path()).fails("missing");
    at.is_at("cifar-10-batches-bin", None).names(&["data_batch_3.bin"]);
}

/// Parquet edition of Hugging Face, with the training rows `train` and one gray test picture.
fn parquet_world(train: &[(Vec<u8>, i64)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("plain_text");
    fs::create_dir_all(&folder).unwrap();
    let one = encode(32, ColorType::Rgb, |_| 100);
    fs::write(folder.join(PARQUET[0]), parquet_of(train)).unwrap();
    fs::write(folder.join(PARQUET[1]), parquet_of(&[(one, 0)])).unwrap();
    dir
}

fn parquet_of(rows: &[(Vec<u8>, i64)]) -> Vec<u8> {
    let schema = "message m { optional group img { optional binary bytes; } optional int64 label; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let pictures: Vec<ByteArray> = rows.iter().map(|(png, _)| png.clone().into()).collect();
    let labels: Vec<i64> = rows.iter().map(|(_, label)| *label).collect();
    let mut column = group.next_column().unwrap().unwrap();
    let levels = vec![2; rows.len()];
    column.typed::<ByteArrayType>().write_batch(&pictures, Some(&levels), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let levels = vec![1; rows.len()];
    column.typed::<Int64Type>().write_batch(&labels, Some(&levels), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn parquet_files_are_read_where_there_are_no_batches() {
    let row = |value: u8| (encode(32, ColorType::Rgb, |_| value), i64::from(value % 10));
    let dir = parquet_world(&(0..10).map(row).collect::<Vec<_>>());
    let splits = load(&config(9, 1, 1), dir.path()).unwrap();
    assert_eq!(values(&splits.train), [2, 6, 1, 8, 4, 5, 0, 9, 3]);
    assert_eq!(values(&splits.val), [7]);
    assert_eq!(values(&splits.test), [100]);
}

#[test]
fn the_channels_of_a_parquet_picture_stand_pixel_by_pixel() {
    let red = |i: usize| if i.is_multiple_of(3) { 255 } else { 0 };
    let dir = parquet_world(&[(encode(32, ColorType::Rgb, red), 0)]);
    let splits = load(&config(1, 0, 1), dir.path()).unwrap();
    assert_eq!(splits.train.document(0, 0), [76; PIXELS]);
}

#[test]
fn a_wrong_row_of_a_parquet_file_is_named() {
    let good = (encode(32, ColorType::Rgb, |_| 3), 3);
    let wrong = [
        ((b"GIF89a".to_vec(), 3), &["PNG"][..]),
        ((encode(32, ColorType::Grayscale, |_| 3), 3), &["32 x 32", "Grayscale"]),
        ((good.0.clone(), -1), &["0 to 9", "-1"]),
    ];
    for (row, names) in wrong {
        refusal(&parquet_world(&[good.clone(), row])).is_at(PARQUET[0], Position::Record(1)).names(names);
    }
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
    let mut examples = Documents::new(1);
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
    let sizes = [&splits.train, &splits.val, &splits.test].map(Documents::len);
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
        write(&dir, BATCHES[4], &bytes);
        match load(&config(1, 0, 1), dir.path()) {
            Ok(splits) => prop_assert_eq!(splits.train.tokens(), PIXELS),
            Err(error) => {
                let at = error.diagnostic();
                prop_assert!(matches!(at.position, Some(Position::Record(_))), "{:?}", at);
                prop_assert!(at.path.unwrap().ends_with("data_batch_5.bin"));
            }
        }
    }
}
