use super::*;
use crate::error::testing::Fails;
use crate::tasks::testing::real;
use crate::tasks::wikitext::testing::byte_level;
use crate::tasks::wikitext::Corpus;
use proptest::prelude::*;
use serde_json::json;
use std::sync::LazyLock;
use tempfile::TempDir;

fn neox() -> Option<FoundTokenizer> {
    let dir = real("gpt-neox-20b-tokenizer")?;
    Some(FoundTokenizer::read(&dir.join("tokenizer.json")).unwrap())
}

fn place(dir: &TempDir) -> Folders {
    Folders { data_dir: Some(dir.path().join("data")), root: dir.path().join("root"), hub: dir.path().join("hub") }
}

/// Vocabulary of a tokenizer.json with no file beside it.
pub(in crate::tasks::wikitext) fn vocabulary(file: &serde_json::Value) -> Vocabulary {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    fs::write(&path, file.to_string()).unwrap();
    FoundTokenizer::read(&path).unwrap().vocabulary().unwrap()
}

/// Word tokenizer with `n` ids, the first of which is the unknown token.
fn words(n: usize) -> Vec<u8> {
    words_of(0..n)
}

/// Word tokenizer with `ids`, the least of which is 0, the unknown token.
fn words_of(ids: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let words = ids.into_iter().map(|i| (format!("w{i}"), json!(i)));
    let vocabulary: serde_json::Map<String, serde_json::Value> = words.collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    });
    file.to_string().into_bytes()
}

fn adopted(content: &[u8]) -> (TempDir, Result<(Tokenizer, usize)>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some.json");
    fs::write(&path, content).unwrap();
    let adopted = adopt_into(&path, &place(&dir));
    fs::remove_file(path).unwrap();
    (dir, adopted)
}

#[test]
fn gpt_neox_encodes_as_published() {
    let Some(found) = neox() else { return };
    assert_eq!(found.sha256, GPT_NEOX);
    let vocabulary = found.vocabulary().unwrap();
    assert_eq!(vocabulary.size, GPT_NEOX_SIZE);
    let cases: [(&str, &[u32]); 9] = [
        (" = Valkyria Chronicles III = \n", &[426, 657, 1278, 90, 5182, 28289, 868, 6490, 426, 2490]),
        (" @-@ ", &[1214, 14, 33, 209]),
        (" @,@ ", &[1214, 13, 33, 209]),
        (" <unk> ", &[654, 3938, 31, 209]),
        ("\n", &[187]),
        (" \n", &[2490]),
        ("naïve café", &[2072, 30180, 36241]),
        ("  x", &[50276, 89]),
        ("a    b", &[66, 50274, 67]),
    ];
    for (text, ids) in cases {
        assert_eq!(vocabulary.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(vocabulary.decode(ids), text);
    }
    assert_eq!(vocabulary.eos, Some(0));
    assert_eq!(vocabulary.decode(&[0]), "<|endoftext|>");
}

#[test]
fn gpt_neox_is_known_in_any_print_and_a_copy_is_kept() {
    let Some(found) = neox() else { return };
    let value: serde_json::Value = serde_json::from_slice(&found.content).unwrap();
    let compact = value.to_string().into_bytes();
    assert_ne!(compact.len(), found.content.len());
    let marked = [b"\xef\xbb\xbf", &compact[..]].concat();
    for content in [compact, marked, found.content] {
        let (dir, adopted) = adopted(&content);
        assert_eq!(adopted.unwrap(), (Tokenizer::GptNeox, 50_304));
        let kept = FoundTokenizer::find(&Tokenizer::GptNeox, &place(&dir)).unwrap();
        assert_eq!(kept.content, content);
    }
}

#[test]
fn gpt_neox_is_found_in_the_folder_of_downloads() {
    let Some(found) = neox() else { return };
    for below in [
        "data/tokenizer.json",
        "gpt-neox-20b-tokenizer/tokenizer.json",
        "data/gpt-neox-20b-tokenizer/tokenizer.json",
        "root/gpt-neox-20b-tokenizer/tokenizer.json",
        "hub/models--EleutherAI--gpt-neox-20b/snapshots/abc/tokenizer.json",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &found.content).unwrap();
        assert!(FoundTokenizer::find(&Tokenizer::GptNeox, &place(&dir)).is_ok(), "{below}");
    }
}

