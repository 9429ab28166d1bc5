use super::super::testing::{config, real};
use super::super::vocab;
use super::*;
use crate::error::testing::Fails;
use crate::error::Position;
use crate::tasks::Documents;
use proptest::prelude::*;
use std::fs;

const ROW: &str = "( ( ( ( [MED 3 ) 7 ) ( ( ( [MIN 4 ) 9 ) ] ) ) ] )\t4\r\n";

fn loaded(content: &[u8], examples: [usize; 3]) -> Result<LraSplits> {
    let dir = tempfile::tempdir().unwrap();
    for name in LISTOPS {
        fs::write(dir.path().join(name), content).unwrap();
    }
    load(&config(LraDataset::Listops, examples), dir.path())
}

fn with_header(rows: &str) -> Vec<u8> {
    format!("{HEADER}\r\n{rows}").into_bytes()
}

#[test]
fn a_row_is_its_symbols_without_parentheses() {
    let splits = loaded(&with_header(ROW), [1, 0, 1]).unwrap();
    // The bracket occurs twice; 3, 4, 7, 9, [MED and [MIN once each, in this order.
    assert_eq!(splits.train.document(0, 0), [8, 4, 6, 9, 5, 7, 3, 3, vocab::END]);
    assert_eq!((splits.train.label(0), splits.val.len()), (4, 0));
}

#[test]
fn a_header_may_follow_a_byte_order_mark_and_utf16_is_named() {
    let plain = with_header(ROW);
    let marked = [b"\xef\xbb\xbf", &plain[..]].concat();
    assert_eq!(loaded(&marked, [1, 1, 1]).unwrap(), loaded(&plain, [1, 1, 1]).unwrap());
    let text = String::from_utf8(marked).unwrap();
    let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let at = loaded(&wide, [1, 1, 1]).fails("data");
    at.is_at("basic_train.tsv", None).names(&["UTF-16", "UTF-8"]);
}

#[test]
fn the_last_line_may_lack_its_end() {
    let whole = with_header(ROW);
    let splits = loaded(&whole[..whole.len() - 2], [1, 1, 1]).unwrap();
    assert_eq!(splits.val, splits.train);
}

#[test]
fn a_long_expression_is_cut_before_the_end() {
    let row = format!("[SM {}]\t0\n", "1 ".repeat(3000));
    let splits = loaded(&with_header(&row), [1, 0, 1]).unwrap();
    let document = splits.train.document(0, 0);
    assert_eq!((document.len(), document[2047]), (2048, vocab::END));
}

#[test]
fn broken_rows_are_refused_by_file_and_line() {
    for (row, names) in [
        (&b"[MIN 1 2 ] 1\n"[..], &[][..]),
        (b"[MIN 1 2 ]\t12\n", &[]),
        (b"\n", &[]),
        (b"[MEAN 1 2 ]\t1\n", &["`[MEAN`"]),
        (b"[MIN 1 \xff\xfe ]\t1\n", &[]),
        (b"[MIN 12 ]\t1\n", &["`12`"]),
        (b"[MIN 1 2\t1\n", &["`]`", "1"]),
        (b"[MIN 1 ] ]\t1\n", &[]),
        (b"]\t1\n", &["`]`"]),
        (b"\t1\n", &[]),
        (b"( ( [MIN 1 ) 2 ", &[]),
    ] {
        let content = [&with_header(ROW), row].concat();
        let at = loaded(&content, [2, 0, 1]).fails("data");
        at.is_at("basic_train.tsv", Position::Line(3)).names(names);
    }
}

#[test]
fn a_wrong_header_is_shown_beside_the_right_one() {
    let at = loaded(ROW.as_bytes(), [1, 0, 1]).fails("data");
    at.is_at("basic_train.tsv", Position::Line(1)).names(&["`Source\\tTarget`", "`( ("]);
}

