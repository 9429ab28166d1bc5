//! Hybrid models, in which some layers have another mixer.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Layers of another mixer (Jamba, Griffin, H3's hybrid). The text form is
/// `NAME:every=K,offset=J,heads=S,n=N,variant=V,OPTION=VALUE`, or with `layers=I+J+..` in place of `every` and
/// `offset`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hybrid {
    /// Name of the mixer in the registry.
    pub mixer: String,
    /// Layers that have it.
    pub layers: HybridLayers,
    /// Number of its heads, if it is not that of the other layers.
    pub n_heads: Option<usize>,
    /// Its state expansion, if it is not that of the other layers.
    pub d_state: Option<usize>,
    /// Variant of the mixer; empty for the protocol's default.
    pub variant: String,
    /// Options of this mixer.
    pub options: BTreeMap<String, String>,
}

/// Layers of a hybrid, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HybridLayers {
    /// All l with l mod `every` = `offset`.
    Every {
        /// Distance in layers between two of them, at least 2.
        every: usize,
        /// Index of the first of them, below `every`.
        offset: usize,
    },
    /// These, in ascending order.
    At(Vec<usize>),
}

impl Hybrid {
    /// Whether layer `layer`, counted from 0, has this mixer.
    pub fn has(&self, layer: usize) -> bool {
        match &self.layers {
            HybridLayers::Every { every, offset } => layer % every == *offset,
            HybridLayers::At(layers) => layers.contains(&layer),
        }
    }

    /// The largest index that a model must have: that of the first layer of a period, or of the last of a list.
    pub fn needs_layer(&self) -> usize {
        match &self.layers {
            HybridLayers::Every { offset, .. } => *offset,
            HybridLayers::At(layers) => layers.last().copied().unwrap_or(0),
        }
    }
}

/// Description of the text form, for messages.
const SHAPE: &str = "needed is NAME:every=K,offset=J, such as softmax:every=8,offset=4, or NAME:layers=I+J";

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
        let whole = |name: &str, value: &str| {
            value.parse::<usize>().map_err(|_| format!("{name}={value} is not a whole number: {SHAPE}"))
        };
        let mut number = |name: &str| options.remove(name).map(|value| whole(name, &value)).transpose();
        let (every, offset) = (number("every")?, number("offset")?);
        let (n_heads, d_state) = (number("heads")?, number("n")?);
        let listed = options.remove("layers");
        let layers = match (every, listed) {
            (Some(_), Some(_)) => return Err(format!("it says both `every` and `layers`: {SHAPE}")),
            (None, None) => return Err(format!("it says no distance of layers: {SHAPE}")),
            (Some(every), None) => period(every, offset)?,
            (None, Some(listed)) => {
                let layers = listed.split('+').map(|layer| whole("layers", layer)).collect::<Result<Vec<_>, _>>()?;
                if !layers.is_sorted_by(|a, b| a < b) {
                    return Err(format!("layers={listed} is not in ascending order"));
                }
                HybridLayers::At(layers)
            }
        };
        Ok(Self {
            mixer: mixer.to_owned(),
            layers,
            n_heads,
            d_state,
            variant: options.remove("variant").unwrap_or_default(),
            options,
        })
    }
}

/// Layers of a period; `offset` defaults to its middle, where Jamba has its attention.
fn period(every: usize, offset: Option<usize>) -> Result<HybridLayers, String> {
    let offset = offset.unwrap_or(every / 2);
    if every < 2 {
        return Err(format!("every={every} leaves no layer to the first mixer: needed is 2 or more"));
    }
    if offset >= every {
        return Err(format!("offset={offset} is not below every={every}"));
    }
    Ok(HybridLayers::Every { every, offset })
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
        match &self.layers {
            HybridLayers::Every { every, offset } => write!(f, "{}:every={every},offset={offset}", self.mixer)?,
            HybridLayers::At(layers) => {
                let layers: Vec<String> = layers.iter().map(usize::to_string).collect();
                write!(f, "{}:layers={}", self.mixer, layers.join("+"))?;
            }
        }
        for (name, size) in [("heads", self.n_heads), ("n", self.d_state)] {
            if let Some(size) = size {
                write!(f, ",{name}={size}")?;
            }
        }
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
        assert_eq!(hybrid.options["window"], "16");
        let layers: Vec<usize> = (0..6).filter(|&layer| hybrid.has(layer)).collect();
        assert_eq!(layers, [1, 3, 5]);
        assert!("softmax:every=8".parse::<Hybrid>().unwrap().has(4));
        let text = "softmax:layers=1+4,heads=2,n=8";
        let hybrid: Hybrid = text.parse().unwrap();
        assert_eq!((hybrid.to_string().as_str(), hybrid.needs_layer()), (text, 4));
        let layers: Vec<usize> = (0..6).filter(|&layer| hybrid.has(layer)).collect();
        assert_eq!(layers, [1, 4]);
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
            ("softmax:every=4,layers=1", "both `every` and `layers`"),
            ("softmax:layers=3+1", "layers=3+1 is not in ascending order"),
            ("softmax:layers=1+x", "layers=x is not a whole number"),
        ] {
            let error = text.parse::<Hybrid>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
