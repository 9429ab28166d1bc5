//! Config of Pythia, beyond the language model of associative recall.

use serde::{Deserialize, Serialize};

/// Settings of Pythia that the language model of MQAR lacks. With them, the head has its own table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageConfig {
    /// Hidden width of the feed-forward halves.
    pub mlp_width: usize,
    /// Place of rotary positions in attention.
    pub rotary: Rotary,
    /// Number of channels of each head with rotary positions, even; 0 under [`Rotary::None`].
    pub rotary_dims: usize,
    /// Standard deviations of the initial weights.
    pub init: InitScheme,
}

/// Place of rotary positions (Su et al. 2021) in attention with a feature map φ. Without a feature map, `pre` and
/// `post` are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rotary {
    /// q and k are rotated, then mapped: the attention weights stay positive.
    Pre,
    /// φ(q) and φ(k) are rotated in the sum of values but not in the normaliser.
    Post,
    /// No rotary positions.
    None,
}

/// Standard deviations of the initial weights, all of them normal; biases start at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitScheme {
    /// Values of Pythia's training: √(2 / 5d), and 2 / (layers √d) for the two maps back to the residual.
    Pythia,
    /// Value of `transformers` under Pythia's config: 0.02 everywhere.
    Hf,
}
