//! Parts of a language model in which it differs from the released ones of its layout.

use super::named_block::{NamedBlock, NAMED_BLOCKS};
use crate::error::nearest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Parts of the blocks, and of the ends, of a network; `None` and `false` stand for the value of the layout. The text form
/// is `NAME=VALUE,..` with the names of [`Self::NAMES`], after the name of a whole block if there is one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlockConfig {
    /// Whole block in which the other parts are changed; never in a config, which states what it stands for.
    pub named: Option<&'static NamedBlock>,
    /// Kind of the norms before the mixer and before the feed-forward half, and of the final norm.
    pub norm: Option<NormKind>,
    /// ε of these norms.
    pub eps: Option<f64>,
    /// Activation of the feed-forward half; GELU by default.
    pub activation: Option<Activation>,
    /// Whether the maps of the feed-forward half have biases; an `mlp` has them by default, a `gated-mlp` has none.
    pub bias: Option<bool>,
    /// Whether head and embedding share one table; by default they do, except in a model of text.
    pub tie: Option<bool>,
    /// Factor of the embeddings.
    pub embed_scale: Option<f64>,
    /// Whether a norm follows the embeddings.
    pub embed_norm: bool,
    /// Bound of the logits: c tanh(x/c).
    pub logit_cap: Option<f64>,
    /// Base of the wavelengths of rotary positions; 10,000 by default.
    pub rotary_base: Option<f64>,
    /// Number of blocks after which `transformers` halves the residual stream of RWKV-4. It cancels but for ε.
    pub rescale_every: Option<usize>,
}

/// Kinds of norms over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Layer norm: mean 0 and variance 1, then a learned weight and bias per channel.
    Layer,
    /// RMS norm: mean square 1, then a learned weight per channel.
    Rms,
    /// RMS norm whose weights are 1 + w (Gemma).
    RmsOffset,
    /// RMS norm without weights (TransNormer).
    SimpleRms,
}

/// Activations of a feed-forward half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x Φ(x), with the normal distribution Φ.
    Gelu,
    /// GELU approximated by tanh.
    GeluTanh,
    /// x σ(x).
    Silu,
    /// x itself, so that a `gated-mlp` is a product of two linear maps.
    Identity,
}

/// Names of the values of a setting.
macro_rules! names {
    ($type:ty, $($value:ident $name:literal),*) => {
        impl $type {
            fn name(self) -> &'static str {
                match self { $(Self::$value => $name),* }
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok(Self::$value),)*
                    _ => Err(format!("is not one of {}", [$($name),*].join(", "))),
                }
            }
        }
    };
}

names!(NormKind, Layer "layer", Rms "rms", RmsOffset "rms-offset", SimpleRms "simple-rms");
names!(Activation, Gelu "gelu", GeluTanh "gelu-tanh", Silu "silu", Identity "identity");

impl BlockConfig {
    /// Names of the text form.
    pub const NAMES: [&'static str; 10] = [
        "norm",
        "eps",
        "activation",
        "bias",
        "tie",
        "embed-scale",
        "embed-norm",
        "logit-cap",
        "rotary-base",
        "rescale-every",
    ];

    /// Whether every part is that of the layout, so that configs leave it out.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Parts of a whole block with these in their place, and without its name.
    pub fn over(&self, whole: &Self) -> Self {
        let own = self.parts();
        let kept = whole.parts().into_iter().filter(|(name, _)| own.iter().all(|(set, _)| set != name));
        let all: Vec<String> = kept.chain(own.clone()).map(|(name, value)| format!("{name}={value}")).collect();
        all.join(",").parse().expect("the parts of two blocks are those of one")
    }

    /// Text of these parts as changes to the whole block `whole`; `None` if they lack one of its parts, which no text
    /// takes away.
    pub fn within(&self, whole: &'static NamedBlock) -> Option<String> {
        let its = whole.parts.parse::<Self>().ok()?.parts();
        let own = self.parts();
        let lacks = its.iter().any(|(name, _)| own.iter().all(|(known, _)| known != name));
        let changed = own.iter().filter(|part| !its.contains(part)).map(|(name, value)| format!(",{name}={value}"));
        (!lacks).then(|| whole.name.to_owned() + &changed.collect::<String>())
    }

