use super::*;
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use tempfile::TempDir;

fn with(files: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    dir
}

fn names(corpus: Corpus, files: &[&str]) -> [Vec<String>; 3] {
    let dir = with(files);
    let found = find(corpus, dir.path(), [true; 3]).unwrap();
    found.map(|paths| {
        let below = |p: &PathBuf| p.strip_prefix(dir.path()).unwrap().display().to_string();
        paths.iter().map(below).collect()
    })
}

#[test]
fn every_published_layout_is_found() {
    let raw = Corpus::Wikitext2Raw;
    for folder in ["", "wikitext-2-raw-v1/", "wikitext-2-raw/", "wikitext-2-raw/wikitext-2-raw-v1/"] {
        for files in [
            ["train.txt", "valid.txt", "test.txt"],
            ["train.txt", "validation.txt", "test.txt"],
            ["wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"],
        ] {
            let files = files.map(|name| format!("{folder}{name}"));
            let found = names(raw, &files.each_ref().map(String::as_str));
            assert_eq!(found, files.map(|name| vec![name]));
        }
    }
}

#[test]
fn shards_come_in_order() {
    let found = names(
        Corpus::Wikitext103Raw,
        &[
            "train-00001-of-00002.parquet",
            "train-00000-of-00002.parquet",
            "validation-00000-of-00001.parquet",
            "test-00000-of-00001.parquet",
        ],
    );
    let train = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"];
    assert_eq!(found[0], train);
}

/// Asserts that the folder of these `files` lacks one, and gives the error.
fn lacks(corpus: Corpus, files: &[&str]) -> Diagnostic {
    let dir = with(files);
    let at = find(corpus, dir.path(), [true; 3]).fails("missing");
    at.is_at(dir.path(), None);
    at
}

#[test]
fn missing_files_are_named_with_the_command_that_fetches_them() {
    lacks(Corpus::Wikitext2, &[]).names(&[
        "train.txt",
        "wikitext-2-v1",
        "`dsf data fetch wikitext --corpus wikitext-2`",
        "--data-dir DIR",
    ]);
    lacks(Corpus::Wikitext2, &["valid.txt", "test.txt"]).names(&["train.txt"]);
    let own = lacks(Corpus::Text, &["train.txt", "test.txt"]);
    assert!(!own.names(&["valid.txt"]).reason.contains("fetch"), "{own:?}");
    let shards = ["train-00000-of-00002.parquet", "valid.txt", "test.txt"];
    lacks(Corpus::Wikitext103, &shards).names(&["train-00001-of-00002.parquet"]);
}

#[test]
fn a_corpus_with_rare_words_is_not_read_as_the_one_without() {
    let tokens = ["wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"];
    assert_eq!(names(Corpus::Wikitext2, &tokens)[0], ["wiki.train.tokens"]);
    lacks(Corpus::Wikitext2Raw, &tokens).names(&["train.txt"]);
    assert_eq!(names(Corpus::Text, &tokens)[0], ["wiki.train.tokens"]);
}

#[test]
fn a_split_that_is_not_wanted_need_not_be_there() {
    let dir = with(&["test.txt"]);
    let found = find(Corpus::Text, dir.path(), [false, false, true]).unwrap();
    assert_eq!(found, [vec![], vec![], vec![dir.path().join("test.txt")]]);
    let found = find(Corpus::Text, dir.path(), [false, true, true]);
    found.fails("missing").is_at(dir.path(), None).names(&["valid.txt"]);
}
