//! Kinds of the values of settings: how they are typed, parsed and checked.

use super::block::BlockConfig;
use super::hybrid::Hybrid;
use serde_json::Value;
use std::ops::RangeInclusive;

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// Whole number between two bounds, both included.
    Whole(u64, u64),
    /// Number above 0.
    Positive,
    /// Number of 0 or more.
    NotNegative,
    /// Accuracy, from 0 to 1.
    Accuracy,
    /// Probability below 1.
    Share,
    /// Norm, or 0 for none.
    Norm,
    /// Decay rate of moments: 0 or more, below 1.
    Decay,
    /// Any number.
    Number,
    /// `true` or `false`.
    Bool,
    /// One of these names.
    OneOf(&'static [&'static str]),
    /// Protocol, of those that the task has.
    Protocol,
    /// Name from another table, such as a variant.
    Name,
    /// Name of a mixer; in a list, `all` stands for every mixer.
    Mixer,
    /// Number above 0; in a list, `paper` stands for the learning rates that the paper tried.
    LearningRate,
    /// Hybrid layers, see [`Hybrid`](super::Hybrid).
    Layers,
    /// Parts of a block, see [`BlockConfig`](super::BlockConfig).
    Block,
    /// Tokenizer: `bytes`, `gpt-neox` or the path of a `tokenizer.json`.
    Tokenizer,
    /// Trained weights: a file, a folder, a run or a name on the hub.
    Weights,
    /// Option of a mixer, `NAME=VALUE`; in a list, several values of one name are alternatives.
    MixerOption,
    /// Values of two settings, joined by a colon.
    Pair([&'static str; 2]),
    /// Number of consecutive values of a setting, counting up from the first.
    CountOf(&'static str),
}

/// Parser of whole numbers in `range`, for options that are no settings.
pub fn whole<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    let (least, most) = range.into_inner();
    move |text| {
        let found = text.parse().ok().filter(|number| (least..=most).contains(number));
        found.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match most {
            u64::MAX => format!("must be a whole number, {least} or more"),
            most => format!("must be a whole number from {least} to {most}"),
        })
    }
}

impl ValueKind {
    /// Whether values are numbers that need not be whole.
    pub fn is_real(self) -> bool {
        use ValueKind::{Accuracy, Decay, LearningRate, Norm, NotNegative, Number, Positive, Share};
        matches!(self, Accuracy | Positive | LearningRate | NotNegative | Norm | Decay | Share | Number)
    }

    /// Placeholder of a value in help.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Whole(..) | Self::CountOf(_) => "N",
            Self::Share => "P",
            Self::Bool => "BOOL",
            Self::OneOf(_) | Self::Protocol | Self::Name | Self::Mixer | Self::Tokenizer => "NAME",
            Self::Weights => "MODEL",
            Self::Layers => "LAYERS",
            Self::Block => "PARTS",
            Self::MixerOption => "NAME=VALUE",
            Self::Pair(_) => "L:k",
            _ => "X",
        }
    }

    /// Parses `text` as a value, one of `names` if there are any.
    ///
    /// # Errors
    ///
    /// Fails with the expected form, without the setting's name. Ranges are checked by [`Self::out_of_range`].
    pub fn parse(self, text: &str, names: Option<&[&str]>) -> Result<Value, String> {
        match self {
            Self::Whole(..) | Self::CountOf(_) => {
                let number = text.parse::<u64>().map(Value::from);
                number.map_err(|_| "not a whole number of 0 or more, such as 64".to_owned())
            }
            kind if kind.is_real() => match text.parse::<f64>() {
                // Adding 0 turns -0 into 0, which would otherwise give a run of another id.
                Ok(number) if number.is_finite() => Ok(Value::from(number + 0.0)),
                // JSON has no literal for NaN and infinity; [`Self::out_of_range`] rejects the text later.
                Ok(number) => Ok(Value::from(number.to_string())),
                Err(_) => Err("not a number, such as 0.1".to_owned()),
            },
            Self::Bool => match text {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err("not true or false".to_owned()),
            },
            Self::Pair(_) => {
                let whole = |part: &str| part.trim().parse::<usize>().ok();
                let pair = text
                    .split_once(':')
                    .and_then(|(first, second)| Some((whole(first)?, whole(second)?)))
                    .map(|(first, second)| Value::from(format!("{first}:{second}")));
                pair.ok_or_else(|| "not L:k, a length and a number of pairs such as 64:4".to_owned())
            }
            Self::MixerOption => match text.split_once('=') {
                Some((name, value)) => Ok(Value::from(format!("{}={}", name.trim(), value.trim()))),
                None => Err("not NAME=VALUE, such as dt_init=zero".to_owned()),
            },
            Self::OneOf(_) | Self::Protocol if names.is_some_and(|names| !names.contains(&text)) => {
                Err(format!("not one of {}", names.unwrap_or_default().join(", ")))
            }
            Self::OneOf(_) if text == "constant" => Ok(Value::from("warmup-constant")),
            Self::Layers => text.parse::<Hybrid>().map(|hybrid| Value::from(hybrid.to_string())),
            Self::Block => text.parse::<BlockConfig>().map(|block| Value::from(block.to_string())),
            _ => Ok(Value::from(text)),
        }
    }

    /// Range of the kind if `value` is not in it.
    pub fn out_of_range(self, value: &Value) -> Option<String> {
        let number = value.as_f64();
        let finite = |within: fn(f64) -> bool| number.is_some_and(within);
        match self {
            Self::Whole(least, most) => {
                let within = value.as_u64().is_some_and(|n| (least..=most).contains(&n));
                (!within).then(|| format!("{least} to {most}"))
            }
            Self::Positive | Self::LearningRate => {
                (!finite(|x| x > 0.0)).then(|| "a positive number, such as 2e-3".to_owned())
            }
            Self::Accuracy => {
                (!finite(|x| (0.0..=1.0).contains(&x))).then(|| "an accuracy from 0 to 1, such as 0.99".to_owned())
            }
            Self::NotNegative => (!finite(|x| x >= 0.0)).then(|| "0 or more".to_owned()),
            Self::Share => (!finite(|x| (0.0..1.0).contains(&x))).then(|| "in [0, 1)".to_owned()),
            Self::Decay => (!finite(|x| (0.0..1.0).contains(&x))).then(|| "in [0, 1), such as 0.95".to_owned()),
            Self::Norm => (!finite(|x| x >= 0.0)).then(|| "a norm such as 1, or 0 for none".to_owned()),
            Self::Number => (!value.is_number()).then(|| "a number, such as 2".to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_outside_its_range_is_refused_with_the_range() {
        let (depth, epochs) = (whole::<u8>(0..=100), whole::<u32>(1..=u64::MAX));
        assert_eq!((depth("100"), epochs("64")), (Ok(100), Ok(64)));
        for text in ["-1", "101", "x", "0.5", ""] {
            assert_eq!(depth(text).unwrap_err(), "must be a whole number from 0 to 100");
        }
        for text in ["0", "-1", "x", "4294967296"] {
            assert_eq!(epochs(text).unwrap_err(), "must be a whole number, 1 or more");
        }
    }
}
