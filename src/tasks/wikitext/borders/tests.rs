use super::*;
use crate::tasks::testing::real;
use crate::tasks::wikitext::testing::{byte_level, file};
use proptest::prelude::*;
use serde_json::{json, Value};
use std::sync::LazyLock;
use tokenizers::normalizers::{NFC, NFD, NFKC, NFKD};
use tokenizers::{NormalizedString, Normalizer};

fn of(file: &Value) -> Borders {
    Borders::of(&Tokenizer::from_bytes(file.to_string()).unwrap())
}

fn with(key: &str, value: Value) -> Value {
    let mut file = byte_level(&[]);
    file[key] = value;
    file
}

const NORMALIZERS: [&str; 4] = ["NFC", "NFD", "NFKC", "NFKD"];

/// Tokenizers that split before blanks.
fn splitting() -> Vec<Value> {
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let several = json!({"type": "Sequence", "pretokenizers": [digits, bytes]});
    let mut files = vec![byte_level(&[]), with("pre_tokenizer", several)];
    files.extend(NORMALIZERS.map(|kind| with("normalizer", json!({ "type": kind }))));
    files.extend(["Whitespace", "WhitespaceSplit", "BertPreTokenizer"].map(|kind| {
        let mut file = file(json!({"type": "WordLevel", "vocab": {"?": 0, "a": 1, "1": 2}, "unk_token": "?"}));
        file["pre_tokenizer"] = json!({ "type": kind });
        file
    }));
    let spaces = json!({"id": 300, "content": "   ", "special": false, "normalized": true,
                        "single_word": false, "lstrip": false, "rstrip": false});
    let mark = json!({"id": 301, "content": "<|x|>", "special": true, "normalized": false,
                      "single_word": false, "lstrip": false, "rstrip": false});
    files.push(with("added_tokens", json!([spaces, mark])));
    files
}

fn added(change: impl Fn(&mut Value)) -> Value {
    let mut token = json!({"id": 300, "content": "<|x|>", "special": true, "normalized": false,
                           "single_word": false, "lstrip": false, "rstrip": false});
    change(&mut token);
    with("added_tokens", json!([token]))
}

#[test]
fn a_tokenizer_that_may_see_across_a_blank_has_no_borders() {
    for file in splitting() {
        assert_eq!(of(&file), Borders::BeforeBlanks, "{file}");
    }
    let bytes = |prefix: bool, regex: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex});
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let joined = json!({"type": "Split", "pattern": {"Regex": "[^\\s]+\\s*"}, "behavior": "Isolated", "invert": false});
    for file in [
        with("pre_tokenizer", bytes(true, true)),
        with("pre_tokenizer", bytes(false, false)),
        with("pre_tokenizer", metaspace),
        with("pre_tokenizer", Value::Null),
        with("pre_tokenizer", json!({"type": "Sequence", "pretokenizers": []})),
        with("pre_tokenizer", json!({"type": "Sequence", "pretokenizers": [bytes(false, true), digits]})),
        with("pre_tokenizer", json!({"type": "Sequence", "pretokenizers": [joined, bytes(false, true)]})),
        with("normalizer", json!({"type": "Prepend", "prepend": "▁"})),
        with("normalizer", json!({"type": "Strip", "strip_left": true, "strip_right": true})),
        added(|token| token["content"] = json!("two words")),
        added(|token| token["content"] = json!("x\n")),
        added(|token| token["rstrip"] = json!(true)),
        added(|token| token["lstrip"] = json!(true)),
        added(|token| token["single_word"] = json!(true)),
    ] {
        assert_eq!(of(&file), Borders::Nowhere, "{file}");
    }
}

#[test]
fn only_white_space_has_a_normal_form_that_ends_with_it() {
    let others = || ('\0'..=char::MAX).filter(|c| !c.is_whitespace());
    let each_before_a_blank: String = others().flat_map(|c| [c, ' ', '\n']).collect();
    let forms: [&dyn Fn(&mut NormalizedString); 4] = [
        &|text| NFC.normalize(text).unwrap(),
        &|text| NFD.normalize(text).unwrap(),
        &|text| NFKC.normalize(text).unwrap(),
        &|text| NFKD.normalize(text).unwrap(),
    ];
    for form in forms {
        let mut text = NormalizedString::from(each_before_a_blank.as_str());
        form(&mut text);
        let lines = text.get().lines();
        assert_eq!(lines.clone().count(), others().count());
        for (line, c) in lines.zip(others()) {
            let before = line.strip_suffix(' ').unwrap();
            assert!(!before.ends_with(char::is_whitespace), "{c:?}: {line:?}");
        }
    }
}

#[test]
fn borders_lie_before_a_space_or_a_line_end_after_something_else() {
    let text = "é b\t\n\n c\nd ";
    let all = |borders: Borders| {
        let mut found = vec![];
        while let Some(at) = borders.next(text, found.last().map_or(0, |at| at + 1)) {
            found.push(at);
        }
        found
    };
    assert_eq!(all(Borders::BeforeBlanks), [2, 9, 11]);
    assert_eq!(all(Borders::Anywhere), [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert!(all(Borders::Nowhere).is_empty());
}

/// Asserts that cutting `text` at any border gives the tokens of the whole.
fn assert_cuttable(file: &Tokenizer, text: &str) {
    let ids = |text: &str| file.encode_fast(text, false).unwrap().get_ids().to_vec();
    let (whole, mut from) = (ids(text), 0);
    while let Some(at) = Borders::BeforeBlanks.next(text, from) {
        let (a, b) = text.split_at(at);
        assert_eq!([ids(a), ids(b)].concat(), whole, "{a:?} and {b:?}");
        from = at + 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_text_that_is_cut_at_borders_has_the_same_tokens(
        text in "([ab1é!' \n\t\r\u{a0}\u{2028}\u{301}\u{1e9b}ﬁ¨½]|   |'s|<\\|x\\|>|<\\|){0,12}"
    ) {
        static FILES: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
            let files = splitting().into_iter();
            files.map(|file| Tokenizer::from_bytes(file.to_string()).unwrap()).collect()
        });
        FILES.iter().for_each(|file| assert_cuttable(file, &text));
    }
}

#[test]
fn gpt_neox_splits_real_text_before_blanks() {
    let (Some(dir), Some(data)) = (real("gpt-neox-20b-tokenizer"), real("wikitext-2-raw")) else {
        return;
    };
    let file = Tokenizer::from_file(dir.join("tokenizer.json")).unwrap();
    assert_eq!(Borders::of(&file), Borders::BeforeBlanks);
    let text = std::fs::read_to_string(data.join("test.txt")).unwrap();
    let some = &text[..text.char_indices().nth(3_000).unwrap().0];
    assert_cuttable(&file, some);
}