#[test]
fn fewer_rows_than_asked_for_are_refused_with_the_flag() {
    let content = with_header(ROW);
    for (sizes, flag, file) in [
        ([9, 1, 1], "--train-examples", "basic_train.tsv"),
        ([1, 9, 1], "--val-examples", "basic_val.tsv"),
        ([1, 1, 9], "--test-examples", "basic_test.tsv"),
    ] {
        let at = loaded(&content, sizes).refuses(flag);
        at.is_at(file, None).names(&[&format!("{flag} 1")]);
    }
}

/// Value of an expression in prefix form, from the definition.
fn value(words: &mut impl Iterator<Item = String>) -> i64 {
    let word = words.next().unwrap();
    if let Ok(digit) = word.parse() {
        return digit;
    }
    let mut arguments = Vec::new();
    let mut rest = words.by_ref().peekable();
    while rest.peek().unwrap() != "]" {
        // The word that was peeked at must be passed on to the recursion.
        let next = rest.next().unwrap();
        let depth = i32::from(next.starts_with('['));
        let (mut inner, mut open) = (vec![next], depth);
        while open > 0 {
            let word = rest.next().unwrap();
            open += i32::from(word.starts_with('[')) - i32::from(word == "]");
            inner.push(word);
        }
        arguments.push(value(&mut inner.into_iter()));
    }
    arguments.sort_unstable();
    let n = arguments.len();
    match word.as_str() {
        "[MIN" => arguments[0],
        "[MAX" => arguments[n - 1],
        "[SM" => arguments.iter().sum::<i64>() % 10,
        "[MED" => (arguments[(n - 1) / 2] + arguments[n / 2]) / 2,
        _ => panic!("{word}"),
    }
}

#[test]
fn real_rows_parse_and_their_targets_are_their_values() {
    let Some(dir) = real("listops-generated") else {
        return;
    };
    let splits = load(&config(LraDataset::Listops, [240, 40, 40]), &dir).unwrap();
    for (name, split) in LISTOPS.iter().zip([&splits.train, &splits.val, &splits.test]) {
        let text = fs::read_to_string(dir.join("listops-1000").join(name)).unwrap();
        for (i, line) in text.lines().skip(1).enumerate() {
            let (source, target) = line.split_once('\t').unwrap();
            let source = source.replace(['(', ')'], "");
            let words: Vec<String> = source.split_whitespace().map(str::to_owned).collect();
            assert_eq!(split.document(i, 0).len(), words.len() + 1);
            let value = value(&mut words.into_iter());
            assert_eq!(value.to_string(), target, "{name} {i}");
            assert_eq!(i64::from(split.label(i)), value);
        }
    }
    check_shares(&splits.train);
}

/// Token shares of the generator: the bracket 14.2 %, a digit 7.15 %, an operator 3.55 %.
fn check_shares(train: &Documents) {
    let mut counts = [0_usize; 256];
    train.all().iter().for_each(|id| counts[usize::from(*id)] += 1);
    let tokens = (train.tokens() - train.len()) as f64;
    let share = |id: usize| counts[id] as f64 / tokens;
    assert!((share(3) - 0.142).abs() < 0.002, "{}", share(3));
    assert!((4..14).all(|id| (share(id) - 0.0715).abs() < 0.003), "{counts:?}");
    assert!((14..18).all(|id| (share(id) - 0.0355).abs() < 0.003), "{counts:?}");
    assert!(counts[18..].iter().all(|n| *n == 0) && counts[..2] == [0, 0]);
}

proptest! {
    #[test]
    fn damaged_files_give_rows_or_one_sentence(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut content = with_header(&ROW.repeat(2));
        for (at, byte) in changes {
            let at = at.index(content.len());
            content[at] = byte;
        }
        content.truncate(cut.index(content.len()) + 1);
        content.extend(noise);
        if let Err(error) = loaded(&content, [2, 1, 1]) {
            let at = error.diagnostic();
            prop_assert!(at.path.as_ref().is_some_and(|path| path.ends_with("basic_train.tsv")), "{:?}", at);
        }
    }
}
