//! Small models for the tests of other modules.

use super::{InitScheme, LanguageConfig, Layout, ModelConfig, Rotary, StateMixer};

/// Pythia's body around an attention mixer, with two layers of two heads.
pub(crate) fn pythia(mixer: &str, rotary: Rotary) -> ModelConfig {
    ModelConfig {
        d_state: 16,
        n_heads: 2,
        layout: Layout::Parallel,
        state_mixer: StateMixer::Mlp,
        language: Some(LanguageConfig { mlp_width: 32, rotary, rotary_dims: 4, init: InitScheme::Pythia }),
        ..ModelConfig::bare(mixer, "reference", [16, 2])
    }
}
