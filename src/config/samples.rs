//! Small models for the tests of other modules.

use super::{
    BlockConfig, InitScheme, LanguageConfig, Layout, MapInit, ModelConfig, PositionEmbedding, Rotary, StateMixer,
};

/// Pythia's body around an attention mixer, with two layers of two heads.
pub(crate) fn pythia(mixer: &str, rotary: Rotary) -> ModelConfig {
    ModelConfig {
        mixer: mixer.to_owned(),
        variant: "reference".to_owned(),
        options: [].into(),
        d_model: 16,
        d_state: 16,
        n_heads: 2,
        n_layers: 2,
        layout: Layout::Parallel,
        state_mixer: StateMixer::Mlp,
        positions: false,
        position_embedding: PositionEmbedding::Learnt,
        n_positions: None,
        short_conv: false,
        state_norm: false,
        map_init: MapInit::Released,
        embed_dropout: 0.0,
        attn_dropout: 0.0,
        expand: None,
        block: BlockConfig::default(),
        hybrid: None,
        classifier: None,
        language: Some(LanguageConfig { mlp_width: 32, rotary, rotary_dims: 4, init: InitScheme::Pythia }),
    }
}