#[test]
fn another_file_is_adopted_by_its_digest_and_never_taken_for_gpt_neox() {
    let (dir, adopted) = adopted(&words(300));
    let (tokenizer, rows) = adopted.unwrap();
    assert_eq!(rows, 384);
    let Tokenizer::File(digest) = &tokenizer else { panic!("{tokenizer} is no other file") };
    assert_eq!(digest.len(), 12);
    let found = FoundTokenizer::find(&tokenizer, &place(&dir)).unwrap();
    let vocabulary = found.vocabulary().unwrap();
    assert_eq!(vocabulary.encode("w7 w299 never").unwrap(), [7, 299, 0]);
    fs::create_dir_all(dir.path().join("data")).unwrap();
    fs::write(dir.path().join("data/tokenizer.json"), words(300)).unwrap();
    let missing = FoundTokenizer::find(&Tokenizer::GptNeox, &place(&dir)).fails("missing");
    missing.names(&[
        "data/tokenizer.json",
        "`dsf data fetch wikitext --tokenizer`",
        "--data-dir DIR",
        "--tokenizer FILE",
        "--tokenizer bytes",
    ]);
    let lost = Tokenizer::File("0123456789ab".to_owned());
    let missing = FoundTokenizer::find(&lost, &place(&dir)).fails("missing");
    missing.names(&["0123456789ab", "--data-dir DIR"]);
}

#[test]
fn an_invalid_or_too_large_tokenizer_is_refused_and_not_kept() {
    for (content, names) in [
        (&b"{\"a\": 1}"[..], &["tokenizer.json"][..]),
        (b"\xff", &["tokenizer.json"]),
        (&words(0), &[]),
        (&words_of([0, MOST]), &["16777216"]),
    ] {
        let (dir, adopted) = adopted(content);
        let at = adopted.fails("data");
        assert!(at.names(names).path.is_some(), "{at:?}");
        assert!(!dir.path().join("root").exists());
    }
    let (_dir, largest) = adopted(&words_of([0, MOST - 1]));
    assert_eq!(largest.unwrap().1, MOST);
}

/// Word tokenizer with a beginning-of-text token, `w2`, and an id above 65,535.
fn with_beginning() -> Vocabulary {
    let mut file: serde_json::Value = serde_json::from_slice(&words_of([0, 1, 2, 70_000])).unwrap();
    let sequence = json!({"Sequence": {"id": "A", "type_id": 0}});
    file["post_processor"] = json!({
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "w2", "type_id": 0}}, sequence],
        "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"w2": {"id": "w2", "ids": [2], "tokens": ["w2"]}},
    });
    vocabulary(&file)
}

#[test]
fn special_tokens_are_added_to_prompts_alone() {
    let words = with_beginning();
    assert_eq!(words.encode("w1 w70000").unwrap(), [1, 70_000]);
    assert_eq!(words.encode_prompt("w1 w70000").unwrap(), [2, 1, 70_000]);
    let bytes = Vocabulary::bytes();
    assert_eq!(bytes.encode_prompt("a").unwrap(), bytes.encode("a").unwrap());
}

#[test]
fn ids_of_more_than_two_bytes_come_back() {
    let words = with_beginning();
    assert_eq!((words.size, words.width()), (70_001, IdWidth::Four));
    assert_eq!(words.decode(&[70_000, 1]), "w70000 w1");
    assert_eq!((IdWidth::of(1 << 16), IdWidth::of((1 << 16) + 1)), (IdWidth::Two, IdWidth::Four));
}

