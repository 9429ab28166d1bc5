//! Network of a run.

use super::{BlockConfig, ClassifierConfig, Hybrid, LanguageConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Network: `n_layers` blocks around one kind of mixer, or around two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Name of the mixer in the registry.
    pub mixer: String,
    /// Variant of the mixer.
    pub variant: String,
    /// Options specific to this mixer, all resolved, e.g. `dt_init = "zero"`.
    pub options: BTreeMap<String, String>,
    /// Embedding width, d.
    pub d_model: usize,
    /// State expansion, n; also the query and key width of attention.
    pub d_state: usize,
    /// Number of heads, s.
    pub n_heads: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Arrangement of mixer and norms on the residual stream.
    pub layout: Layout,
    /// Second half of a `transformer` block.
    pub state_mixer: StateMixer,
    /// Whether there are position embeddings.
    pub positions: bool,
    /// Kind of position embeddings; without effect if there are none.
    #[serde(default, skip_serializing_if = "PositionEmbedding::is_learnt")]
    pub position_embedding: PositionEmbedding,
    /// Number of positions of the weights that the run starts from, if it is more than the tokens of a window: the rows of
    /// learned position embeddings, and the longest sequence of an export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_positions: Option<usize>,
    /// Dropout on the embeddings.
    pub embed_dropout: f64,
    /// Dropout on attention weights; ignored by mixers without any.
    pub attn_dropout: f64,
    /// Expansion factor, inner width over `d_model`, of mixers that have one; `None` for the mixer's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expand: Option<f64>,
    /// Whether a short convolution precedes every mixer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short_conv: bool,
    /// Whether an RMS norm of each head follows the state of every mixer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub state_norm: bool,
    /// Initial values of the mixers' linear maps.
    #[serde(default, skip_serializing_if = "MapInit::is_released")]
    pub map_init: MapInit,
    /// Parts of the blocks that differ from those of the layout.
    #[serde(default, skip_serializing_if = "BlockConfig::is_default")]
    pub block: BlockConfig,
    /// Layers of another mixer; `None` if all layers have the same mixer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<Hybrid>,
    /// Settings specific to classifiers; `None` in a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<ClassifierConfig>,
    /// Settings specific to Pythia; `None` in other models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<LanguageConfig>,
}

impl ModelConfig {
    /// Whether attention is bidirectional.
    pub fn is_bidirectional(&self) -> bool {
        self.classifier.as_ref().is_some_and(|c| c.bidirectional)
    }
}

/// Kinds of position embeddings, which are added to the token embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PositionEmbedding {
    /// Learned embedding of every position in training.
    #[default]
    Learnt,
    /// Sines and cosines of wavelengths from 2π to 20,000π (Vaswani et al. 2017), at any position.
    Sinusoidal,
}

impl PositionEmbedding {
    /// Whether this is the kind that older configs have, which is left out of the text.
    fn is_learnt(&self) -> bool {
        *self == Self::Learnt
    }
}

/// Initial values of the linear maps of mixers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MapInit {
    /// Values of the released model, whatever the mixer.
    #[default]
    Released,
    /// Values of the mixer's authors, if they have a rule of their own.
    Authors,
}

impl MapInit {
    /// Whether this is the rule of older configs, which is left out of the text.
    fn is_released(&self) -> bool {
        *self == Self::Released
    }
}

/// Residual layouts of the released models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Norm, mixer, add, norm, state mixer, add.
    Transformer,
    /// Norm, mixer, add.
    Mamba,
    /// `transformer` with one norm shared by both halves of a block: the released classifier of attention.
    Shared,
    /// Norm, mixer, GELU, dropout, state mixer, dropout, add: the released classifier of state space models with
    /// `prenorm`.
    Prenorm,
    /// `prenorm` with the norm after the sum instead of before the mixer.
    Postnorm,
    /// `transformer` with RMS norms and dropout after each sum: the released Hawk.
    Hawk,
    /// Mixer and state mixer in parallel, each after its own norm, and one sum: Pythia.
    Parallel,
}

/// Second half of a `transformer` block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateMixer {
    /// No second half, as in the `mamba` layout.
    None,
    /// Identity: the normed residual is added once more.
    Identity,
    /// Two linear maps around a GELU, of hidden width 4d in a language model.
    Mlp,
    /// Gated linear unit: a linear map to 2d, one half gated by the sigmoid of the other.
    Glu,
    /// Gated MLP: a linear map to twice the hidden width, one half times the GELU of the other, a linear map to d.
    #[serde(rename = "gated-mlp")]
    GatedMlp,
    /// Channel mixing of RWKV-4: a gated MLP with a token shift and squared ReLU.
    #[serde(rename = "channel-mix")]
    ChannelMix,
    /// Channel mixing of RWKV-7: two linear maps around a squared ReLU, behind a token shift.
    #[serde(rename = "shifted-mlp")]
    ShiftedMlp,
}
