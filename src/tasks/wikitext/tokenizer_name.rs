//! A tokenizer as typed.

use super::{adopt, Tokenizer};
use crate::error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// `bytes`, `gpt-neox`, or the file of another tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerName {
    /// A name that the program knows.
    Known(Tokenizer),
    /// A `tokenizer.json` that is there.
    File(PathBuf),
}

impl TokenizerName {
    /// The tokenizer, and the rows that a table of its tokens needs; a file is adopted on the way.
    ///
    /// # Errors
    /// What [`adopt`] refuses.
    pub fn resolve(&self) -> error::Result<(Tokenizer, usize)> {
        match self {
            Self::Known(tokenizer) => Ok((tokenizer.clone(), table_rows(tokenizer).unwrap_or(0))),
            Self::File(path) => adopt(path),
        }
    }
}

/// Rows that a table of tokens needs, where the tokenizer's name says it: of GPT-NeoX the ids in use, rounded up
/// to a multiple of 128 as in Pythia.
pub fn table_rows(tokenizer: &Tokenizer) -> Option<usize> {
    match tokenizer {
        Tokenizer::Bytes => Some(256),
        Tokenizer::GptNeox => Some(50_304),
        Tokenizer::File(_) => None,
    }
}

impl FromStr for TokenizerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Tokenizer::from(text.to_owned()) {
            Tokenizer::File(path) if Path::new(&path).is_file() => Ok(Self::File(path.into())),
            Tokenizer::File(_) => Err("neither `bytes`, `gpt-neox` nor a file".to_owned()),
            known => Ok(Self::Known(known)),
        }
    }
}

impl fmt::Display for TokenizerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(tokenizer) => tokenizer.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
