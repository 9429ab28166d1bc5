use super::*;
use crate::tasks::testing::real;
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

fn neox() -> Option<Found> {
    let dir = real("gpt-neox-20b-tokenizer")?;
    Some(Found::read(&dir.join("tokenizer.json")).unwrap())
}

fn place(dir: &TempDir) -> Place {
    Place {
        data_dir: Some(dir.path().join("data")),
        root: dir.path().join("root"),
        hub: dir.path().join("hub"),
    }
}

/// A tokenizer of words with `n` ids, the first of which stands for all others.
fn words(n: usize) -> Vec<u8> {
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        (0..n).map(|i| (format!("w{i}"), json!(i))).collect();
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
    assert_eq!(vocabulary.size(), GPT_NEOX_SIZE);
    let cases: [(&str, &[u16]); 9] = [
        (
            " = Valkyria Chronicles III = \n",
            &[426, 657, 1278, 90, 5182, 28289, 868, 6490, 426, 2490],
        ),
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
    assert_eq!(vocabulary.decode(&[vocabulary.eos()]), "<|endoftext|>");
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
        let kept = Found::find(&Tokenizer::GptNeox, &place(&dir)).unwrap();
        assert_eq!(kept.content, content);
    }
}

#[test]
fn gpt_neox_is_found_where_downloads_lie() {
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
        assert!(
            Found::find(&Tokenizer::GptNeox, &place(&dir)).is_ok(),
            "{below}"
        );
    }
}

#[test]
fn another_file_is_adopted_by_its_digest_and_never_taken_for_gpt_neox() {
    let (dir, adopted) = adopted(&words(300));
    let (tokenizer, rows) = adopted.unwrap();
    assert_eq!(rows, 384);
    let Tokenizer::File(digest) = &tokenizer else {
        panic!("{tokenizer} is no other file")
    };
    assert_eq!(digest.len(), 12);
    let found = Found::find(&tokenizer, &place(&dir)).unwrap();
    let vocabulary = found.vocabulary().unwrap();
    assert_eq!(vocabulary.encode("w7 w299 never").unwrap(), [7, 299, 0]);
    fs::create_dir_all(dir.path().join("data")).unwrap();
    fs::write(dir.path().join("data/tokenizer.json"), words(300)).unwrap();
    let refused = Found::find(&Tokenizer::GptNeox, &place(&dir))
        .err()
        .unwrap();
    let refused = refused.to_string();
    for part in [
        "data/tokenizer.json is another one",
        "`dsf data fetch wikitext --tokenizer`",
        "--tokenizer FILE",
        "--tokenizer bytes",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    let lost = Tokenizer::File("0123456789ab".to_owned());
    let refused = Found::find(&lost, &place(&dir)).err().unwrap().to_string();
    assert!(
        refused.contains("0123456789ab is not kept here"),
        "{refused}"
    );
}

#[test]
fn what_is_no_tokenizer_or_too_large_is_refused_and_not_kept() {
    for (content, says) in [
        (&b"{\"a\": 1}"[..], "no tokenizer.json that can be used"),
        (b"\xff", "no tokenizer.json that can be used"),
        (&words(0), "it has no tokens"),
        (&words(MOST + 1), "its ids go up to 65536"),
    ] {
        let (dir, adopted) = adopted(content);
        let message = adopted.unwrap_err().to_string();
        assert!(message.contains(says), "{message}");
        assert!(!dir.path().join("root").exists());
    }
    let (_dir, largest) = adopted(&words(MOST));
    assert_eq!(largest.unwrap().1, MOST);
}

#[test]
fn a_zero_byte_is_refused_since_it_separates() {
    let bytes = Vocabulary::bytes();
    let message = bytes.encode("a\0b").unwrap_err().to_string();
    assert!(message.contains("zero byte"), "{message}");
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
    for (text, tokenizer) in [
        ("bytes", Tokenizer::Bytes),
        ("gpt-neox", Tokenizer::GptNeox),
    ] {
        let name = TokenizerName::Known(tokenizer);
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse(), Ok(name));
    }
    let refusal = "gpt-neo".parse::<TokenizerName>().unwrap_err();
    assert!(refusal.contains("nor a file"), "{refusal}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let name: TokenizerName = file.path().to_str().unwrap().parse().unwrap();
    assert_eq!(name, TokenizerName::File(file.path().into()));
}
