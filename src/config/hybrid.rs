//! Hybrid models, in which some layers have another mixer.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Layers of another mixer: all l with l mod `every` = `offset`, counted from 0 (Jamba, Griffin, H3's hybrid). The text
/// form is `NAME:every=K,offset=J,variant=V,OPTION=VALUE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hybrid {
    /// Name of the mixer in the registry.
    pub mixer: String,
    /// Distance in layers between two of them, at least 2.
    pub every: usize,
    /// Index of the first of them, below `every`.
    pub offset: usize,
    /// Variant of the mixer; empty for the protocol's default.
    pub variant: String,
    /// Options of this mixer.
    pub options: BTreeMap<String, String>,
}

impl Hybrid {
    /// Whether layer `layer`, counted from 0, has this mixer.
    pub fn has(&self, layer: usize) -> bool {
        layer % self.every == self.offset
    }
}

/// Description of the text form, for messages.
const SHAPE: &str = "needed is NAME:every=K,offset=J, such as softmax:every=8,offset=4";

impl FromStr for Hybrid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mixer, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut options = BTreeMap::new();
        for pair in rest.split(',').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(format!("`{pair}` is not NAME=VALUE: {SHAPE}"));
            };
            if options.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(format!("`{name}` is given twice: {SHAPE}"));
            }
        }
        let mut number = |name: &str| match options.remove(name) {
            None => Ok(None),
            Some(value) => match value.parse::<usize>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("{name}={value} is not a whole number: {SHAPE}")),
            },
        };
        let Some(every) = number("every")? else {
            return Err(format!("it says no distance of layers: {SHAPE}"));
        };
        // The middle of the period is where Jamba has its attention.
        let offset = number("offset")?.unwrap_or(every / 2);
        if every < 2 {
            return Err(format!("every={every} leaves no layer to the first mixer: needed is 2 or more"));
        }
        if offset >= every {
            return Err(format!("offset={offset} is not below every={every}"));
        }
        Ok(Self {
            mixer: mixer.to_owned(),
            every,
            offset,
            variant: options.remove("variant").unwrap_or_default(),
            options,
        })
    }
}

impl TryFrom<String> for Hybrid {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Hybrid> for String {
    fn from(hybrid: Hybrid) -> Self {
        hybrid.to_string()
    }
}

impl fmt::Display for Hybrid {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:every={},offset={}", self.mixer, self.every, self.offset)?;
        if !self.variant.is_empty() {
            write!(f, ",variant={}", self.variant)?;
        }
        for (name, value) in &self.options {
            write!(f, ",{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spelt_is_read_back() {
        let text = "sliding-window:every=2,offset=1,variant=reference,window=16";
        let hybrid: Hybrid = text.parse().unwrap();
        assert_eq!(hybrid.to_string(), text);
        assert_eq!((hybrid.every, hybrid.offset), (2, 1));
        assert_eq!(hybrid.options["window"], "16");
        let layers: Vec<usize> = (0..6).filter(|&layer| hybrid.has(layer)).collect();
        assert_eq!(layers, [1, 3, 5]);
        assert_eq!("softmax:every=8".parse::<Hybrid>().unwrap().offset, 4);
    }

    #[test]
    fn what_is_misspelt_says_what_is_wrong() {
        for (text, says) in [
            ("softmax", "no distance of layers"),
            ("softmax:every", "`every` is not NAME=VALUE"),
            ("softmax:every=x", "every=x is not a whole number"),
            ("softmax:every=1", "needed is 2 or more"),
            ("softmax:every=4,offset=4", "offset=4 is not below every=4"),
            ("softmax:every=4,every=5", "`every` is given twice"),
        ] {
            let error = text.parse::<Hybrid>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
