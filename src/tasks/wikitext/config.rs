//! Settings of a run on text.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Language modelling on consecutive windows of one text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WikitextConfig {
    /// Text.
    pub corpus: Corpus,
    /// Digest of the text's files; `None` for the built-in sample, and until the files have been looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_digest: Option<String>,
    /// Tokenizer of the text.
    pub tokenizer: Tokenizer,
    /// Number of rows of the token table and of the head, V; ids without a token remain in the softmax.
    pub vocab_size: usize,
    /// Number of tokens of a window, L.
    pub seq_len: usize,
    /// Whether the tokenizer's end-of-text token stands before each article.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eos_between_articles: bool,
    /// Number of training windows, the first ones of the text; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_examples: Option<usize>,
    /// Number of windows of each of the other two splits, the first ones; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_examples: Option<usize>,
}

/// Texts with a training, a validation and a test split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Corpus {
    /// WikiText-103 with its rare words, as in Table 1.
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
    /// The files train.txt, valid.txt and test.txt in --data-dir, byte for byte.
    Text,
    /// A few pages that are part of the program.
    Sample,
}

impl Corpus {
    /// All texts, in the order of listings.
    pub const ALL: [Self; 6] =
        [Self::Wikitext103Raw, Self::Wikitext103, Self::Wikitext2Raw, Self::Wikitext2, Self::Text, Self::Sample];

    /// Name as typed and as written in rows.
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
    /// Largest number of windows of the training, the validation and the test split.
    pub(super) fn limits(&self) -> [Option<usize>; 3] {
        [self.train_examples, self.test_examples, self.test_examples]
    }

    /// Number of windows of the training, the validation and the test split: the limit, or else an estimate for the
    /// text.
    pub fn windows(&self) -> [usize; 3] {
        let limits = self.limits();
        let whole = self.corpus.tokens(&self.tokenizer).map(|tokens| tokens / self.seq_len.max(1));
        [0, 1, 2].map(|split| limits[split].unwrap_or(whole[split].max(1)))
    }
}

impl Corpus {
    /// Whether each line counts as one more word of a perplexity per word: the convention of WikiText, which the sample
    /// follows.
    pub const fn lines_are_words(self) -> bool {
        !matches!(self, Self::Text)
    }

    /// Folder in `Salesforce/wikitext` on the hub; `None` if the hub does not have the text.
    pub const fn hub_folder(self) -> Option<&'static str> {
        Some(match self {
            Self::Wikitext103Raw => "wikitext-103-raw-v1",
            Self::Wikitext103 => "wikitext-103-v1",
            Self::Wikitext2Raw => "wikitext-2-raw-v1",
            Self::Wikitext2 => "wikitext-2-v1",
            Self::Text | Self::Sample => return None,
        })
    }

    /// Estimated number of tokens of the three splits. For a user's own text this is only a placeholder.
    fn tokens(self, tokenizer: &Tokenizer) -> [usize; 3] {
        let bytes: [u32; 3] = match self {
            Self::Wikitext103Raw | Self::Wikitext103 => [546_500_000, 1_160_000, 1_300_000],
            Self::Wikitext2Raw | Self::Wikitext2 => [10_900_000, 1_160_000, 1_300_000],
            Self::Text | Self::Sample => [20_000, 4_000, 4_000],
        };
        // GPT-NeoX has 1.187 tokens per word, and a word has 5.39 bytes.
        let of_bytes = match tokenizer {
            Tokenizer::Bytes => 1.0,
            Tokenizer::GptNeox | Tokenizer::File(_) => 0.22,
        };
        bytes.map(|bytes| (f64::from(bytes) * of_bytes) as usize)
    }
}

/// Tokenizer of a text. Its text form is `bytes`, `gpt-neox`, or the first twelve hex digits of the SHA-256 of another
/// `tokenizer.json`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", from = "String", into = "String")]
pub enum Tokenizer {
    /// Bytes: each byte of the UTF-8 text is an id. Id 0 occurs in no text and is the end-of-text token.
    Bytes,
    /// The 50,277 tokens of GPT-NeoX-20B and Pythia.
    GptNeox,
    /// Another file of the `tokenizers` library, identified by a digest of its content and, if that is declared
    /// elsewhere, of its end-of-text token.
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
