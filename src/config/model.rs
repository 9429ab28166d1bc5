//! The network of a run.

use super::{ClassifierConfig, Hybrid, LanguageConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The network: `n_layers` blocks around one kind of mixer, or around two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// A name of the registry.
    pub mixer: String,
    /// One of the mixer's variants.
    pub variant: String,
    /// Options that only this mixer knows, resolved, e.g. `dt_init = "zero"`.
    pub options: BTreeMap<String, String>,
    /// Embedding width, d.
    pub d_model: usize,
    /// State expansion, n; also the query/key width of attention.
    pub d_state: usize,
    /// Heads, s.
    pub n_heads: usize,
    /// Blocks.
    pub n_layers: usize,
    /// How mixer and norms sit on the residual stream.
    pub layout: Layout,
    /// What follows the mixer in a `transformer` block.
    pub state_mixer: StateMixer,
    /// Position embeddings.
    pub positions: bool,
    /// Which they are; of no meaning without them.
    #[serde(default, skip_serializing_if = "PositionEmbedding::is_learnt")]
    pub position_embedding: PositionEmbedding,
    /// Dropout on the embeddings.
    pub embed_dropout: f64,
    /// Dropout on attention weights; mixers without weights ignore it.
    pub attn_dropout: f64,
    /// Inner width over `d_model` in mixers that widen; `None` is the mixer's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expand: Option<f64>,
    /// Layers of another mixer; `None` where all layers have the one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<Hybrid>,
    /// What a classifier has beyond a language model; `None` in a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<ClassifierConfig>,
    /// What Pythia has beyond the language model of MQAR; `None` in all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<LanguageConfig>,
}

impl ModelConfig {
    /// Whether its attention sees later tokens, too.
    pub fn is_bidirectional(&self) -> bool {
        self.classifier.as_ref().is_some_and(|c| c.bidirectional)
    }
}

/// Kinds of position embeddings, which are added to those of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PositionEmbedding {
    /// A parameter for every position of the training.
    #[default]
    Learnt,
    /// Sines and cosines of wavelengths from 2π to 20,000π (Vaswani et al. 2017), at any position.
    Sinusoidal,
}

impl PositionEmbedding {
    /// Older configs have no other, and leave it out.
    fn is_learnt(&self) -> bool {
        *self == Self::Learnt
    }
}

/// Residual layouts of the released model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Norm, mixer, add, norm, state mixer, add.
    Transformer,
    /// Norm, mixer, add.
    Mamba,
    /// As `transformer`, but both norms of a block are one: the released classifier of attention.
    Shared,
    /// Norm, mixer, GELU, dropout, state mixer, dropout, add: the released classifier of state space
    /// models with `prenorm`.
    Prenorm,
    /// The same with the norm behind the sum.
    Postnorm,
    /// As `transformer`, with RMS norms and dropout behind each sum: the released Hawk.
    Hawk,
    /// Mixer and state mixer beside each other, each behind a norm of its own, and one sum: Pythia.
    Parallel,
}

/// The second half of a `transformer` block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateMixer {
    /// Nothing at all (the `mamba` layout has no second half).
    None,
    /// The normed residual is added once more.
    Identity,
    /// Two linear maps around a GELU, of hidden width 4d in a language model.
    Mlp,
    /// A linear map to 2d, one half gated by the sigmoid of the other.
    Glu,
    /// A linear map to twice the hidden width, one half times the GELU of the other, a linear map to d.
    #[serde(rename = "gated-mlp")]
    GatedMlp,
}
