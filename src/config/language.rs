//! What Pythia has beyond the language model of associative recall.

use serde::{Deserialize, Serialize};

/// What Pythia has and the language model of MQAR has not. With it, the head has a table of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageConfig {
    /// Hidden width of the feed-forward halves.
    pub mlp_width: usize,
    /// Where positions enter attention.
    pub rotary: Rotary,
    /// Channels of each head that are turned, an even number; 0 under [`Rotary::None`].
    pub rotary_dims: usize,
    /// How weights start.
    pub init: InitScheme,
}

/// Where rotary positions (Su et al. 2021) enter attention with a feature map φ. Without one, `pre` and
/// `post` are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rotary {
    /// q and k are turned, then mapped: the weights stay positive.
    Pre,
    /// φ(q) and φ(k) are turned in the sum of values and not in the normaliser.
    Post,
    /// Nowhere.
    None,
}

/// Spread of initial weights, all of them normal; biases start at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitScheme {
    /// As Pythia was trained: √(2 / 5d), and 2 / (layers √d) for the two maps back to the residual.
    Pythia,
    /// As `transformers` makes it from Pythia's config: 0.02 everywhere.
    Hf,
}
