//! The values that flags and keys of experiment files take, one item of a list at a time.

use crate::error;
use crate::model::protocol::{Task, BYTES, GPT_NEOX};
use crate::tasks::wikitext::adopt;
use crate::tasks::wikitext::Tokenizer;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A learning rate, or all of the rates that the paper of its task tries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// The word `paper`.
    Paper,
    /// One rate.
    Of(f64),
}

impl Rate {
    /// The rates meant in a task.
    pub fn values(self, task: Task) -> Vec<f64> {
        match self {
            Self::Paper => task.entry().paper_rates.into(),
            Self::Of(rate) => vec![rate],
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "paper" {
            return Ok(Self::Paper);
        }
        let refused = |_| "neither a number, such as 2e-3, nor the word `paper`".to_owned();
        text.parse().map(Self::Of).map_err(refused)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paper => f.write_str("paper"),
            Self::Of(rate) => rate.fmt(f),
        }
    }
}

/// One size of the task: sequence length L and key-value pairs k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// L.
    pub seq_len: usize,
    /// k.
    pub kv_pairs: usize,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = text.split_once(':').and_then(|(l, k)| {
            Some(Self {
                seq_len: l.trim().parse().ok()?,
                kv_pairs: k.trim().parse().ok()?,
            })
        });
        pair.ok_or_else(|| "not L:k, a length and a number of pairs such as 64:4".to_owned())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq_len, self.kv_pairs)
    }
}

/// An option that only some mixers know, `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixerOption {
    /// Name, as in `dsf mixers`.
    pub name: String,
    /// Value, as the mixer spells it.
    pub value: String,
}

impl FromStr for MixerOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err("not NAME=VALUE, such as dt_init=zero".to_owned());
        };
        Ok(Self {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
        })
    }
}

impl fmt::Display for MixerOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// What makes ids of a text, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerName {
    /// The word `bytes`.
    Bytes,
    /// The word `gpt-neox`.
    GptNeox,
    /// A file of the `tokenizers` library.
    File(PathBuf),
}

impl TokenizerName {
    /// The tokenizer meant, of which a file is kept so that later runs find it, and the rows that a
    /// table of tokens needs for it.
    pub fn resolve(&self) -> error::Result<(Tokenizer, usize)> {
        match self {
            Self::Bytes => Ok(BYTES),
            Self::GptNeox => Ok(GPT_NEOX),
            Self::File(path) => adopt(path),
        }
    }
}

impl FromStr for TokenizerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Tokenizer::from(text.to_owned()) {
            Tokenizer::Bytes => Ok(Self::Bytes),
            Tokenizer::GptNeox => Ok(Self::GptNeox),
            Tokenizer::File(path) if Path::new(&path).is_file() => Ok(Self::File(path.into())),
            Tokenizer::File(_) => Err("neither `bytes`, `gpt-neox` nor a file".to_owned()),
        }
    }
}

impl fmt::Display for TokenizerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => BYTES.0.fmt(f),
            Self::GptNeox => GPT_NEOX.0.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A whole number of 0 or more.
pub(super) fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    let refused = |_| "not a whole number of 0 or more, such as 64".to_owned();
    text.parse().map_err(refused)
}

/// A number.
pub(super) fn number(text: &str) -> Result<f64, String> {
    text.parse()
        .map_err(|_| "not a number, such as 0.1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::protocol::PAPER_RATES;

    #[test]
    fn a_tokenizer_is_a_name_or_a_file_that_is_there() {
        for (text, name) in [
            ("bytes", TokenizerName::Bytes),
            ("gpt-neox", TokenizerName::GptNeox),
        ] {
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
        let refusal = "gpt-neo".parse::<TokenizerName>().unwrap_err();
        assert!(refusal.contains("nor a file"), "{refusal}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let name: TokenizerName = file.path().to_str().unwrap().parse().unwrap();
        assert_eq!(name, TokenizerName::File(file.path().into()));
    }

    #[test]
    fn the_rates_of_the_paper_are_those_of_the_task() {
        assert_eq!(Rate::Paper.values(Task::Mqar), PAPER_RATES);
        let rates = Rate::Paper.values(Task::Wikitext);
        assert_eq!(rates, [3e-4, 1e-3, 3e-3, 1e-2]);
    }

    #[test]
    fn the_papers_rates_are_equal_steps_of_the_exponent() {
        for (i, rate) in PAPER_RATES.into_iter().enumerate() {
            let exact = 10f64.powf(-4.0 + 2.0 * i as f64 / 3.0);
            assert!((rate / exact - 1.0).abs() < 1e-15, "{rate} is not {exact}");
        }
    }

    #[test]
    fn a_rate_is_a_number_or_the_word_paper() {
        assert_eq!("paper".parse(), Ok(Rate::Paper));
        assert_eq!("2e-3".parse(), Ok(Rate::Of(2e-3)));
        assert!("papr".parse::<Rate>().unwrap_err().contains("`paper`"));
    }

    #[test]
    fn a_size_that_is_not_two_numbers_is_refused() {
        for text in ["64", "64:", ":4", "64:4:2", "64:x", "64:-4", ""] {
            let message = text.parse::<Size>().unwrap_err();
            assert!(message.contains("L:k"), "{text}: {message}");
        }
    }

    #[test]
    fn sizes_and_options_print_as_they_are_typed() {
        assert_eq!("64:4".parse::<Size>().unwrap().to_string(), "64:4");
        let option: MixerOption = "dt_init=zero".parse().unwrap();
        assert_eq!(option.to_string(), "dt_init=zero");
    }
}
