//! End-of-text token of a tokenizer. A `tokenizer.json` has no field for it; Hugging Face declares it in files beside
//! it.

use crate::error::{Error, Result};
use crate::files;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Names that special tokens have only if they end a text.
const NAMES: [&str; 13] = [
    "<|endoftext|>",
    "</s>",
    "<|end_of_text|>",
    "<eos>",
    "[EOS]",
    "<EOS>",
    "<|eos|>",
    "<|endofdocument|>",
    "<end_of_text>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<｜end▁of▁sentence｜>",
];

/// File in the folder of a model that declares the token.
pub(super) const DECLARES: &str = "tokenizer_config.json";

/// File in the folder of a model that has the token's id, for tokenizers that declare none.
const GENERATION: &str = "generation_config.json";

/// Key of the token in [`DECLARES`].
const KEY: &str = "eos_token";

/// Special tokens of a tokenizer.json.
pub(super) struct SpecialTokens(Vec<AddedToken>);

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    special: bool,
}

impl SpecialTokens {
    /// Reads them from `content`; there are none if it is not a tokenizer.json.
    pub(super) fn read(content: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct DeclaredTokens {
            added_tokens: Vec<AddedToken>,
        }
        let file: Option<DeclaredTokens> = serde_json::from_slice(content).ok();
        let mut all = file.map_or(Vec::new(), |file| file.added_tokens);
        all.retain(|token| token.special);
        Self(all)
    }

    /// Returns the only one whose name is in [`NAMES`]. `None` if there are several: in a chat model, `<|im_end|>` may
    /// end a text or an answer.
    pub(super) fn named(&self) -> Option<String> {
        let mut known = self.0.iter().filter(|token| NAMES.contains(&token.content.as_str()));
        let first = known.next()?;
        known.next().is_none().then(|| first.content.clone())
    }

    /// Returns the one whose id is the `eos_token_id` in [`GENERATION`] beside `tokenizer`, or the first of several
    /// there. `None` if there is none, or the file is not there or cannot be read: it belongs to the model, which can
    /// be used without it.
    pub(super) fn of_generation(&self, tokenizer: &Path) -> Option<String> {
        let content = fs::read(tokenizer.with_file_name(GENERATION)).ok()?;
        let all: Value = serde_json::from_slice(&content).ok()?;
        let id = all.get("eos_token_id")?;
        let id = id.get(0).unwrap_or(id).as_u64()?;
        self.0.iter().find(|token| u64::from(token.id) == id).map(|token| token.content.clone())
    }
}

/// Returns the end-of-text token that a file beside `tokenizer` declares, and that file. `Some((None, _))` means that
/// the file declares that there is none.
pub(super) fn declared(tokenizer: &Path) -> Result<Option<(Option<String>, PathBuf)>> {
    let folder = tokenizer.parent().unwrap_or(Path::new(""));
    let places = [kept(tokenizer), folder.join(DECLARES), folder.join("special_tokens_map.json")];
    for place in places.into_iter().filter(|place| place.is_file()) {
        let content = files::read_text(&place)?;
        let refused = |why: String| Error::data(&place, why);
        let all: Value = serde_json::from_str(&content)
            .map_err(|e| refused(format!("not the JSON of a tokenizer's settings: {e}")))?;
        let Some(token) = all.get(KEY) else { continue };
        let token = match token.get("content").unwrap_or(token) {
            Value::Null => None,
            Value::String(token) => Some(token.clone()),
            other => return Err(refused(format!("`{KEY}` is {other}, not a token or null"))),
        };
        return Ok(Some((token, place)));
    }
    Ok(None)
}

/// Path of the declaration of an adopted copy at `tokenizer`.
pub(super) fn kept(tokenizer: &Path) -> PathBuf {
    tokenizer.with_extension("config.json")
}

/// Content of a file that declares `token`, in the format of Hugging Face.
pub(super) fn declaration(token: Option<&str>) -> String {
    let all = serde_json::json!({ KEY: token, "tokenizer_class": "PreTrainedTokenizerFast" });
    format!("{all:#}\n")
}
