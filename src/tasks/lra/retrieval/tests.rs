use super::super::stand_in::write_stand_in;
use super::super::testing::config;
use super::super::vocab::END;
use super::*;
use crate::error::testing::Fails;
use crate::error::Position;
use crate::tasks::lra::Documents;
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

/// Folder whose three files begin with the same lines.
fn folder(lines: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in PAIRS {
        fs::write(dir.path().join(name), lines).unwrap();
    }
    dir
}

fn loaded(lines: &[u8], examples: [usize; 3]) -> Result<LraSplits> {
    let dir = folder(lines);
    load(&config(LraDataset::Retrieval, examples), dir.path())
}

#[test]
fn texts_stay_as_printed_and_ids_go_by_count() {
    let lines = b"1.0\tP1\tP2\tb'aab'\tb'a'\r\n0.0\tP1\tP3\tb'\"'\tb''\n";
    let splits = loaded(lines, [2, 1, 2]).unwrap();
    assert_eq!(splits.val.len(), 1);
    assert_eq!((splits.test.label(0), splits.test.label(1)), (1, 0));
    // Counts are: quotes eight, b five, a three, the double quote one.
    assert_eq!(splits.train.document(0, 0), [4, 3, 5, 5, 4, 3, END]);
    assert_eq!(splits.train.document(1, 0), [4, 3, 6, 3, END]);
    assert_eq!(splits.train, splits.test);
}

#[test]
fn a_byte_order_mark_before_the_first_line_is_read_over() {
    let lines = b"1.0\tP1\tP2\tb'aab'\tb'a'\r\n0.0\tP1\tP3\tb'x'\tb''\n";
    let marked = [b"\xef\xbb\xbf", &lines[..]].concat();
    assert_eq!(loaded(&marked, [2, 1, 2]).unwrap(), loaded(lines, [2, 1, 2]).unwrap());
}

#[test]
fn long_texts_are_cut_before_the_end() {
    let line = format!("1.0\tA\tB\tb'{}'\tb''\n", "x".repeat(9000));
    let splits = loaded(line.as_bytes(), [1, 0, 1]).unwrap();
    assert_eq!(splits.train.document(0, 0).len(), 4096);
    assert_eq!(splits.train.document(0, 0)[4095], END);
}

#[test]
fn broken_lines_are_refused_by_file_and_line() {
    let good = "1.0\tA\tB\tb'x'\tb'y'\n";
    for (line, names) in [
        (&b"1.0\tA\tB\tb'x'\n"[..], &[][..]),
        (b"1.0\tA\tB\tb'x'\tb'y'\tz\n", &[]),
        (b"0.5\tA\tB\tb'x'\tb'y'\n", &["0.0", "1.0", "`0.5`"]),
        (b"NaN\tA\tB\tb'x'\tb'y'\n", &["`NaN`"]),
        (b"1.0\tA\tB\tb'x'\tb'\xff'\n", &["ASCII"]),
        (b"1.0\tA\tB\tb'x'\tb'it is c", &[]),
    ] {
        let lines = [good.as_bytes(), line].concat();
        let at = loaded(&lines, [2, 0, 2]).fails("data");
        at.is_at("new_aan_pairs.train.tsv", Position::Line(2)).names(names);
    }
}

#[test]
fn fewer_pairs_than_asked_for_are_refused_with_the_flag() {
    let good = b"1.0\tA\tB\tb'x'\tb'y'\n";
    for (sizes, flag, part) in [
        ([2, 0, 1], "--train-examples", "train"),
        ([1, 3, 1], "--val-examples", "eval"),
        ([1, 1, 3], "--test-examples", "test"),
    ] {
        let at = loaded(good, sizes).refuses(flag);
        at.is_at(format!("new_aan_pairs.{part}.tsv"), None).names(&[&format!("{flag} 1")]);
    }
    let empty = loaded(b"", [1, 0, 1]).fails("data");
    empty.is_at("new_aan_pairs.train.tsv", None);
}

/// Articles that each consist of a letter of their own.
fn encyclopaedia(dir: &TempDir, articles: u8) -> std::path::PathBuf {
    let path = dir.path().join("train.txt");
    let article = |i: u8| {
        let letters = char::from(b'a' + i).to_string().repeat(300);
        format!(" \n = Title {i} = \n\n {letters}\n = = Part = = \n {letters} \u{e9} it's\n")
    };
    let text: String = (0..articles).map(article).collect();
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_stand_in_is_balanced_seeded_and_split_by_articles() {
    let dir = tempfile::tempdir().unwrap();
    let text = encyclopaedia(&dir, 12);
    let written = |name: &str, seed| {
        let out = dir.path().join(name);
        write_stand_in(&text, &out, [40, 10, 10], seed).unwrap();
        PAIRS.map(|file| fs::read_to_string(out.join(file)).unwrap())
    };
    let files = written("one", 7);
    assert_eq!(files, written("two", 7));
    assert_ne!(files, written("three", 8));
    let mut seen = std::collections::HashMap::new();
    for (split, file) in files.iter().enumerate() {
        let mut same = 0;
        for line in file.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(fields[0] == "1.0", fields[1] == fields[2]);
            same += usize::from(fields[0] == "1.0");
            for id in &fields[1..3] {
                assert_eq!(*seen.entry(id.to_string()).or_insert(split), split);
            }
        }
        assert_eq!(2 * same, file.lines().count());
    }
    let config = config(LraDataset::Retrieval, [40, 10, 10]);
    let splits = load(&config, &dir.path().join("one")).unwrap();
    assert_eq!([&splits.train, &splits.val, &splits.test].map(Documents::len), [40, 10, 10]);
    assert_eq!(splits.train.majority(), 0.5);
}

#[test]
fn a_text_without_articles_makes_no_stand_in() {
    let dir = tempfile::tempdir().unwrap();
    let text = encyclopaedia(&dir, 3);
    let made = write_stand_in(&text, dir.path(), [4, 4, 4], 0);
    made.fails("refused").is_at("train.txt", None).names(&["3"]);
}

#[test]
fn real_articles_make_pairs_that_load() {
    let Some(dir) = super::super::testing::real("wikitext-2/train.txt") else {
        return;
    };
    if !dir.exists() {
        return eprintln!("skipped: DSF_TEST_DATA has no wikitext-2");
    }
    let out = tempfile::tempdir().unwrap();
    write_stand_in(&dir, out.path(), [60, 20, 20], 1).unwrap();
    let config = config(LraDataset::Retrieval, [60, 20, 20]);
    let splits = load(&config, out.path()).unwrap();
    let longest = (0..60).map(|i| splits.train.longest(i)).max().unwrap();
    assert!((3900..=4096).contains(&longest), "{longest}");
}

proptest! {
    #[test]
    fn damaged_files_give_pairs_or_one_sentence(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut lines = b"1.0\tA\tB\tb'some text'\tb\"it's\"\n0.0\tA\tC\tb'x'\tb'yy'\n".to_vec();
        for (at, byte) in changes {
            let at = at.index(lines.len());
            lines[at] = byte;
        }
        lines.truncate(cut.index(lines.len()) + 1);
        lines.extend(noise);
        if let Err(error) = loaded(&lines, [2, 1, 1]) {
            let at = error.diagnostic();
            let in_file = at.path.as_ref().is_some_and(|path| path.to_string_lossy().contains("new_aan_pairs."));
            prop_assert!(in_file || at.flag.as_deref() == Some("--vocab-size"), "{:?}", at);
        }
    }
}
