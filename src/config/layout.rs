//! Arrangement of a block, and its feed-forward half.

use serde::{Deserialize, Serialize};

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

impl Layout {
    /// Whether classifiers here have the layout: the released code has no classifier of the others, and
    /// `parallel` has no place for λ.
    pub fn is_of_classifiers(self) -> bool {
        !matches!(self, Self::Mamba | Self::Parallel)
    }
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
    /// Channel mixing of RWKV-7: two linear maps around a squared ReLU, after a token shift.
    #[serde(rename = "shifted-mlp")]
    ShiftedMlp,
}
