//! The values that flags and keys of experiment files take, one item of a list at a time.

use crate::model::protocol::PAPER_RATES;
use std::fmt;
use std::str::FromStr;

/// A learning rate, or all of [`PAPER_RATES`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// The word `paper`.
    Paper,
    /// One rate.
    Of(f64),
}

impl Rate {
    /// The rates meant.
    pub fn values(self) -> Vec<f64> {
        match self {
            Self::Paper => PAPER_RATES.into(),
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
