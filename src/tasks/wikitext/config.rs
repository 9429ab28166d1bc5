//! The settings of a run on text.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Consecutive windows of one text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WikitextConfig {
    /// Which text.
    pub corpus: Corpus,
    /// Digest of its files; none of the built-in sample, and before the files are looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_digest: Option<String>,
    /// What makes ids of it.
    pub tokenizer: Tokenizer,
    /// Rows of the token table and of the head, V; ids that no token has stay in the softmax.
    pub vocab_size: usize,
    /// Tokens a window, L.
    pub seq_len: usize,
    /// Whether the tokenizer's end-of-text token stands before each article.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eos_between_articles: bool,
    /// Training windows, the first ones of the text; `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_examples: Option<usize>,
    /// Windows that each of the other two splits is tested on, the first ones; `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_examples: Option<usize>,
}

/// Texts with a training, a validation and a test split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Corpus {
    /// WikiText-103 with its rare words, the one of Table 1.
    #[value(name = "wikitext-103-raw")]
    #[serde(rename = "wikitext-103-raw")]
    Wikitext103Raw,
    /// WikiText-103 with `<unk>` for rare words.
    #[value(name = "wikitext-103")]
    #[serde(rename = "wikitext-103")]
    Wikitext103,
    /// WikiText-2 with its rare words.
    #[value(name = "wikitext-2-raw")]
    #[serde(rename = "wikitext-2-raw")]
    Wikitext2Raw,
    /// WikiText-2 with `<unk>` for rare words.
    #[value(name = "wikitext-2")]
    #[serde(rename = "wikitext-2")]
    Wikitext2,
    /// Any `train.txt`, `valid.txt` and `test.txt` in the folder of `--data-dir`, byte for byte.
    Text,
    /// A few pages that are part of the program.
    Sample,
}

impl Corpus {
    /// In the order of the listing.
    pub const ALL: [Self; 6] = [
        Self::Wikitext103Raw,
        Self::Wikitext103,
        Self::Wikitext2Raw,
        Self::Wikitext2,
        Self::Text,
        Self::Sample,
    ];

    /// As typed and as written in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wikitext103Raw => "wikitext-103-raw",
            Self::Wikitext103 => "wikitext-103",
            Self::Wikitext2Raw => "wikitext-2-raw",
            Self::Wikitext2 => "wikitext-2",
            Self::Text => "text",
            Self::Sample => "sample",
        }
    }
}

impl WikitextConfig {
    /// The largest number of windows of the training, the validation and the test split.
    pub(super) fn limits(&self) -> [Option<usize>; 3] {
        [self.train_examples, self.test_examples, self.test_examples]
    }

    /// Windows of the training, the validation and the test split: as limited, or about as many as the
    /// text has.
    pub fn windows(&self) -> [usize; 3] {
        let limits = self.limits();
        let whole = self
            .corpus
            .tokens(&self.tokenizer)
            .map(|tokens| tokens / self.seq_len.max(1));
        [0, 1, 2].map(|split| limits[split].unwrap_or(whole[split].max(1)))
    }
}

impl Corpus {
    /// Whether each line is one more word of a perplexity per word: the convention of WikiText, which the sample follows.
    pub const fn lines_are_words(self) -> bool {
        !matches!(self, Self::Text)
    }

    /// Its folder in `Salesforce/wikitext` on the hub.
    pub const fn hub_folder(self) -> Option<&'static str> {
        Some(match self {
            Self::Wikitext103Raw => "wikitext-103-raw-v1",
            Self::Wikitext103 => "wikitext-103-v1",
            Self::Wikitext2Raw => "wikitext-2-raw-v1",
            Self::Wikitext2 => "wikitext-2-v1",
            Self::Text | Self::Sample => return None,
        })
    }

    /// About how many tokens its three splits have; what a text of the user's has, nobody knows before.
    fn tokens(self, tokenizer: &Tokenizer) -> [usize; 3] {
        let bytes: [u32; 3] = match self {
            Self::Wikitext103Raw | Self::Wikitext103 => [546_500_000, 1_160_000, 1_300_000],
            Self::Wikitext2Raw | Self::Wikitext2 => [10_900_000, 1_160_000, 1_300_000],
            Self::Text | Self::Sample => [20_000, 4_000, 4_000],
        };
        // 1.187 tokens a word and 5.39 bytes.
        let of_bytes = match tokenizer {
            Tokenizer::Bytes => 1.0,
            Tokenizer::GptNeox | Tokenizer::File(_) => 0.22,
        };
        bytes.map(|bytes| (f64::from(bytes) * of_bytes) as usize)
    }
}

/// What makes ids of a text. Written as `bytes`, `gpt-neox`, or the first twelve hex digits of the
/// SHA-256 of another `tokenizer.json`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", from = "String", into = "String")]
pub enum Tokenizer {
    /// Each byte of the UTF-8 text is an id; id 0 is in no text, and ends one.
    Bytes,
    /// The 50,277 tokens of GPT-NeoX-20B and Pythia.
    GptNeox,
    /// Another file of the `tokenizers` library, by a digest of it and of its end-of-text token where that is declared
    /// elsewhere.
    File(String),
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::GptNeox => "gpt-neox",
            Self::File(digest) => digest,
        })
    }
}

impl From<String> for Tokenizer {
    fn from(text: String) -> Self {
        match text.as_str() {
            "bytes" => Self::Bytes,
            "gpt-neox" => Self::GptNeox,
            _ => Self::File(text),
        }
    }
}

impl From<Tokenizer> for String {
    fn from(tokenizer: Tokenizer) -> Self {
        tokenizer.to_string()
    }
}