    /// Parts that are set, by name.
    fn parts(&self) -> Vec<(&'static str, String)> {
        let flag = |set: bool| set.then(|| true.to_string());
        let real = |x: Option<f64>| x.map(|x| x.to_string());
        let values = [
            self.norm.map(|norm| norm.name().to_owned()),
            real(self.eps),
            self.activation.map(|activation| activation.name().to_owned()),
            self.bias.map(|bias| bias.to_string()),
            self.tie.map(|tie| tie.to_string()),
            real(self.embed_scale),
            flag(self.embed_norm),
            real(self.logit_cap),
            real(self.rotary_base),
            self.rescale_every.map(|every| every.to_string()),
        ];
        Self::NAMES.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl fmt::Display for BlockConfig {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let named = self.named.map(|named| named.name.to_owned());
        let parts = self.parts().into_iter().map(|(name, value)| format!("{name}={value}"));
        f.write_str(&named.into_iter().chain(parts).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for BlockConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = BTreeMap::new();
        let first = text.split(',').next().unwrap_or_default();
        let named = NamedBlock::find(first);
        let rest = named.map_or(text, |_| text[first.len()..].trim_start_matches(','));
        for pair in rest.split(',').filter(|pair| !pair.is_empty()) {
            let known = pair.split_once('=').filter(|(name, _)| Self::NAMES.contains(name));
            let Some((name, value)) = known else {
                if NamedBlock::find(pair).is_some() {
                    return Err(format!("`{pair}` must come first, and only once"));
                }
                let blocks = NAMED_BLOCKS.each_ref().map(|block| block.name);
                let meant = nearest(pair, &blocks).map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                return Err(format!(
                    "`{pair}` is no whole block ({}; first and once), nor NAME=VALUE with a NAME of {}{meant}",
                    blocks.join(", "),
                    Self::NAMES.join(", ")
                ));
            };
            if parts.insert(name, value).is_some() {
                return Err(format!("`{name}` is given twice"));
            }
        }
        Ok(Self {
            named,
            norm: read(&parts, "norm")?,
            eps: positive(&parts, "eps", true)?,
            activation: read(&parts, "activation")?,
            bias: truth(&parts, "bias")?,
            tie: truth(&parts, "tie")?,
            embed_scale: positive(&parts, "embed-scale", false)?,
            embed_norm: truth(&parts, "embed-norm")?.unwrap_or(false),
            logit_cap: positive(&parts, "logit-cap", false)?,
            rotary_base: positive(&parts, "rotary-base", false)?,
            rescale_every: positive(&parts, "rescale-every", false)?.map(|every| every as usize),
        })
    }
}

fn read<T: FromStr<Err = String>>(parts: &BTreeMap<&str, &str>, name: &str) -> Result<Option<T>, String> {
    let value = parts.get(name).map(|value| value.parse().map_err(|why| format!("{name}={value} {why}")));
    value.transpose()
}

fn truth(parts: &BTreeMap<&str, &str>, name: &str) -> Result<Option<bool>, String> {
    let value = parts.get(name).map(|value| value.parse().map_err(|_| format!("{name}={value} is not true or false")));
    value.transpose()
}

/// Number above 0, or of 0 or more if `zero` is true.
fn positive(parts: &BTreeMap<&str, &str>, name: &str, zero: bool) -> Result<Option<f64>, String> {
    let Some(text) = parts.get(name) else {
        return Ok(None);
    };
    let value = text.parse::<f64>().ok().filter(|x| x.is_finite() && (*x > 0.0 || zero && *x == 0.0));
    let wanted = if zero { "a number of 0 or more" } else { "a number above 0" };
    value.map(Some).ok_or_else(|| format!("{name}={text} is not {wanted}"))
}

impl TryFrom<String> for BlockConfig {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<BlockConfig> for String {
    fn from(block: BlockConfig) -> Self {
        block.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_within_a_whole_block_are_those_that_differ() {
        let within = |parts: &str, name| parts.parse::<BlockConfig>().unwrap().within(NamedBlock::find(name).unwrap());
        let griffin = NamedBlock::find("griffin").unwrap().parts;
        assert_eq!(within(griffin, "griffin").as_deref(), Some("griffin"));
        assert_eq!(within(&format!("{griffin},tie=false"), "griffin").as_deref(), Some("griffin,tie=false"));
        let transformer = within(griffin, "transformer++");
        assert_eq!(transformer.as_deref(), Some("transformer++,eps=0.000001,activation=gelu-tanh,bias=true"));
        assert_eq!(within("norm=rms", "griffin"), None);
        assert_eq!(within("", "gpt").as_deref(), Some("gpt"));
    }

    #[test]
    fn the_text_form_is_read_back() {
        let text = "norm=rms-offset,eps=0.000001,activation=gelu-tanh,bias=true,tie=true,embed-scale=5.65625,\
                    embed-norm=true,logit-cap=30,rotary-base=500000,rescale-every=6";
        let block: BlockConfig = text.parse().unwrap();
        assert_eq!(block.to_string(), text);
        assert_eq!(block.parts().len(), BlockConfig::NAMES.len());
        assert!("".parse::<BlockConfig>().unwrap().is_default());
    }

    #[test]
    fn the_parts_of_a_whole_block_can_be_changed() {
        let block: BlockConfig = "transformer++,activation=gelu,tie=false".parse().unwrap();
        assert_eq!(block.to_string(), "transformer++,activation=gelu,tie=false");
        let whole: BlockConfig = block.named.unwrap().parts.parse().unwrap();
        assert_eq!(block.over(&whole).to_string(), "norm=rms,eps=0.00001,activation=gelu,bias=false,tie=false");
    }

    #[test]
    fn a_misspelt_part_is_named() {
        for text in ["norm", "norm=batch", "size=3", "eps=-1", "bias=maybe", "logit-cap=0", "tie=true,tie=true"] {
            let error = text.parse::<BlockConfig>().unwrap_err();
            let name = text.split('=').next().unwrap();
            assert!(error.contains(name), "{text}: {error}");
        }
        for text in ["gpt,gpt", "tie=true,gpt"] {
            let error = text.parse::<BlockConfig>().unwrap_err();
            assert_eq!(error, "`gpt` must come first, and only once");
        }
        let error = "Transfomer++".parse::<BlockConfig>().unwrap_err();
        assert!(error.ends_with("did you mean `transformer++`?"), "{error}");
    }
}
