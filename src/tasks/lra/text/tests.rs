use super::super::testing::{config, real};
use super::*;
use crate::error::testing::Fails;
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

/// Folders with `n` reviews per label and split; review i repeats one letter i + 1 times.
fn folders(n: usize) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (folder, letter, rating) in [("neg", "x", 4), ("pos", "y", 10)] {
        for split in ["train", "test"] {
            let folder = dir.path().join(format!("aclImdb/{split}/{folder}"));
            fs::create_dir_all(&folder).unwrap();
            for i in 0..n {
                fs::write(folder.join(format!("{i}_{rating}.txt")), letter.repeat(i + 1)).unwrap();
            }
        }
    }
    dir
}

fn loaded(dir: &TempDir, examples: [usize; 3]) -> Result<LraSplits> {
    load(&config(LraDataset::Text, examples), dir.path())
}

/// Letter and length of each review of [`folders`], which identify it.
fn reviews(examples: &Documents) -> Vec<(u8, usize)> {
    let one = |i| (examples.label(i), examples.document(i, 0).len() - 1);
    (0..examples.len()).map(one).collect()
}

#[test]
fn all_reviews_keep_the_order_of_their_numbers_neg_before_pos() {
    let splits = loaded(&folders(12), [24, 0, 24]).unwrap();
    let expected: Vec<(u8, usize)> = (0..2).flat_map(|l| (1..=12).map(move |n| (l, n))).collect();
    assert_eq!(reviews(&splits.train), expected);
    assert_eq!(reviews(&splits.test), expected);
    assert_eq!(splits.train.document(1, 0), [3, 3, END]);
    assert_eq!(splits.train.document(13, 0), [4, 4, END]);
}

#[test]
fn files_that_programs_leave_beside_reviews_are_passed_over() {
    let dir = folders(2);
    let folder = dir.path().join("aclImdb/train/neg");
    fs::create_dir(folder.join(".ipynb_checkpoints")).unwrap();
    for name in [".DS_Store", "._0_4.txt", "Thumbs.db", "desktop.ini", ".0_4.txt.swp", "0_4.txt~"] {
        fs::write(folder.join(name), "\0").unwrap();
    }
    assert_eq!(loaded(&dir, [4, 0, 4]).unwrap(), loaded(&folders(2), [4, 0, 4]).unwrap());
}

#[test]
fn parts_are_balanced_disjoint_and_hold_the_smaller_ones() {
    let dir = folders(12);
    let small = loaded(&dir, [8, 4, 6]).unwrap();
    let large = loaded(&dir, [16, 8, 12]).unwrap();
    for splits in [&small, &large] {
        for part in [&splits.train, &splits.val, &splits.test] {
            assert_eq!(part.majority(), 0.5);
        }
        let train = reviews(&splits.train);
        assert!(reviews(&splits.val).iter().all(|r| !train.contains(r)));
    }
    let holds = |large: &Documents, small: &Documents| {
        let large = reviews(large);
        reviews(small).iter().all(|review| large.contains(review))
    };
    assert!(holds(&large.train, &small.train));
    assert!(holds(&large.val, &small.val) && holds(&large.test, &small.test));
    assert_eq!(loaded(&dir, [8, 0, 6]).unwrap().train, small.train);
}

#[test]
fn characters_are_code_points_and_rare_ones_are_unknown() {
    let dir = folders(3);
    let train = dir.path().join("aclImdb/train");
    fs::write(train.join("neg/0_1.txt"), "\u{e9}".repeat(15) + "ab").unwrap();
    let splits = loaded(&dir, [7, 0, 6]).unwrap();
    let expected: Vec<u8> = [3].repeat(15).into_iter().chain([1, 1, END]).collect();
    let found = (0..7).any(|i| splits.train.document(i, 0) == expected);
    assert!(found, "{splits:?}");
}

#[test]
fn a_long_review_is_cut_before_its_end() {
    let dir = folders(1);
    fs::write(dir.path().join("aclImdb/train/neg/0_4.txt"), "z".repeat(5000)).unwrap();
    let splits = loaded(&dir, [2, 0, 2]).unwrap();
    assert_eq!(splits.train.document(0, 0).len(), 4096);
    assert_eq!(splits.train.document(0, 0)[4095], END);
}

