use super::*;
use crate::error::testing::Fails;
use crate::error::{Diagnostic, Position};
use crate::tasks::testing::real;
use crate::tasks::wikitext::testing::{byte_level, file, prepending};
use crate::tasks::wikitext::vocabulary::tests::vocabulary;
use crate::tasks::wikitext::vocabulary::Vocabulary;
use proptest::prelude::*;
use serde_json::{json, Value};
use std::fs;
use std::sync::LazyLock;
use tempfile::TempDir;

/// Byte-order mark that Windows writes before a text in UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Sizes so small that short texts have many blocks, pieces and lines too long for a heading.
const SMALL: BufferSizes = BufferSizes { block: 16, piece: 3, heading: 40, most: 1 << 20 };

fn written(content: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train.txt");
    fs::write(&path, content).unwrap();
    (dir, path)
}

fn with(vocabulary: Vocabulary, separated: bool) -> Encoder {
    Encoder { eos: vocabulary.eos.filter(|_| separated), vocabulary }
}

/// One tokenizer whose text may be cut, and one whose text may not.
fn both(separated: bool) -> [Encoder; 2] {
    let files = [byte_level(&["<|endoftext|>"]), prepending()];
    files.map(|file| with(vocabulary(&file), separated))
}

fn encoded(content: &[u8], encoder: &Encoder, sizes: BufferSizes) -> Result<(Vec<u32>, TextCounts)> {
    let (_dir, path) = written(content);
    let length = content.len() as u64;
    let (mut all, mut last) = (Vec::new(), 0);
    let whole = encode_by(&[path], encoder, sizes, |ids, done| {
        assert!((last..=length).contains(&done));
        last = done;
        all.extend(ids);
        Ok(())
    })?;
    Ok((all, whole))
}

fn assert_counted(whole: &TextCounts, text: &str) {
    let counts = TextSize {
        bytes: text.len() as u64,
        words: text.split_whitespace().count() as u64,
        lines: text.split_inclusive('\n').count() as u64,
        lines_are_words: false,
    };
    assert_eq!(whole.counts, counts, "{text:?}");
}

/// Texts of blank lines, all kinds of white space and line ends, headings, and characters of one to four bytes.
const TEXTS: &str = "([ab '!é\u{2029}\u{85}𝔘]|\n|\r\n|\n\n|   |a{20}| = Moss = \n|\n = = Deeper = = \n){0,30}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bytes_are_those_of_the_file_without_a_byte_order_mark(marked: bool, text in "[^\0]*", odd in TEXTS) {
        let text = [odd, text].concat();
        let text = text.trim_start_matches(BYTE_ORDER_MARK);
        let mark = if marked { BYTE_ORDER_MARK } else { "" };
        let encoder = with(Vocabulary::bytes(), false);
        let content = [mark, text].concat();
        for sizes in [SMALL, SIZES] {
            let (ids, whole) = encoded(content.as_bytes(), &encoder, sizes).unwrap();
            prop_assert_eq!(encoder.vocabulary.decode(&ids), text);
            prop_assert_eq!(whole.byte_order_mark, marked);
            assert_counted(&whole, text);
        }
    }

    #[test]
    fn pieces_have_the_tokens_of_the_whole(text in TEXTS) {
        static ENCODERS: LazyLock<[Encoder; 2]> = LazyLock::new(|| both(false));
        for encoder in &*ENCODERS {
            let (ids, whole) = encoded(text.as_bytes(), encoder, SMALL).unwrap();
            prop_assert_eq!(&ids, &encoder.vocabulary.encode(&text).unwrap());
            assert_counted(&whole, &text);
        }
    }

    #[test]
    fn each_article_begins_with_the_end_of_text_and_is_encoded_by_itself(text in TEXTS) {
        let starts = || {
            let lines = text.split_inclusive('\n').scan(0, |at, line| {
                *at += line.len();
                Some((*at - line.len(), line))
            });
            lines.filter(|(_, line)| begins_article(line)).map(|(at, _)| at)
        };
        let ends = starts().skip(1).chain([text.len()]);
        let articles: Vec<&str> = starts().zip(ends).map(|(from, to)| &text[from..to]).collect();
        let before = &text[..starts().next().unwrap_or(text.len())];
        static ENCODERS: LazyLock<[Encoder; 2]> = LazyLock::new(|| both(true));
        for encoder in &*ENCODERS {
            let ids = |text: &str| encoder.vocabulary.encode(text).unwrap();
            let mut wanted = ids(before);
            for article in &articles {
                wanted.extend([encoder.eos.unwrap()].into_iter().chain(ids(article)));
            }
            let (found, whole) = encoded(text.as_bytes(), encoder, SMALL).unwrap();
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(whole.articles, articles.len() as u64);
            assert_counted(&whole, &text);
        }
    }
}