#[test]
fn a_tokenizer_with_ids_beyond_the_model_is_refused() {
    let model = |tokenizer, vocab_size| WikitextConfig {
        corpus: Corpus::Sample,
        tokenizer,
        vocab_size,
        seq_len: 8,
        source_digest: None,
        eos_between_articles: false,
        train_examples: None,
        test_examples: None,
    };
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("tokenizer.json");
    fs::write(&kept, words_of([0, 299])).unwrap();
    let file = Tokenizer::File(FoundTokenizer::read(&kept).unwrap().sha256[..12].to_owned());
    for (tokenizer, ids) in [(Tokenizer::Bytes, 256), (Tokenizer::GptNeox, GPT_NEOX_SIZE), (file, 300)] {
        let (large, small) = (model(tokenizer.clone(), ids), model(tokenizer.clone(), ids - 1));
        check_fits(&large).unwrap();
        if known_ids(&tokenizer).is_some() {
            check_fits(&small).refuses("--tokenizer").gives(&tokenizer.to_string()).names(&[&ids.to_string()]);
        } else {
            assert_eq!(ids_for(&large, "w0 w299", Some(dir.path())).unwrap(), [0, 299]);
            assert_eq!(ids_for(&small, "w0", Some(dir.path())).unwrap(), [0]);
        }
        let opened = Vocabulary::of(&small, Some(dir.path()));
        opened.refuses("--tokenizer").gives(&tokenizer.to_string()).names(&[&ids.to_string()]);
        ids_for(&small, "w0 w299", Some(dir.path())).refuses("--tokenizer");
    }
}

#[test]
fn a_zero_byte_is_refused_since_it_separates() {
    let bytes = Vocabulary::bytes();
    assert!(bytes.encode("a\0b").is_err());
    assert_eq!(bytes.decode(&[0xc3, 0xa9, 7000, 0xff]), "é\u{fffd}");
}

proptest! {
    #[test]
    fn bytes_come_back(text in "[^\0]*") {
        let bytes = Vocabulary::bytes();
        let ids = bytes.encode(&text).unwrap();
        prop_assert_eq!(ids.len(), text.len());
        prop_assert_eq!(bytes.decode(&ids), text);
    }
}

#[test]
fn a_tokenizer_is_a_name_or_a_file_that_is_there() {
    for (text, tokenizer) in [("bytes", Tokenizer::Bytes), ("gpt-neox", Tokenizer::GptNeox)] {
        let name = TokenizerName::Known(tokenizer);
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse(), Ok(name));
    }
    let refusal = "gpt-neo".parse::<TokenizerName>().unwrap_err();
    assert!(refusal.contains("`gpt-neox`"), "{refusal}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let name: TokenizerName = file.path().to_str().unwrap().parse().unwrap();
    assert_eq!(name, TokenizerName::File(file.path().into()));
}

/// End-of-text token of a tokenizer with the special tokens `special` and files of these contents beside it.
fn end_of_text(special: &[&str], beside: &[(&str, &str)]) -> Result<(Option<u32>, String)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    fs::write(&path, byte_level(special).to_string()).unwrap();
    for (name, content) in beside {
        fs::write(dir.path().join(name), content).unwrap();
    }
    let found = FoundTokenizer::read(&path)?;
    Ok((found.vocabulary()?.eos, found.sha256))
}

/// Special tokens, the files beside the tokenizer's with their content, and the id at the end of a text.
type Declared<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], Option<u32>);

