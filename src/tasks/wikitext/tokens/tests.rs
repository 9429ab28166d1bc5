use super::*;
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::tasks::wikitext::testing::{byte_level, file, FIRST_ADDED};
use crate::tasks::wikitext::vocabulary::adopt_into;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

const BODY: &str = " = A = \n \n some words of a page\n = B = \n";

fn config() -> WikitextConfig {
    WikitextConfig {
        corpus: Corpus::Text,
        tokenizer: Tokenizer::Bytes,
        vocab_size: 256,
        seq_len: 8,
        source_digest: None,
        eos_between_articles: false,
        train_examples: None,
        test_examples: None,
    }
}

fn world(body: &str) -> (TempDir, Folders) {
    let dir = tempfile::tempdir().unwrap();
    let place =
        Folders { data_dir: Some(dir.path().to_owned()), root: dir.path().join("root"), hub: dir.path().join("hub") };
    for name in ["train.txt", "valid.txt", "test.txt"] {
        fs::write(dir.path().join(name), body).unwrap();
    }
    (dir, place)
}

#[test]
fn the_header_of_a_token_file_describes_its_content() {
    let (_dir, place) = world(BODY);
    let config = WikitextConfig { eos_between_articles: true, ..config() };
    let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
    tokens.make(&mut |_| Ok(())).unwrap();
    let whole = fs::read(&tokens.paths()[0]).unwrap();
    let head = std::str::from_utf8(&whole[..4096]).unwrap();
    assert!(head.starts_with('{') && head.ends_with(" \n"), "{head}");
    let header = Header::parse(&whole).unwrap();
    // Each of two articles has an id before it.
    let bytes = BODY.len() as u64;
    assert_eq!((header.tokens, header.articles), (bytes + 2, 2));
    assert_eq!((header.counts.bytes, header.counts.lines), (bytes, 4));
    assert_eq!(header.counts.words, 11);
    assert_eq!(header.largest, u32::from(b'w'));
    assert_eq!(header.sources[0].name, "train.txt");
    assert_eq!(header.sources[0].sha256, sha256(BODY.as_bytes()));
    assert_eq!(header.sha256, sha256(&whole[4096..]));
    assert_eq!(tokens.load().unwrap().0[0].as_ref().unwrap().digest(), header.sha256);
}

/// Later versions must find and read the token files of earlier ones.
#[test]
fn token_files_of_two_bytes_keep_their_name_and_every_byte() {
    let (_dir, place) = world(BODY);
    let config = WikitextConfig { eos_between_articles: true, ..config() };
    let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
    tokens.make(&mut |_| Ok(())).unwrap();
    assert_eq!(tokens.folder.file_name().unwrap(), "text-bytes-eos-07b4f5cd8d1e");
    let whole = fs::read(&tokens.paths()[0]).unwrap();
    assert_eq!(sha256(&whole), "11eb11b9f15f92f274b9d5865e831f04ea38143e01413549a3fa759451a665ba");
}

#[test]
fn ids_have_four_bytes_if_the_tokenizer_has_more_than_two_bytes_number() {
    let body = "b a b\nb b a b\n";
    let (dir, mut place) = world(body);
    place.data_dir = Some(dir.path().to_owned());
    let path = dir.path().join("some.json");
    for (largest, width) in [(65_535, IdWidth::Two), (65_536, IdWidth::Four), (255_999, IdWidth::Four)] {
        let mut words = file(json!({"type": "WordLevel", "vocab": {"?": 0, "a": largest, "b": 1}, "unk_token": "?"}));
        words["pre_tokenizer"] = json!({"type": "Whitespace"});
        fs::write(&path, words.to_string()).unwrap();
        let (tokenizer, vocab_size) = adopt_into(&path, &place).unwrap();
        for corpus in [Corpus::Text, Corpus::Wikitext2] {
            let config = WikitextConfig { corpus, tokenizer: tokenizer.clone(), vocab_size, seq_len: 2, ..config() };
            let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
            tokens.make(&mut |_| Ok(())).unwrap();
            let whole = fs::read(&tokens.paths()[0]).unwrap();
            assert_eq!(whole.len(), 4096 + 7 * width.bytes());
            assert_eq!(Header::parse(&whole).unwrap().largest, largest);
            let text = tokens.load().unwrap().0[0].clone().unwrap();
            let wanted = [1, largest, 1, 1, 1, largest, 1];
            assert!(text.ids().iter().eq(wanted));
            assert_eq!(text.digest(), sha256(&whole[4096..]));
            assert_eq!((text.windows(), text.window(1).at(0), text.window(1).len()), (3, 1, 3));
            let held = TokenizedText::new(text.ids().to_held(), text.counts(), 2, None);
            assert_eq!((held.ids(), held.digest()), (text.ids(), text.digest()));
            let small = WikitextConfig { vocab_size: largest as usize, ..config.clone() };
            let tokens = Tokens::of(&small, &place, [true; 3]).unwrap();
            tokens.load().refuses("--vocab-size").names(&[&(largest + 1).to_string()]);
        }
    }
}