#[test]
fn blank_lines_carriage_returns_and_the_missing_last_line_end_stay() {
    let encoder = with(Vocabulary::bytes(), false);
    for (text, words, lines) in [
        ("First.\n\nSecond.\n   \nlast", 3, 5),
        ("a\r\nb \r\n\u{2029}\r\n", 2, 3),
        ("The quick brown fox jumps over!", 6, 1),
        ("", 0, 0),
    ] {
        let (ids, whole) = encoded(text.as_bytes(), &encoder, SIZES).unwrap();
        assert_eq!(encoder.vocabulary.decode(&ids), text);
        let TextSize { bytes, lines: found, .. } = whole.counts;
        assert_eq!((bytes, found), (text.len() as u64, lines));
        assert_eq!(whole.counts.ppl_words(), words, "{text:?}");
    }
}

#[test]
fn a_byte_order_mark_hides_no_heading() {
    let encoder = with(Vocabulary::bytes(), true);
    let (ids, whole) = encoded("\u{feff} = Moss = \n".as_bytes(), &encoder, SIZES).unwrap();
    assert_eq!(ids[..2], [0, u32::from(b' ')]);
    assert_eq!((whole.articles, whole.byte_order_mark), (1, true));
}

#[test]
fn a_prefix_is_seen_once_and_not_in_every_line() {
    let encoder = with(vocabulary(&prepending()), false);
    let text = "a b\nc a\n";
    let (ids, _) = encoded(text.as_bytes(), &encoder, SMALL).unwrap();
    assert_eq!(ids, [9, 3, 6, 4, 7, 9, 4]);
    assert_eq!(encoder.vocabulary.decode(&ids), text);
}

#[test]
fn a_heading_that_is_cut_is_none_and_its_beginning_neither() {
    let long = format!(" = {} = \n", "x".repeat(SMALL.heading));
    let begun = format!("{:>1$}", " = a = b\n", SMALL.heading + 8);
    for text in [long, begun] {
        let encoder = with(Vocabulary::bytes(), true);
        let (ids, whole) = encoded(text.as_bytes(), &encoder, SMALL).unwrap();
        assert_eq!(encoder.vocabulary.decode(&ids), text);
        assert_eq!(whole.articles, 0, "{text:?}");
    }
}

/// Asserts that a text is refused for its line 51, however much of it is seen at once, and gives the error.
fn refused(content: &[u8], encoder: &Encoder) -> Diagnostic {
    let [small, usual] = [SMALL, SIZES].map(|sizes| encoded(content, encoder, sizes).fails("data"));
    assert_eq!(small.reason, usual.reason);
    for at in [&small, &usual] {
        at.is_at("train.txt", Position::Line(51));
    }
    small
}

#[test]
fn text_that_cannot_be_encoded_is_refused_with_its_line() {
    let bytes = with(Vocabulary::bytes(), false);
    let text = "x\n".repeat(50);
    refused(format!("{text}b\0c\nd\n").as_bytes(), &bytes);
    for broken in [&b"a\xffb\n"[..], b"a\xc3"] {
        refused(&[text.as_bytes(), broken].concat(), &bytes).names(&["UTF-8", "101"]);
    }
    let mut words = file(json!({"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "?"}));
    words["pre_tokenizer"] = json!({"type": "Whitespace"});
    let words = with(vocabulary(&words), false);
    refused(format!("{text}y\n").as_bytes(), &words);
}

#[test]
fn a_text_too_long_to_be_seen_whole_is_refused() {
    let sizes = BufferSizes { most: 1 << 20, ..SMALL };
    let text = "a b\n".repeat(1 << 19);
    let large = BufferSizes { block: 1 << 18, ..sizes };
    for separated in [false, true] {
        let encoder = with(vocabulary(&prepending()), separated);
        let at = encoded(text.as_bytes(), &encoder, large).fails("data");
        at.is_at("train.txt", None).names(&["1 MiB"]);
    }
    let encoder = with(vocabulary(&byte_level(&[])), false);
    assert!(encoded(text.as_bytes(), &encoder, large).is_ok());
}

fn neox() -> Option<Vocabulary> {
    let dir = real("gpt-neox-20b-tokenizer")?;
    let content = fs::read(dir.join("tokenizer.json")).unwrap();
    let file: Value = serde_json::from_slice(&content).unwrap();
    Some(vocabulary(&file))
}

#[test]
fn gpt_neox_gives_real_text_back_and_the_same_tokens_in_pieces() {
    let (Some(vocabulary), Some(data)) = (neox(), real("wikitext-2-raw")) else {
        return;
    };
    let encoder = with(vocabulary, false);
    let text = fs::read_to_string(data.join("test.txt")).unwrap();
    let wanted = encoder.vocabulary.encode(&text).unwrap();
    let sizes = BufferSizes { block: 10_000, piece: 100, ..SIZES };
    for sizes in [sizes, SIZES] {
        let (ids, whole) = encoded(text.as_bytes(), &encoder, sizes).unwrap();
        assert!(ids == wanted, "{} tokens, not {}", ids.len(), wanted.len());
        assert_counted(&whole, &text);
    }
    assert!(encoder.vocabulary.decode(&wanted) == text);
}

#[test]
fn a_text_in_utf_16_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train.txt");
    fs::write(&path, b"\xff\xfeh\0i\0").unwrap();
    let encoder = with(Vocabulary::bytes(), false);
    let refused = encode(&[path], &encoder, |_, _| Ok(()));
    refused.fails("data").is_at("train.txt", None).names(&["UTF-16"]);
}
