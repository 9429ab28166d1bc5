//! Config of a classifier, beyond the blocks that it shares with language models.

use dsf_ops::Pool;
use serde::{Deserialize, Serialize};

/// Embedding, pooling, head and loss around the blocks of a classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifierConfig {
    /// Map of tokens to vectors.
    pub input: InputMap,
    /// Hidden width of feed-forward halves and of heads, m.
    pub mlp_width: usize,
    /// Dropout inside and after feed-forward halves, and after mixers.
    pub dropout: f64,
    /// Whether a learned scalar scales the residual around each mixer, as in the newest released code.
    pub lambda_skip: bool,
    /// Pooling of all positions into one vector.
    pub pool: Pool,
    /// Whether pooling masks padding.
    pub mask: bool,
    /// Whether every document is padded to the longest that the task allows instead of the longest of its batch.
    pub pad_to_longest: bool,
    /// Map of the pooled vector to class logits.
    pub head: HeadKind,
    /// Representation by which two documents are compared.
    pub dual: Dual,
    /// Training loss.
    pub loss: Loss,
    /// Whether mixers read the document in both directions. Older configs lack the field, which means false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bidirectional: bool,
}

/// Map of a token to a vector of width d.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputMap {
    /// A row of a learned table.
    Embedding,
    /// A linear map of one number: the gray value, or the token's id.
    Scalar,
}

/// Map of the pooled vector to class logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadKind {
    /// d to m, ReLU, m to C.
    Mlp,
    /// d to C.
    Linear,
}

/// Representation by which two documents are compared in a task of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dual {
    /// Logits of the head for each document, as in the released code.
    Logits,
    /// Pooled vectors of both documents.
    Features,
}

/// Training losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Cross-entropy of the classes.
    Ce,
    /// Cross-entropy of probabilities used as logits (softmax applied twice), as in the released code.
    DoubleSoftmax,
}
