//! The first 4,096 bytes of a token file: one line of JSON, filled up with blanks.

use super::super::digest;
use crate::tasks::wikitext::{Corpus, Tokenizer};
use crate::tasks::Counts;
use serde::{Deserialize, Serialize};

/// Where ids begin: whole pages, so that they lie even in memory.
pub(super) const BYTES: usize = 4096;

/// What makes a file one of these.
pub(super) const FORMAT: &str = "dsf tokens";

/// Raised when the same text would give other ids or another layout.
pub(super) const VERSION: u32 = 1;

/// Files that are named one by one; a header has room for so many.
const NAMED: usize = 4;

/// What a token file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub format: String,
    pub version: u32,
    pub corpus: Corpus,
    /// `train`, `val` or `test`.
    pub split: String,
    pub tokenizer: Tokenizer,
    /// Of its file, where it has one.
    pub tokenizer_sha256: Option<String>,
    pub eos_between_articles: bool,
    /// Ids in the file, two bytes each, the lower one first.
    pub tokens: u64,
    /// What the text was.
    pub counts: Counts,
    /// Headings of the first level.
    pub articles: u64,
    /// The largest id.
    pub largest: u16,
    /// Of all ids as they are stored.
    pub sha256: String,
    pub sources: Vec<Source>,
}

/// A file of text that the ids were made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Source {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// As one where there are too many to name.
pub(super) fn brief(sources: Vec<Source>) -> Vec<Source> {
    if sources.len() <= NAMED {
        return sources;
    }
    let digests: String = sources.iter().map(|s| s.sha256.as_str()).collect();
    vec![Source {
        name: format!("{} files, {} and on", sources.len(), sources[0].name),
        bytes: sources.iter().map(|s| s.bytes).sum(),
        sha256: digest::sha256(digests.as_bytes()),
    }]
}

impl Header {
    /// As it stands in the file. Names are cut so that it always fits.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("a header is plain data");
        bytes.resize(BYTES - 1, b' ');
        bytes.push(b'\n');
        bytes
    }

    /// What the first bytes of a file say, or why they say nothing.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let first = bytes.get(..BYTES).ok_or("it is shorter than a header")?;
        let header: Self =
            serde_json::from_slice(first).map_err(|e| format!("its header is none: {e}"))?;
        if (header.format.as_str(), header.version) != (FORMAT, VERSION) {
            let (format, version) = (&header.format, header.version);
            return Err(format!(
                "it is `{format}` {version}, not `{FORMAT}` {VERSION}"
            ));
        }
        let length = BYTES as u64 + 2 * header.tokens;
        if bytes.len() as u64 != length {
            return Err(format!("it has {} bytes of {length}", bytes.len()));
        }
        Ok(header)
    }
}