#[test]
fn the_end_of_text_is_the_token_that_is_declared_for_it() {
    let (config, map) = ("tokenizer_config.json", "special_tokens_map.json");
    let chat = ["<|pad|>", "<|endoftext|>", "<|im_end|>"];
    let generation = "generation_config.json";
    let cases: [Declared; 16] = [
        (&[], &[], None),
        (&["<|pad|>", "<|endoftext|>"], &[], Some(264)),
        (&["<s>", "</s>"], &[], Some(264)),
        (&chat, &[], None),
        (&chat, &[(config, r#"{"eos_token": "<|im_end|>"}"#)], Some(265)),
        (&chat, &[(config, r#"{"eos_token": {"content": "<|pad|>", "lstrip": false}}"#)], Some(263)),
        (&chat, &[(config, "{}"), (map, r#"{"eos_token": "<|endoftext|>"}"#)], Some(264)),
        (&["</s>"], &[(config, r#"{"eos_token": null}"#), (map, r#"{"eos_token": "</s>"}"#)], None),
        (&["</s>"], &[(config, "{}")], Some(263)),
        (&[], &[(config, r#"{"eos_token": "a"}"#)], Some(64)),
        (&chat, &[(generation, r#"{"eos_token_id": 265}"#)], Some(265)),
        (&chat, &[(generation, r#"{"eos_token_id": [264, 265]}"#)], Some(264)),
        (&chat, &[(generation, r#"{"eos_token_id": 2}"#)], None),
        (&chat, &[(generation, "{")], None),
        (&chat, &[(generation, r#"{"eos_token_id": 265}"#), (config, r#"{"eos_token": "<|pad|>"}"#)], Some(263)),
        (&["</s>", "<|pad|>"], &[(generation, r#"{"eos_token_id": 264}"#)], Some(263)),
    ];
    for (special, beside, wanted) in cases {
        let (found, _) = end_of_text(special, beside).unwrap();
        assert_eq!(found, wanted, "{special:?} {beside:?}");
    }
    for (content, name) in [(r#"{"eos_token": "<|over|>"}"#, "`<|over|>`"), (r#"{"eos_token": 7}"#, "7"), ("{", "")] {
        let at = end_of_text(&chat, &[(config, content)]).fails("data");
        at.names(&[name]);
    }
}

#[test]
fn a_declaration_that_the_file_does_not_tell_is_part_of_the_digest_and_kept() {
    let beside = |token: &str| format!("{{\"eos_token\": {token}}}");
    let digest = |declared: Option<&str>| {
        let content = declared.map(beside);
        let files: Vec<_> = content.iter().map(|c| ("tokenizer_config.json", c.as_str())).collect();
        end_of_text(&["</s>", "<|pad|>"], &files).unwrap().1
    };
    assert_eq!(digest(None), sha256(byte_level(&["</s>", "<|pad|>"]).to_string().as_bytes()));
    assert_eq!(digest(Some("\"</s>\"")), digest(None));
    let others = [digest(Some("null")), digest(Some("\"<|pad|>\"")), digest(None)];
    assert!(others[0] != others[1] && others[1] != others[2] && others[0] != others[2]);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some.json");
    fs::write(&path, byte_level(&["</s>", "<|pad|>"]).to_string()).unwrap();
    for (token, wanted) in [("\"<|pad|>\"", Some(264)), ("null", None), ("\"</s>\"", Some(263))] {
        fs::write(dir.path().join("tokenizer_config.json"), beside(token)).unwrap();
        let (tokenizer, _) = adopt_into(&path, &place(&dir)).unwrap();
        fs::remove_file(dir.path().join("tokenizer_config.json")).unwrap();
        let found = FoundTokenizer::find(&tokenizer, &place(&dir)).unwrap();
        assert_eq!(found.vocabulary().unwrap().eos, wanted, "{token}");
    }
}

#[test]
fn gpt_neox_with_another_end_of_text_is_another_tokenizer() {
    let Some(found) = neox() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    fs::write(&path, &found.content).unwrap();
    for (token, is_gpt_neox) in [("<|endoftext|>", true), ("<|padding|>", false)] {
        let declaration = json!({ "eos_token": token }).to_string();
        fs::write(dir.path().join("tokenizer_config.json"), declaration).unwrap();
        let (tokenizer, _) = adopt_into(&path, &place(&dir)).unwrap();
        assert_eq!(tokenizer == Tokenizer::GptNeox, is_gpt_neox, "{token}");
    }
}

#[test]
fn added_tokens_are_decoded_as_they_are_written() {
    let vocabulary = vocabulary(&byte_level(&["Öx", "<|endoftext|>"]));
    for text in ["a Öxb é<|endoftext|>Öx", "ÖxÖx", "é"] {
        let ids = vocabulary.encode(text).unwrap();
        assert_eq!(vocabulary.decode(&ids), text);
    }
    assert_eq!(vocabulary.decode(&[]), "");
}

proptest! {
    #[test]
    fn a_tokenizer_of_bytes_gives_every_text_back(text in ".*") {
        static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| vocabulary(&byte_level(&["<|endoftext|>"])));
        let ids = VOCABULARY.encode(&text).unwrap();
        prop_assert_eq!(VOCABULARY.decode(&ids), text);
    }
}