#[test]
fn many_files_are_named_as_one() {
    let source = |i: usize| TextSource { name: format!("train-{i:05}.parquet"), bytes: 10, sha256: "ab".repeat(32) };
    assert_eq!(merge_sources((0..4).map(source).collect()).len(), 4);
    let merged = merge_sources((0..5).map(source).collect());
    assert_eq!(merged.len(), 1);
    assert_eq!(merged[0].bytes, 50);
    assert!(merged[0].name.starts_with("5 files"), "{}", merged[0].name);
}

#[test]
fn concurrent_processes_make_token_files_once() {
    let (_dir, place) = world(&BODY.repeat(2000));
    let config = config();
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
                let mut begun = false;
                tokens
                    .make(&mut |progress| {
                        begun |= progress.split == "train" && progress.done > 0;
                        Ok(())
                    })
                    .unwrap();
                made.fetch_add(usize::from(begun), Ordering::Relaxed);
                tokens.load().unwrap();
            });
        }
    });
    assert_eq!(made.into_inner(), 1);
}

#[test]
fn the_end_is_heard_and_a_stop_leaves_nothing_half() {
    let (_dir, place) = world(BODY);
    let config = config();
    let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
    let stopped = tokens.make(&mut |progress| match progress.split {
        "val" => Err(Error::Stopped),
        _ => Ok(()),
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    let left: Vec<_> = fs::read_dir(&tokens.folder).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let mut ends = Vec::new();
    tokens
        .make(&mut |progress| {
            ends.retain(|end: &PreparationProgress| end.split != progress.split);
            ends.push(progress);
            Ok(())
        })
        .unwrap();
    let done: Vec<_> = ends.iter().map(|e| (e.split, e.done == e.total)).collect();
    assert_eq!(done, [("val", true), ("test", true)], "train was there");
}

#[test]
fn another_text_has_another_folder() {
    let (dir, place) = world(BODY);
    let config = config();
    let before = Tokens::of(&config, &place, [true; 3]).unwrap().folder;
    assert_eq!(Tokens::of(&config, &place, [true; 3]).unwrap().folder, before);
    fs::write(dir.path().join("test.txt"), "another one, and longer").unwrap();
    assert_ne!(Tokens::of(&config, &place, [true; 3]).unwrap().folder, before);
}

/// Asserts that the first token file is refused after `damage` was done to it, and returns the error.
fn refused(damage: impl Fn(&mut Vec<u8>)) -> Diagnostic {
    let (_dir, place) = world(BODY);
    let config = config();
    let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
    tokens.make(&mut |_| Ok(())).unwrap();
    let path = &tokens.paths()[0];
    let mut bytes = fs::read(path).unwrap();
    damage(&mut bytes);
    fs::write(path, bytes).unwrap();
    let at = tokens.load().fails("corrupt");
    at.is_at("train.tokens", None);
    at
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    type Damage = fn(&mut Vec<u8>);
    let change = |bytes: &mut Vec<u8>, from: &str, to: &str| {
        let text = String::from_utf8(bytes[..4096].to_vec()).unwrap();
        let text = format!("{:<4096}", text.replacen(from, to, 1).trim_end());
        bytes.splice(..4096, text.into_bytes());
    };
    let cases: [(Damage, &[&str]); 4] = [
        (|b| b.clear(), &[]),
        (|b| b.truncate(4095), &[]),
        (|b| b.truncate(b.len() - 1), &["4176"]),
        (|b| b[0] = b'x', &[]),
    ];
    for (damage, names) in cases {
        refused(damage).names(names);
    }
    refused(|b| change(b, "\"version\":3", "\"version\":9")).names(&["`dsf tokens` 9", "`dsf tokens` 3"]);
    // The number of bytes affects the bits per byte.
    for (from, to) in [("\"bytes\":40", "\"bytes\":41"), ("\"split\":\"train\"", "\"split\":\"val\"")] {
        refused(|b| change(b, from, to));
    }
    // Exchanges two ids.
    refused(|b| b.swap(4096, 4098));
}

#[test]
fn the_files_of_another_text_are_not_taken_for_ours() {
    let (_dir, place) = world(BODY);
    let config = config();
    let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
    tokens.make(&mut |_| Ok(())).unwrap();
    let [train, val, _] = tokens.paths();
    fs::copy(val, train).unwrap();
    tokens.load().fails("corrupt").is_at("train.tokens", None);
}

#[test]
fn what_killed_processes_left_is_removed_by_the_next_one_that_makes_files() {
    let (_dir, place) = world(BODY);
    let config = config();
    let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
    fs::create_dir_all(&tokens.folder).unwrap();
    fs::write(tokens.folder.join(".unfinished-abc"), "half").unwrap();
    tokens.make(&mut |_| Ok(())).unwrap();
    assert_eq!(fs::read_dir(&tokens.folder).unwrap().count(), 3);
}

#[test]
fn a_table_with_too_few_rows_is_refused() {
    let (_dir, place) = world(BODY);
    let config = WikitextConfig { vocab_size: 100, ..config() };
    let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
    tokens.make(&mut |_| Ok(())).unwrap();
    let at = tokens.load().refuses("--vocab-size");
    at.gives("100").names(&["train", "120"]);
}

#[test]
fn a_byte_order_mark_is_dropped_with_a_warning() {
    let (dir, place) = world(BODY);
    let config = config();
    fs::write(dir.path().join("valid.txt"), format!("\u{feff}{BODY}")).unwrap();
    let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
    tokens.make(&mut |_| Ok(())).unwrap();
    let ([train, val, _], warnings) = tokens.load().unwrap();
    assert_eq!(train.unwrap().ids(), val.unwrap().ids());
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("the byte-order mark at the beginning of valid.txt is left out"), "{warnings:?}");
}

#[test]
fn the_splits_that_are_wanted_are_made_and_no_others() {
    let (_dir, place) = world(BODY);
    let config = config();
    let test = Tokens::of(&config, &place, [false, false, true]).unwrap();
    test.make(&mut |_| Ok(())).unwrap();
    let made = || fs::read_dir(&test.folder).unwrap().count();
    assert_eq!(made(), 1);
    let (texts, _) = test.load().unwrap();
    assert!(matches!(texts, [None, None, Some(_)]));
    let all = Tokens::of(&config, &place, [true; 3]).unwrap();
    all.make(&mut |_| Ok(())).unwrap();
    assert_eq!(made(), 3, "in the same folder");
}

#[test]
fn an_id_between_articles_needs_a_tokenizer_that_has_one() {
    let (dir, mut place) = world(BODY);
    place.data_dir = Some(dir.path().to_owned());
    let path = dir.path().join("some.json");
    for (special, ids) in [(&["<|endoftext|>"][..], Some(vec![FIRST_ADDED])), (&[], None)] {
        fs::write(&path, byte_level(special).to_string()).unwrap();
        let (tokenizer, vocab_size) = adopt_into(&path, &place).unwrap();
        let config = WikitextConfig { tokenizer, vocab_size, eos_between_articles: true, ..config() };
        let tokens = Tokens::of(&config, &place, [true; 3]).unwrap();
        let made = tokens.make(&mut |_| Ok(()));
        match ids {
            Some(ids) => {
                made.unwrap();
                let text = tokens.load().unwrap().0[0].clone().unwrap();
                let found: Vec<u32> = text.ids().iter().collect();
                assert_eq!(found[..1], ids);
                assert_eq!(found.iter().filter(|id| **id == FIRST_ADDED).count(), 2);
                assert!(!found.contains(&0), "id 0 is `!`");
            }
            None => {
                let at = made.refuses("--eos-between-articles");
                at.names(&["`eos_token`", "tokenizer_config.json"]);
            }
        }
    }
}
