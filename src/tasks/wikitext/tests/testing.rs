//! Small tokenizers for tests.

use serde_json::{json, Value};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// Minimal tokenizer.json with the given `model`.
pub(in crate::tasks::wikitext) fn file(model: Value) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": model,
    })
}

/// First id of [`byte_level`] that is neither a byte nor a pair of tokens.
pub(in crate::tasks::wikitext) const FIRST_ADDED: u32 = 263;

/// Byte-level tokenizer like that of GPT-2, sorted, so that `!` is 0; blanks are merged with the next character and
/// with one another. `special` are added tokens from id [`FIRST_ADDED`] on.
pub(in crate::tasks::wikitext) fn byte_level(special: &[&str]) -> Value {
    let mut alphabet: Vec<String> = ByteLevel::alphabet().iter().map(char::to_string).collect();
    alphabet.sort_by_key(|c| c.chars().next());
    let merges = [["Ġ", "a"], ["Ċ", "Ċ"], ["Ġ", "Ġ"], ["ĠĠ", "ĠĠ"], ["Ċ", "Ġ"], ["a", "b"], ["!", "Ċ"]];
    let merged = merges.map(|[a, b]| format!("{a}{b}"));
    let tokens = alphabet.into_iter().chain(merged);
    let vocabulary: serde_json::Map<_, _> = tokens.enumerate().map(|(i, t)| (t, json!(i))).collect();
    let mut file = file(json!({"type": "BPE", "vocab": vocabulary, "merges": merges.map(|m| m.join(" "))}));
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true});
    file["pre_tokenizer"] = bytes.clone();
    file["decoder"] = bytes;
    let added = special.iter().enumerate().map(|(i, content)| {
        json!({"id": FIRST_ADDED as usize + i, "content": content, "special": true, "normalized": false,
               "single_word": false, "lstrip": false, "rstrip": false})
    });
    file["added_tokens"] = added.collect();
    file
}

/// Character tokenizer like that of Llama 2, which puts `▁` before a text and in place of each space.
pub(in crate::tasks::wikitext) fn prepending() -> Value {
    let tokens = ["<unk>", "<s>", "</s>", "▁", "\n", "a", "b", "c", "=", "▁a"];
    let vocabulary: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(i, t)| ((*t).to_owned(), json!(i))).collect();
    let mut file = file(json!({
        "type": "BPE", "vocab": vocabulary, "merges": ["▁ a"], "unk_token": "<unk>", "fuse_unk": true
    }));
    file["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]});
    file["decoder"] = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]});
    let special = |id: usize| {
        json!({"id": id, "content": tokens[id], "special": true, "normalized": false,
               "single_word": false, "lstrip": false, "rstrip": false})
    };
    file["added_tokens"] = json!([special(0), special(1), special(2)]);
    file
}
