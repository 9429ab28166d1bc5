//! A text of one's own and its tokenizer, as a person types it.

use super::World;
use serde_json::{json, Value};
use std::fs;
use std::path::Path;

/// A folder `name` with these texts.
fn texts(world: &World, name: &str, texts: &[(&str, &str)]) {
    fs::create_dir_all(world.path(name)).unwrap();
    for (file, text) in texts {
        fs::write(world.path(name).join(file), text).unwrap();
    }
}

/// The same text in each split.
fn text(world: &World, name: &str, text: &str) {
    texts(world, name, &["train.txt", "valid.txt", "test.txt"].map(|file| (file, text)));
}

/// The 256 characters that GPT-2 has for bytes, sorted: `!` is the first.
fn alphabet() -> Vec<char> {
    let printed = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let others = (0..256).filter(|byte| !printed(byte)).count() as u32;
    let all = (0..256).filter(printed).chain(256..256 + others);
    all.map(|c| char::from_u32(c).unwrap()).collect()
}

/// Writes `name`, a tokenizer of bytes like that of GPT-2, with the added tokens `special` from id 256 on.
fn tokenizer(world: &World, name: &str, special: &[&str]) {
    let tokens = alphabet().into_iter().enumerate();
    let vocabulary: serde_json::Map<_, _> = tokens.map(|(i, c)| (c.to_string(), json!(i))).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let added = special.iter().enumerate().map(|(i, content)| {
        json!({"id": 256 + i, "content": content, "special": true, "normalized": false, "single_word": false,
               "lstrip": false, "rstrip": false})
    });
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Value>(),
        "normalizer": null, "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    fs::write(world.path(name), file.to_string()).unwrap();
}

/// Writes `name`, a tokenizer of the words `a` and `b` and the beginning-of-text token `<s>`, whose largest id is
/// `largest`.
fn words(world: &World, name: &str, largest: usize) {
    let sequence = json!({"Sequence": {"id": "A", "type_id": 0}});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
        "post_processor": {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, sequence],
            "pair": [sequence, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}},
        },
        "model": {"type": "WordLevel", "vocab": {"?": 0, "a": 1, "<s>": 2, "b": largest}, "unk_token": "?"},
    });
    fs::write(world.path(name), file.to_string()).unwrap();
}

