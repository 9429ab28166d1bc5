//! Network of a run.

use super::{BlockConfig, ClassifierConfig, Hybrid, LanguageConfig, Layout, Rotary, StateMixer};
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
    /// Place of rotary positions, except in a model of text, whose [`LanguageConfig`] has it; `None` for no such positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary: Option<Rotary>,
    /// Number of channels of each head with rotary positions, if there are any; even.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_dims: Option<usize>,
    /// Hidden width of the feed-forward halves of a language model of labels; `None` for 4d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlp_width: Option<usize>,
    /// Whether the model is an auto-encoder: the labels of all positions are decoded from the last hidden vector.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_encoder: bool,
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
    /// Mixer of a model, and the hybrid layers beside it, in words for people.
    pub fn mixers(&self) -> String {
        self.mixer.clone() + &self.hybrid_layers()
    }

    /// Hybrid layers as words after the mixer's name, such as ` with softmax:every=2,offset=1`; empty if there are none.
    pub fn hybrid_layers(&self) -> String {
        self.hybrid.as_ref().map_or(String::new(), |hybrid| format!(" with {hybrid}"))
    }

    /// Bare blocks of a norm and `mixer` in its `variant`: one head, no state expansion, no positions, no dropout. The other
    /// settings are changed by `..`.
    pub fn bare(mixer: impl Into<String>, variant: impl Into<String>, [d_model, n_layers]: [usize; 2]) -> Self {
        Self {
            mixer: mixer.into(),
            variant: variant.into(),
            options: BTreeMap::new(),
            d_model,
            d_state: 1,
            n_heads: 1,
            n_layers,
            layout: Layout::Mamba,
            state_mixer: StateMixer::None,
            positions: false,
            position_embedding: PositionEmbedding::Learnt,
            n_positions: None,
            rotary: None,
            rotary_dims: None,
            mlp_width: None,
            auto_encoder: false,
            embed_dropout: 0.0,
            attn_dropout: 0.0,
            expand: None,
            short_conv: false,
            state_norm: false,
            map_init: MapInit::Released,
            block: BlockConfig::default(),
            hybrid: None,
            classifier: None,
            language: None,
        }
    }

    /// Place of rotary positions and the number of channels of each head that they rotate; `None` for no such positions.
    pub fn rotary_positions(&self) -> Option<(Rotary, usize)> {
        let (rotary, dims) = match &self.language {
            Some(language) => (language.rotary, language.rotary_dims),
            None => (self.rotary?, self.rotary_dims?),
        };
        (rotary != Rotary::None).then_some((rotary, dims))
    }

    /// The same model without rotary positions.
    pub fn without_rotary_positions(mut self) -> Self {
        (self.rotary, self.rotary_dims) = (None, None);
        if let Some(language) = &mut self.language {
            language.rotary = Rotary::None;
        }
        self
    }

    /// Whether head and embedding share one table.
    pub fn is_tied(&self) -> bool {
        self.block.tie.unwrap_or(self.language.is_none())
    }

    /// Whether mixers read documents in both directions.
    pub fn is_bidirectional(&self) -> bool {
        self.classifier.as_ref().is_some_and(|c| c.bidirectional)
    }

    /// The same model with mixers that read documents from their first token to their last.
    pub fn one_way(mut self) -> Self {
        if let Some(classifier) = &mut self.classifier {
            classifier.bidirectional = false;
        }
        self
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
    /// PyTorch's default in all linear maps of blocks and head, as in MAD; the same as `Released` in classifiers.
    Torch,
}

impl MapInit {
    /// Whether this is the rule of older configs, which is left out of the text.
    fn is_released(&self) -> bool {
        *self == Self::Released
    }
}