#[test]
fn strange_files_are_named() {
    for (name, content, names) in [
        ("neg/1_5.txt", &b"x"[..], "1 to 4"),
        ("pos/1_4.txt", b"x", "7 to 10"),
        ("pos/1_11.txt", b"x", "11"),
        ("neg/notes", b"x", "NUMBER_RATING.txt"),
        ("neg/1_+2.txt", b"x", "NUMBER_RATING.txt"),
        ("neg/1_2.txt", b"x\xff", "UTF-8"),
    ] {
        let dir = folders(1);
        fs::write(dir.path().join("aclImdb/train").join(name), content).unwrap();
        let at = loaded(&dir, [2, 0, 2]).fails("data");
        assert!(at.path.as_ref().unwrap().ends_with(name), "{at:?}");
        at.names(&[names]);
    }
}

#[test]
fn fewer_reviews_than_asked_for_are_refused_with_the_flag() {
    let dir = folders(5);
    for (sizes, flag, remedies) in [
        ([20, 0, 10], "--train-examples", &["--train-examples 10"][..]),
        ([10, 0, 11], "--test-examples", &["--test-examples 10"]),
        ([8, 4, 10], "--train-examples", &["--train-examples 6", "--val-examples 2"]),
    ] {
        loaded(&dir, sizes).refuses(flag).names(remedies);
    }
    let nothing = load(&config(LraDataset::Text, [1, 0, 1]), &dir.path().join("aclImdb/train/neg"));
    nothing.fails("missing").is_at("aclImdb/train/neg", None).names(&["train-00000-of-00001.parquet", "aclImdb"]);
}

#[test]
fn both_forms_of_a_real_review_hold_the_same_text() {
    let Some(dir) = real("imdb") else { return };
    for (split, file) in ["train", "test"].iter().zip(PARQUET) {
        let rows = read(&dir.join("plain_text").join(file)).unwrap();
        let single = read(&dir.join("aclImdb").join(split)).unwrap();
        assert_eq!(single.len(), 16);
        assert!(single.iter().all(|review| rows.contains(review)));
    }
}

/// Code points and counts of the vocabulary of all training reviews.
fn table(dir: &Path) -> Vec<(char, u64)> {
    let text = fs::read_to_string(dir.join("char_vocab_full_train.tsv")).unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let code = u32::from_str_radix(fields[1].strip_prefix("U+").unwrap(), 16).unwrap();
        (char::from_u32(code).unwrap(), fields[3].parse().unwrap())
    };
    text.lines().skip(4).map(line).collect()
}

#[test]
fn the_whole_tables_counts_give_its_ids() {
    let Some(dir) = real("imdb") else { return };
    let table = table(&dir);
    assert_eq!(table.len() + 3, 134);
    let config = config(LraDataset::Text, [100, 60, 50]);
    let vocabulary = CountedVocabulary::new(table.iter().copied().rev(), LEAST, &config).unwrap();
    for (i, (character, _)) in table.iter().enumerate() {
        assert_eq!(usize::from(vocabulary.id(*character)), i + 3);
    }
    let first: String = table.iter().take(10).map(|(c, _)| *c).collect();
    assert_eq!(first, " etaoisnrh");
    let rows = read(&dir.join("plain_text").join(PARQUET[0])).unwrap();
    let rows: Vec<&Review> = rows.iter().collect();
    let examples = encode(&rows, &vocabulary, &config);
    let place = |c| table.iter().position(|(t, _)| *t == c).map_or(1, |i| i as u8 + 3);
    for (i, row) in rows.iter().enumerate() {
        let ids = row.text.chars().take(4095).map(place).chain([END]);
        assert!(ids.eq(examples.document(i, 0).iter().copied()));
    }
}

#[test]
fn the_real_slice_splits_evenly_and_most_of_its_characters_are_common() {
    let Some(dir) = real("imdb") else { return };
    let splits = load(&config(LraDataset::Text, [540, 60, 300]), &dir).unwrap();
    assert_eq!([&splits.train, &splits.val, &splits.test].map(Documents::len), [540, 60, 300]);
    assert_eq!([&splits.train, &splits.val].map(Documents::majority), [0.5; 2]);
    let unknown = splits.test.all().iter().filter(|id| **id == 1).count();
    assert!(unknown * 1000 < splits.test.tokens(), "{unknown}");
}

proptest! {
    #[test]
    fn damaged_reviews_give_examples_or_one_sentence(
        name in "[0-9]{0,3}[_-]?[0-9]{0,4}(\\.txt)?",
        content in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let dir = folders(1);
        let file = dir.path().join("aclImdb/train/pos").join(format!("1{name}"));
        fs::write(&file, content).unwrap();
        if let Err(error) = loaded(&dir, [2, 1, 2]) {
            prop_assert_eq!(error.diagnostic().path, Some(file));
        }
    }
}
