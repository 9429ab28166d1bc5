//! What a classifier has beyond the blocks of a language model.

use dsf_ops::Pool;
use serde::{Deserialize, Serialize};

/// What stands around the blocks of a classifier, and what it is trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifierConfig {
    /// How a token becomes a vector.
    pub input: Input,
    /// Hidden width of feed-forward halves and of heads, m.
    pub mlp_width: usize,
    /// Dropout inside and behind feed-forward halves, and behind mixers.
    pub dropout: f64,
    /// Whether a learnt number scales the residual beside each mixer, as in the newest released code.
    pub lambda_skip: bool,
    /// How positions become one vector.
    pub pool: Pool,
    /// Whether pooling leaves out padding.
    pub mask: bool,
    /// Whether every document is padded to the longest that the task allows, not just to its batch.
    pub pad_to_longest: bool,
    /// From the pooled vector to classes.
    pub head: Head,
    /// What of two documents meets.
    pub dual: Dual,
    /// What is minimised.
    pub loss: Loss,
    /// Whether attention sees all tokens of the document, and not earlier ones alone. Older configs leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bidirectional: bool,
}

/// How a token becomes a vector of width d.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// A row of a learnt table.
    Embedding,
    /// A linear map of one number: the gray value, or the token's id as it stands.
    Scalar,
}

/// From the pooled vector to classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// d to m, ReLU, m to C.
    Mlp,
    /// d to C.
    Linear,
}

/// What of two documents meets in a task of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dual {
    /// The two outputs of the head for each of them, as in the released code.
    Logits,
    /// Their pooled vectors.
    Features,
}

/// What is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Cross-entropy of the classes.
    Ce,
    /// Cross-entropy whose logits are probabilities already, as in the released code.
    DoubleSoftmax,
}