fn events(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ids in the first token file that `out` names.
fn ids(out: &str) -> Vec<u16> {
    let file = fs::read(events(out)[0]["path"].as_str().unwrap()).unwrap();
    let ids = file[4096..].chunks_exact(2);
    ids.map(|id| u16::from_le_bytes([id[0], id[1]])).collect()
}

#[test]
fn a_text_becomes_tokens_to_the_byte() {
    let world = World::new();
    let body = "First.\n\nSecond.\r\n   \nlast";
    text(&world, "mine", body);
    texts(&world, "mine", &[("train.txt", &format!("\u{feff}{body}"))]);
    let said = world.dsf("data tokens --corpus text --data-dir mine --tokenizer bytes --json");
    assert!(
        said.err.contains("warning: the byte-order mark at the beginning of train.txt is left out"),
        "{}",
        said.err
    );
    let out = said.ok();
    for event in events(&out) {
        for (key, wanted) in [("tokens", 25), ("bytes", 25), ("words", 3), ("lines", 5), ("ppl_words", 3)] {
            assert_eq!(event[key], wanted, "{key}: {event}");
        }
    }
    let bytes: Vec<u8> = ids(&out).iter().map(|id| *id as u8).collect();
    assert_eq!(bytes, body.as_bytes());
}

#[test]
fn a_split_is_evaluated_without_the_others() {
    let world = World::new();
    world.dsf("wikitext --preset smoke --device cpu").ok();
    let run = world.only_run("results");
    let text = "Words of a test ,\n\nand no others .\n".repeat(4);
    texts(&world, "mine", &[("test.txt", &text)]);
    let eval = format!("wikitext eval --checkpoint {} --corpus text --data-dir mine", run.display());
    let out = world.dsf(&format!("{eval} --split test --json")).ok();
    let event = &events(&out)[0];
    let number = |key: &str| event[key].as_f64().unwrap();
    assert_eq!((number("bytes"), number("ppl_words")), (text.len() as f64, 36.0));
    let word_ppl = (number("all_nll") / 36.0).exp();
    assert!((number("word_ppl") / word_ppl - 1.0).abs() < 1e-9, "{event}");
    let said = world.dsf(&format!("{eval} --split test")).ok();
    assert!(said.contains("W is words, runs of anything but white space"), "{said}");
    let lacks = world.fails(&eval, "missing");
    lacks.at("mine", None).names(&["valid.txt"]);
    texts(&world, "mine", &[("train.txt", "ab"), ("valid.txt", "ab"), ("test.txt", "abc")]);
    let short = world.refuses(&format!("{eval} --split test"), "--seq-len");
    short.names(&["test", "3"]);
}

#[test]
fn an_empty_text_is_refused_by_its_split() {
    let world = World::new();
    text(&world, "mine", "some words\n");
    texts(&world, "mine", &[("train.txt", "")]);
    let line = "data tokens --corpus text --data-dir mine --tokenizer bytes";
    let empty = world.fails(line, "refused");
    assert_eq!(empty.names(&["train"]).flag, None);
}

#[test]
fn articles_are_separated_by_the_end_of_text_of_their_tokenizer() {
    let world = World::new();
    tokenizer(&world, "plain.json", &[]);
    tokenizer(&world, "ended.json", &["<|pad|>", "<|endoftext|>"]);
    text(&world, "mine", " = One = \n Wow! \n = Two = \n");
    let line = "data tokens --corpus text --data-dir mine --eos-between-articles --json --tokenizer";
    let found = ids(&world.dsf(&format!("{line} ended.json")).ok());
    let exclamation = found.iter().filter(|id| **id == 0).count();
    let ends: Vec<usize> = (0..found.len()).filter(|i| found[*i] == 257).collect();
    // Ten bytes of a heading and seven of a line stand between them.
    assert_eq!((exclamation, ends), (1, vec![0, 18]));
    for command in
        [line, "wikitext --preset smoke --corpus text --data-dir mine --eos-between-articles true --tokenizer"]
    {
        let line = format!("{command} plain.json");
        let none = world.refuses(&line, "--eos-between-articles");
        none.names(&["`eos_token`", "tokenizer_config.json"]);
    }
    let declaration = json!({ "eos_token": "<|pad|>" }).to_string();
    fs::write(world.path("tokenizer_config.json"), declaration).unwrap();
    let found = ids(&world.dsf(&format!("{line} ended.json")).ok());
    assert_eq!((found[0], found[18]), (256, 256));
}

#[test]
fn nothing_ends_a_text_where_the_tokenizer_declares_nothing() {
    let world = World::new();
    tokenizer(&world, "plain.json", &[]);
    let hf = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden/wikitext/hf");
    let write = |name: &str| {
        let line = format!(
            "wikitext generate --checkpoint {} --tokenizer {name} --prompt a --tokens 600 --json",
            hf.display()
        );
        events(&world.dsf(&line).ok())[0]["ids"].as_array().unwrap().clone()
    };
    let ids = write("plain.json");
    assert!(ids.contains(&json!(0)), "id 0 is `!`");
    assert_eq!(ids.len(), 600);
    let until = write("bytes");
    assert!(until.len() < 600 && until.last() == Some(&json!(0)), "id 0 ends bytes");
}

#[test]
fn what_is_exported_ends_a_text_as_its_tokenizer_does() {
    let world = World::new();
    text(&world, "mine", &"a few words of a text\n".repeat(200));
    let cases =
        [(&[][..], None, Value::Null), (&["</s>"], None, json!(256)), (&["</s>", "<|x|>"], Some("<|x|>"), json!(257))];
    for (special, declared, wanted) in cases {
        tokenizer(&world, "t.json", special);
        if let Some(token) = declared {
            fs::write(world.path("tokenizer_config.json"), json!({ "eos_token": token }).to_string()).unwrap();
        }
        let _ = fs::remove_dir_all(world.path("results"));
        let _ = fs::remove_dir_all(world.path("to"));
        world.dsf("wikitext --preset smoke --device cpu --corpus text --data-dir mine --tokenizer t.json").ok();
        let run = world.only_run("results");
        world.dsf(&format!("wikitext export --checkpoint {} --to to", run.display())).ok();
        let read = |name: &str| -> Value {
            serde_json::from_str(&fs::read_to_string(world.path("to").join(name)).unwrap()).unwrap()
        };
        let config = read("config.json");
        assert_eq!(config.get("eos_token_id"), Some(&wanted), "{special:?}");
        assert_eq!(world.path("to/tokenizer_config.json").exists(), declared.is_some());
        // The folder tells all that was known of the tokenizer.
        fs::remove_dir_all(world.path("home/dsf/wikitext/tokenizers")).unwrap();
        world.dsf("wikitext eval --checkpoint to --corpus text --data-dir mine").ok();
    }
}

#[test]
fn a_model_of_more_ids_than_two_bytes_number_is_trained_scored_and_continues_a_prompt() {
    let world = World::new();
    text(&world, "mine", &"a b b a a b\n".repeat(200));
    words(&world, "wide.json", 70_000);
    world
        .dsf(
            "wikitext --preset smoke --device cpu --corpus text --data-dir mine --tokenizer wide.json --epochs 1 --d 8",
        )
        .ok();
    let run = world.only_run("results");
    // Once as a run, and once as a pretrained model of an unknown origin: its config is no longer that of the run.
    world.dsf(&format!("wikitext export --checkpoint {} --to to", run.display())).ok();
    let config = world.path("to/config.json");
    let mut model: Value = serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    model["max_position_embeddings"] = json!(24);
    fs::write(config, model.to_string()).unwrap();
    let scores = [run.as_path(), Path::new("to")].map(|checkpoint| {
        let checkpoint = checkpoint.display();
        let eval = "wikitext eval --corpus text --data-dir mine --split test --seq-len 32 --json --checkpoint";
        let line = format!("{eval} {checkpoint}");
        let event = events(&world.dsf(&line).ok()).remove(0);
        assert_eq!(event["all_tokens"], 1199, "no token is added: {event}");
        let line = format!("wikitext generate --checkpoint {checkpoint} --prompt b --greedy --tokens 4");
        let read = world.dsf(&line);
        assert!(read.err.contains("read 2 tokens"), "the word and the token before it: {}", read.err);
        let wrote = events(&world.dsf(&format!("{line} --json")).ok()).remove(0);
        assert_eq!(wrote["ids"].as_array().unwrap().len(), 4);
        (event["all_nll"].clone(), wrote["ids"].clone())
    });
    assert_eq!(scores[0], scores[1]);
}

#[test]
fn a_tokenizer_with_ids_beyond_the_model_is_refused() {
    let world = World::new();
    text(&world, "mine", &"a b b a a b\n".repeat(60));
    words(&world, "wide.json", 256);
    let hf = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden/wikitext/hf");
    for command in ["eval --corpus text --data-dir mine", "generate --prompt a"] {
        let line = format!("wikitext {command} --checkpoint {}", hf.display());
        // The folder has no tokenizer.json, and GPT-NeoX's is too large.
        world.refuses(&line, "--tokenizer").gives("gpt-neox").names(&["50277", "256"]);
        world.refuses(&format!("{line} --tokenizer wide.json"), "--tokenizer").names(&["257", "256"]);
    }
    text(&world, "mine", &"a a a a a a\n".repeat(60));
    let line = "wikitext eval --corpus text --data-dir mine --tokenizer wide.json --checkpoint";
    world.dsf(&format!("{line} {}", hf.display())).ok();
}
